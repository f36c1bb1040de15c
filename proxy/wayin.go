package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"millpond/storage"
)

// serveWayIn serves a client by the first byte it sends: TLS to the proxy itself, SOCKS5, or HTTP. Inside TLS the next first byte decides again, once.
func (p *Proxy) serveWayIn(ctx context.Context, c *conn) {
	first, ok := p.firstByte(c)
	if ok && first == 0x16 {
		if c = p.acceptTLS(ctx, c, ""); c == nil {
			return
		}
		secured := time.Now()
		first, ok = p.firstByte(c)
		if up := c.under.ahead; up != nil && up.tls.ALPN != "h2" && time.Since(secured) > aheadTime {
			c.under.dropAhead()
		}
	}
	switch {
	case !ok:
		c.under.dropAhead()
		c.Close()
	case first == socksVersion && c.under.reverse == nil:
		p.serveSOCKS(ctx, c)
	case first == socks4 && c.under.reverse == nil:
		p.record(storage.Session{Client: c.client, Scheme: "tcp", Host: c.under.raw.LocalAddr().String(), Protocol: "TCP", Timing: storage.Timing{Started: time.Now()}},
			storage.Failed, "SOCKS4 is not spoken: use SOCKS5")
		c.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0}) // request rejected
		lingerClose(c)
	case c.under.reverse != nil && p.speaksHTTP2(c, first):
		p.serveReverseHTTP2(ctx, c)
	default:
		p.serveHTTP1(ctx, c, nil)
	}
}

// firstByte waits for the client to begin. The byte stays in c's reader. It reports false where the client has left, or was silent for too long.
func (p *Proxy) firstByte(c *conn) (byte, bool) {
	c.under.idle.Store(true)
	defer c.under.idle.Store(false)
	c.reads.within(p.cfg.Limits.IdleTime)
	b, err := c.r.Peek(1)
	if err != nil {
		return 0, false
	}
	return b[0], true
}

// newOwnTLS returns the configuration of every handshake with a client that speaks TLS to the proxy itself, for one authority.
func newOwnTLS() *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			m := hello.Conn.(*mirror)
			m.hello, m.sni = true, hello.ServerName
			name := hello.ServerName
			if name == "" {
				name = m.authority
			}
			leaves, err := m.issuer.leaves.get(name)
			if err != nil {
				return nil, err
			}
			return &tls.Config{Certificates: leaves, NextProtos: m.chooseProtocol(hello)}, nil
		},
	}
}

// acceptTLS does the handshake with a client that speaks TLS to the proxy itself, and returns the connection over it, or nil where there is none: then a session
// says why. name is whose certificate a client gets that asks for no name; empty is the address it connected to.
func (p *Proxy) acceptTLS(ctx context.Context, c *conn, name string) *conn {
	local := c.under.raw.LocalAddr().String()
	if name == "" {
		name, _, _ = net.SplitHostPort(local)
	}
	s := storage.Session{Client: c.client, Scheme: "tcp", Host: local, Protocol: "TLS", Timing: storage.Timing{Started: time.Now()}}
	if !p.cfg.ClientTLS && c.under.reverse == nil && !isOwnName(name) {
		p.record(s, storage.Failed, "the client speaks TLS to the proxy itself: give it the proxy as http://, or start Millpond with --proxy-tls")
		c.Close()
		return nil
	}
	m := &mirror{bufferedConn: bufferedConn{Conn: c.Conn, r: c.r}, p: p, issuer: p.cfg.CA.current(), authority: name, to: c.under}
	tc := tls.Server(m, m.issuer.own)
	limit := p.cfg.Limits.HeadTime
	if c.under.reverse != nil {
		limit += p.cfg.Limits.DialTime // see chooseProtocol
	}
	handshake, cancel := context.WithTimeout(ctx, limit)
	err := tc.HandshakeContext(handshake)
	cancel()
	m.done = true
	if err == nil {
		return c.over(tc)
	}
	c.under.dropAhead()
	if ctx.Err() == nil && name != checkHost {
		s.TLS = &storage.TLS{ServerName: m.sni}
		state, why := p.explainClient(ctx, c.client, name, m, err)
		p.record(s, state, why)
	}
	c.Close()
	return nil
}

// serveOwn serves what a client asks of the proxy itself, by one of its own names, through a connection that it was granted: the set-up page, plain or over TLS.
func (p *Proxy) serveOwn(ctx context.Context, c *conn, name string) {
	first, ok := p.firstByte(c)
	secure := ok && first == 0x16
	if secure {
		if c = p.acceptTLS(ctx, c, name); c == nil {
			return
		}
	}
	defer c.Close()
	if !ok {
		return
	}
	h := &http1{p: p, c: c, ctx: ctx, cancel: func() {}}
	raw, started, err := h.readRequest()
	if err != nil {
		return
	}
	if secure {
		p.accepted.note(c.client, name)
	}
	head, err := parseRequestHead(raw)
	if err == nil {
		body, framed := requestFraming(head)
		if framed == nil {
			h.setup(head, body, nil)
			return
		}
		err = framed
	}
	h.reject(raw, started, 400, err.Error())
}

// isSetup reports whether the target of a CONNECT is the proxy itself.
func isSetup(host, port string) bool {
	return isOwnName(host) && slices.Contains([]string{"80", "443"}, port)
}
