package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"millpond/storage"
)

// Reverse is the one upstream of a listener in reverse mode: its clients know of no proxy, and send it what they would send to a server.
type Reverse struct {
	scheme    string // http or https
	authority string // host:port
	host      string // as in a Host field
}

// ParseReverse reads the URL of an upstream: http or https, a host, perhaps a port, and no path.
func ParseReverse(url string) (Reverse, error) {
	if strings.Contains(url, "@") { // not quoted: what stands before it may be a password
		return Reverse{}, errors.New("the URL of an upstream takes no credentials, and no @: it has scheme, host and port, as https://api.example")
	}
	t, err := parseAbsolute(url)
	if err != nil {
		return Reverse{}, fmt.Errorf("%q is not the URL of an upstream, as https://api.example: %w", url, err)
	}
	if t.path != "/" {
		return Reverse{}, fmt.Errorf("%q has more than scheme, host and port: the client's own path is forwarded", url)
	}
	if _, _, err := splitAuthority(t.authority); err != nil {
		return Reverse{}, fmt.Errorf("%q does not name an upstream: %w", url, err)
	}
	return Reverse{scheme: t.scheme, authority: t.authority, host: t.host}, nil
}

// String returns the upstream's URL.
func (r Reverse) String() string { return r.scheme + "://" + r.host }

// ServeReverse is Serve for a listener whose clients are all forwarded to one upstream.
func (p *Proxy) ServeReverse(l net.Listener, to Reverse) error { return p.accept(l, &to) }

// reverse makes of a request to a listener in reverse mode the one that its upstream gets. Host becomes upstream's, because servers choose by it what they serve
// and for which name they were asked; all other bytes stay.
func (r *request) reverse(to *Reverse, s *storage.Session) error {
	s.Scheme, s.Host = to.scheme, to.host
	s.SetFlag(storage.FlagReverse)
	path := r.head.target
	if r.head.method == http.MethodConnect {
		return errors.New("this listener forwards to one upstream, and is no proxy")
	}
	if !strings.HasPrefix(path, "/") && path != "*" { // absolute-form is for servers too. RFC 9112, section 3.2.2
		t, err := parseAbsolute(path)
		if err != nil {
			return err
		}
		path = t.path
	}
	r.target = target{scheme: to.scheme, authority: to.authority, host: to.host, path: path}
	sent := r.head.with(r.head.method+" "+path+" "+r.head.proto, setField(r.head.fields, "Host", to.host))
	sent.target = path
	if !bytes.Equal(sent.raw, r.head.raw) {
		r.head, r.received = sent, r.head.raw
	}
	s.Path = path
	return nil
}
