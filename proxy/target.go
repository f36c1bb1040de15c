package proxy

import (
	"errors"
	"net"
	"slices"
	"strings"
)

// target is where a request goes.
type target struct {
	scheme    string // http or https
	authority string // host:port, as dialled
	host      string // as a person writes it: without the scheme's own port
	path      string // path and query, as sent to an origin; a fragment that should not be there, too
	bare      bool   // the URL ended with its authority: path is made up
}

// parseAbsolute takes apart a request target in absolute form. RFC 9112, section 3.2.2. Only what is needed to send it on is looked at:
// what the path holds is between client and origin.
func parseAbsolute(s string) (target, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return target{}, errors.New("the request target is neither a path nor a URL")
	}
	t := target{scheme: strings.ToLower(scheme), path: "/", bare: true}
	if t.scheme != "http" && t.scheme != "https" {
		return target{}, errors.New("the request target has another scheme; only http and https can be asked of a proxy")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, t.path, t.bare = rest[:i], rest[i:], false
		if t.path[0] != '/' {
			t.path = "/" + t.path
		}
	}
	t.authority = withPort(withoutUserinfo(authority), t.scheme) // a password in a URL is not for the wire
	t.host = withoutPort(t.authority, t.scheme)
	if host, port, err := net.SplitHostPort(t.authority); err != nil || host == "" || port == "" || strings.ContainsAny(host, "\t \"<>\\^`{|}") {
		return target{}, errors.New("the request target does not name a host")
	}
	return t, nil
}

// withoutUserinfo returns the authority without a user's name and password.
func withoutUserinfo(authority string) string {
	return authority[strings.LastIndexByte(authority, '@')+1:]
}

// shownTarget returns a request's target, whatever its form, without a user's name and password.
func shownTarget(s string) string {
	if strings.HasPrefix(s, "/") {
		return s
	}
	from, end := 0, len(s)
	if scheme := strings.Index(s, "://"); scheme >= 0 {
		from = scheme + len("://")
		if path := strings.IndexAny(s[from:], "/?#"); path >= 0 {
			end = from + path
		}
	}
	return s[:from] + withoutUserinfo(s[from:end]) + s[end:]
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// withPort returns the authority with a port: the scheme's where it has none.
func withPort(authority, scheme string) string {
	if i := strings.LastIndexByte(authority, ':'); i < 0 || strings.HasSuffix(authority, "]") {
		return authority + ":" + defaultPort(scheme)
	} else if i == len(authority)-1 {
		return authority + defaultPort(scheme)
	}
	return authority
}

// withoutPort returns the authority without the scheme's own port.
func withoutPort(authority, scheme string) string {
	return strings.TrimSuffix(authority, ":"+defaultPort(scheme))
}

// sameHost reports whether a Host field's value means the authority.
func sameHost(value, authority, scheme string) bool {
	return strings.EqualFold(withPort(value, scheme), authority)
}

// forProxy reports whether a field is for the proxy alone.
func forProxy(f field) bool {
	return strings.EqualFold(f.name, "Proxy-Connection") || strings.EqualFold(f.name, credentialsField) || strings.EqualFold(f.name, hopsField)
}

// toOrigin makes of a head in absolute form the one that an origin gets: its target is the path; a Host that is missing or means another host is
// replaced (RFC 9112, section 3.2.2), which differs tells; what was for the proxy is left out. All other bytes stay.
func toOrigin(h *head, t target) (out *head, differs bool) {
	fields := h.fields
	if slices.ContainsFunc(fields, forProxy) {
		fields = slices.DeleteFunc(slices.Clone(fields), forProxy)
	}
	hosts, same := 0, true
	for i := range fields {
		if strings.EqualFold(fields[i].name, "Host") {
			hosts++
			same = same && sameHost(fields[i].value, t.authority, t.scheme)
		}
	}
	if hosts != 1 || !same {
		fields = setField(fields, "Host", t.host)
	}
	path := t.path
	if h.method == "OPTIONS" && t.bare {
		path = "*" // RFC 9112, section 3.2.4
	}
	out = h.with(h.method+" "+path+" "+h.proto, fields)
	out.target = path
	return out, hosts > 1 || !same
}
