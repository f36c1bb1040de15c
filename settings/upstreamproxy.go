package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxURL bounds the URL of a proxy: host, user name and password have 255 characters at most, and each may be percent-encoded.
const maxURL = 3000

// schemes are those that somebody may write without the two slashes: each would read as a host, and what follows as its port.
var schemes = []string{"http", "https", "socks", "socks4", "socks4a", "socks5", "socks5h", "ftp", "javascript", "data", "file", "about", "blob", "mailto", "ws", "wss", "tcp", "tls", "quic", "direct"}

// UpstreamProxy is the proxy through which upstream is reached.
type UpstreamProxy struct {
	Scheme    string        // http, https or socks5
	Authority string        // host:port
	User      *url.Userinfo // nil: none

	direct []Pattern // what is reached without it
}

// ParseUpstreamProxy reads the URL of a proxy: http, https or socks5, with credentials or without. noProxy lists what goes direct, in the form of the
// environment variable NO_PROXY: names, which mean those below them too, names with a leading dot, addresses, networks, each with or without a port, and *.
// Loopback and localhost always go direct. Errors do not quote the credentials.
func ParseUpstreamProxy(text string, noProxy []string) (*UpstreamProxy, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("it is longer than %d characters", maxURL)
	}
	if !strings.Contains(text, "://") {
		if word, _, _ := strings.Cut(text, ":"); slices.Contains(schemes, strings.ToLower(word)) {
			return nil, fmt.Errorf("%q is a scheme, not a host: want http://, https:// or socks5://, and then the host, as http://proxy.example:3128", word)
		}
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it is not a URL, as http://proxy.example:3128")
	}
	p := &UpstreamProxy{Scheme: strings.ToLower(u.Scheme), User: u.User}
	port := ""
	switch p.Scheme {
	case "http":
		port = "80"
	case "https":
		port = "443"
	case "socks5", "socks5h":
		p.Scheme, port = "socks5", "1080"
	default:
		return nil, fmt.Errorf("the scheme %q is not one of http, https and socks5", u.Scheme)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case u.Hostname() == "":
		return nil, errors.New("it names no host, as http://proxy.example:3128 does")
	case err != nil || n == 0:
		return nil, fmt.Errorf("%q is not a port", port)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("it has more than scheme, credentials, host and port")
	}
	if p.User != nil {
		if password, _ := p.User.Password(); len(p.User.Username()) > 255 || len(password) > 255 {
			return nil, errors.New("its user name or password is longer than 255 bytes")
		}
	}
	p.Authority = net.JoinHostPort(u.Hostname(), port)
	p.direct, err = parseNoProxy(noProxy)
	return p, err
}

// Redacted is the proxy's URL without the password.
func (p *UpstreamProxy) Redacted() string {
	u := url.URL{Scheme: p.Scheme, Host: p.Authority}
	if p.User != nil {
		u.User = url.User(p.User.Username())
	}
	return u.String()
}

// HasPassword reports whether the URL held a password.
func (p *UpstreamProxy) HasPassword() bool {
	if p.User == nil {
		return false
	}
	_, has := p.User.Password()
	return has
}

// serves reports whether an authority, host:port, is reached through the proxy.
func (p *UpstreamProxy) serves(authority string) bool {
	host, port, err := net.SplitHostPort(authority)
	if err != nil || InLocalhost("."+host) {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return (err != nil || !ip.Unmap().IsLoopback()) && !matchAny(p.direct, host, port)
}

// InLocalhost reports whether a host is a name below localhost: this machine, whatever a resolver says. RFC 6761, section 6.3.
func InLocalhost(host string) bool {
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), ".localhost")
}

// parseNoProxy reads what goes direct. A name means those below it, too, and one with a leading dot only those.
func parseNoProxy(list []string) ([]Pattern, error) {
	patterns, err := parsePatterns(list)
	if err != nil {
		return nil, fmt.Errorf("no proxy for: %w", err)
	}
	for i := range patterns {
		p := &patterns[i]
		if !strings.HasPrefix(p.text, "*") {
			p.itself, p.below = !strings.HasPrefix(p.text, "."), true
		}
	}
	return patterns, nil
}
