package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

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

// speaksHTTP2 reports whether a client of a listener in reverse mode, of which the first byte is there, speaks HTTP/2: TLS agreed on it, or it knew before.
func (p *Proxy) speaksHTTP2(c *conn, first byte) bool {
	if tc, ok := c.Conn.(*tls.Conn); ok && tc.ConnectionState().NegotiatedProtocol == "h2" {
		return true
	}
	defer c.reads.clear()
	return first == http2Preface[0] && sniff(c, p.cfg.Limits.HeadTime) == insideHTTP2
}

// serveReverseHTTP2 relays a client that speaks HTTP/2 to an upstream that does too. Nothing is translated: where there is none, the client is told so.
func (p *Proxy) serveReverseHTTP2(ctx context.Context, c *conn) {
	to, up, refused := c.under.reverse, c.under.ahead, c.under.refused
	if up == nil && refused == nil {
		var err error
		up, err = p.dial(ctx, to.scheme, to.authority, "h2")
		errors.As(err, &refused)
	}
	if refused == nil && to.scheme == "https" && up.tls.ALPN != "h2" {
		up.Close()
		refused = &upstreamError{http.StatusBadGateway, to.authority + " does not speak HTTP/2, which the client does: have the client speak HTTP/1.1", errNoHTTP2}
	}
	if refused != nil {
		s := storage.Session{Client: c.client, Scheme: to.scheme, Host: to.authority, Timing: storage.Timing{Started: time.Now()}}
		s.SetFlag(storage.FlagReverse)
		rec := p.cfg.Store.Begin(s)
		defer rec.End(storage.Failed, refused.reason) // where no request came
		p.answerHTTP2(c.bare(), rec, s, refused)
		return
	}
	p.serveHTTP2(ctx, c, &origin{scheme: to.scheme, authority: to.authority, up: up, tls: up.tls})
}

// aheadTime is how long a connection to upstream that the client's handshake made waits for an HTTP/1 request: upstream may close it meanwhile.
const aheadTime = time.Second

// dropAhead closes such a connection.
func (c *client) dropAhead() {
	if c.ahead != nil {
		c.ahead.Close()
		c.ahead = nil
	}
}

var errNoHTTP2 = errors.New("upstream does not speak HTTP/2")

// chooseProtocol connects to upstream while the client's hello waits, so that the client is offered what upstream chose of HTTP/2 and HTTP/1.1.
func (m *mirror) chooseProtocol(hello *tls.ClientHelloInfo) []string {
	to := m.to.reverse
	const old, new = "http/1.1", "h2"
	if to == nil || to.scheme != "https" || !slices.Contains(hello.SupportedProtos, new) {
		return []string{old}
	}
	known := []string{new}
	if slices.Contains(hello.SupportedProtos, old) {
		known = append(known, old)
	}
	up, err := m.p.dial(hello.Context(), to.scheme, to.authority, known...)
	switch {
	case err == nil && up.tls.ALPN == new:
		m.to.ahead = up
	case err == nil && len(known) > 1:
		m.to.ahead = up
		return []string{old}
	case err == nil:
		up.Close()
	case len(known) > 1: // its request fails in the same way, and is told why
		return []string{old}
	default:
		errors.As(err, &m.to.refused)
	}
	return []string{new}
}

// headHTTP2 makes of a request's head the one that upstream gets: :authority and Host become upstream's, and :scheme is that of the connection to it.
func (r *Reverse) headHTTP2(h *head) *head {
	fields := slices.Clone(h.fields)
	named := false
	for i := range fields {
		switch fields[i].name {
		case ":authority", "host":
			fields[i].value, named = r.host, true
		case ":scheme":
			fields[i].value = r.scheme
		}
	}
	if !named {
		fields = slices.Insert(fields, 0, field{name: ":authority", value: r.host})
	}
	return newHead2(fields)
}

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
