package proxy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// credentialsField is for the proxy alone. RFC 9110, section 11.7.2.
const credentialsField = "Proxy-Authorization"

// notKept stands in a record in place of what a client showed to the proxy.
const notKept = "(not kept)"

// askCredentials answers a request whose client has shown none that are right. It is no session: see refusals.
func (h *http1) askCredentials(method string) bool {
	why := "this proxy wants a user name and a password: those of --proxy-auth"
	h.p.turnAway(h.c.client, "no credentials, or wrong ones, for the proxy")
	answer, body := ownAnswer(http.StatusProxyAuthRequired, why+".")
	answer = answer.with(answer.start, append(slices.Clone(answer.fields), field{name: "Proxy-Authenticate", value: `Basic realm="Millpond", charset="UTF-8"`}))
	if method == http.MethodHead {
		body = nil
	}
	h.c.writes.within(h.p.cfg.Limits.HeadTime)
	if _, err := h.c.Write(slices.Concat(answer.raw, body)); err == nil {
		lingerClose(h.c)
	}
	return false
}

// authorized reports whether a request that is for the proxy shows what it wants.
func (h *http1) authorized(head *head) bool {
	if h.p.cfg.Auth == nil {
		return true
	}
	value, ok := head.value(credentialsField)
	return ok && h.p.cfg.Auth.matchBasic(value)
}

// toProxy reports whether the client's requests are to the proxy itself: not inside a tunnel, and not for the server that a listener forwards to.
func (h *http1) toProxy() bool { return h.inside == nil && h.c.under.reverse == nil }

// hideCredentials returns an understood head's bytes without the values of Proxy-Authorization. A head that has none is returned as it is.
func hideCredentials(raw []byte) []byte { return editLines(raw, fieldOfCredentials, hideRest) }

// hideMentions returns what was sent in the place of a head, whole or cut short, without what may be credentials: the rest of each line that names
// Proxy-Authorization, wherever it does, and a user's name and password before the host of CONNECT, or what may be the beginning of one.
func hideMentions(raw []byte) []byte {
	return editLines(hideUserinfo(raw), mentionOfCredentials, hideRest)
}

// dropCredentials returns trailers, whole or cut short, without the lines of Proxy-Authorization, folded ones behind another field among them.
func dropCredentials(trailers []byte) []byte {
	return editLines(trailers, func(line []byte) int {
		name, _, _ := bytes.Cut(line, []byte(":"))
		return mentionOfCredentials(name)
	}, func([]byte, int) []byte { return nil })
}

// editLines has edit change the lines in which find finds the end of a name, and leaves out those that go on with such a one's value (RFC 9112, section 5.2).
func editLines(raw []byte, find func(line []byte) int, edit func(line []byte, name int) []byte) []byte {
	var out []byte
	hiding := false
	for at := 0; at < len(raw); {
		end := at + bytes.IndexByte(raw[at:], '\n') + 1
		if end == at {
			end = len(raw)
		}
		line := raw[at:end]
		if hiding && folded(line) {
			line = nil
		} else if name := find(line); name >= 0 {
			if out == nil {
				out = append(make([]byte, 0, len(raw)), raw[:at]...)
			}
			hiding = true
			line = edit(line, name)
		} else {
			hiding = false
		}
		if out != nil {
			out = append(out, line...)
		}
		at = end
	}
	if out == nil {
		return raw
	}
	return out
}

func folded(line []byte) bool { return line[0] == ' ' || line[0] == '\t' }

// hideRest replaces what follows a line's name.
func hideRest(line []byte, name int) []byte {
	return slices.Concat(line[:name], []byte(": "+notKept), line[len(bytes.TrimRight(line, "\r\n")):])
}

// fieldOfCredentials returns where the name of a Proxy-Authorization field ends, -1 in another line.
func fieldOfCredentials(line []byte) int {
	name, _, isField := bytes.Cut(line, []byte(":"))
	if !isField || folded(line) || !strings.EqualFold(string(bytes.TrimRight(name, " \t")), credentialsField) {
		return -1
	}
	return len(name)
}

// mentionOfCredentials returns where the first Proxy-Authorization in a line ends, -1 where there is none.
func mentionOfCredentials(line []byte) int {
	for end := len(credentialsField); end <= len(line); end++ {
		if bytes.EqualFold(line[end-len(credentialsField):end], []byte(credentialsField)) {
			return end
		}
	}
	return -1
}

// hideUserinfo returns a CONNECT request without what stands before the host: such a target is refused, and may hold a password. Where the line was cut off within the
// target, all of that may be one.
func hideUserinfo(raw []byte) []byte {
	line, _, ended := bytes.Cut(raw, []byte("\n"))
	method := bytes.TrimLeft(line, " \t")
	if i := bytes.IndexAny(method, " \t"); i < 0 || !bytes.EqualFold(method[:i], []byte(http.MethodConnect)) {
		return raw
	}
	from := len(line) - len(method) + len(http.MethodConnect) + 1
	if !ended && !beginsVersion(line[from:]) {
		return slices.Concat(line[:from], []byte(notKept))
	}
	at := bytes.LastIndexByte(line, '@')
	if at < 0 {
		return raw
	}
	return slices.Concat(line[:from], []byte(notKept), raw[at:])
}

// beginsVersion reports whether what follows a method, cut off, has come to the version, so that the target is whole.
func beginsVersion(rest []byte) bool {
	const version = "HTTP/1."
	i := bytes.LastIndexByte(rest, ' ')
	last := string(rest[i+1:])
	return i >= 0 && last != "" && (strings.HasPrefix(version, last) || strings.HasPrefix(last, version))
}
