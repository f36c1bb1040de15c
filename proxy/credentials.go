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

// hideCredentials returns a head's bytes, whole or cut short, without the values of Proxy-Authorization. A head that has none is returned as it is.
func hideCredentials(raw []byte) []byte {
	var out []byte
	hiding := false
	for at := 0; at < len(raw); {
		end := at + bytes.IndexByte(raw[at:], '\n') + 1
		if end == at {
			end = len(raw)
		}
		line := raw[at:end]
		name, _, isField := bytes.Cut(line, []byte(":"))
		switch {
		case at > 0 && (line[0] == ' ' || line[0] == '\t'): // the line before goes on. RFC 9112, section 5.2
			if hiding {
				line = nil
			}
		case isField && strings.EqualFold(string(bytes.Trim(name, " \t")), credentialsField):
			if out == nil {
				out = append(make([]byte, 0, len(raw)), raw[:at]...)
			}
			hiding = true
			line = append(append(bytes.Clone(name), ": "+notKept...), line[len(bytes.TrimRight(line, "\r\n")):]...)
		default:
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
