package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
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

	choose func(*url.URL) (*url.URL, error)
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
	if err := checkNoProxy(noProxy); err != nil {
		return nil, err
	}
	through := (&url.URL{Scheme: "http", Host: p.Authority}).String() // only whether it is chosen counts
	p.choose = (&httpproxy.Config{HTTPProxy: through, HTTPSProxy: through, NoProxy: strings.Join(noProxy, ",")}).ProxyFunc()
	return p, nil
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

func (p *UpstreamProxy) serves(scheme, authority string) bool {
	if scheme != "http" {
		scheme = "https" // tunnels
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if InLocalhost(host) {
		host = "localhost" // httpproxy knows this machine by this spelling alone
	}
	chosen, err := p.choose(&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)})
	return err == nil && chosen != nil
}

// InLocalhost reports whether a host is a name below localhost: this machine, whatever a resolver says. RFC 6761, section 6.3.
func InLocalhost(host string) bool {
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), ".localhost")
}

// checkNoProxy refuses what httpproxy would silently pass over.
func checkNoProxy(list []string) error {
	if len(list) > maxEntries {
		return fmt.Errorf("no proxy for: %d entries; %d are the most", len(list), maxEntries)
	}
	for _, entry := range list {
		if _, err := ParsePattern(entry); err != nil {
			return fmt.Errorf("no proxy for: %w", err)
		}
	}
	return nil
}
