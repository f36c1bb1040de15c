package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"millpond/storage"
)

// established is the answer to CONNECT. It carries no length: what follows is the tunnel (RFC 9110, section 9.3.6).
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// origin is where the inside of a tunnel leads.
type origin struct {
	scheme    string        // http or https
	authority string        // the CONNECT target, host:port
	up        *upstreamConn // the one connection of this tunnel
	tls       *storage.TLS  // of this tunnel; nil without TLS
}

// asking is how a client asked for a connection, and is told what became of it.
type asking interface {
	// granted returns what tells the client that the connection stands, and notes it on the session. up is nil where the proxy itself is the target.
	granted(s *storage.Session, up net.Conn) []byte
	// refused returns what tells it why there is none, the head and the body, and notes the head on the session.
	refused(s *storage.Session, e *upstreamError) (answer, body []byte)
}

// httpAnswer tells a client that sent CONNECT over HTTP.
type httpAnswer struct{}

func (httpAnswer) granted(s *storage.Session, _ net.Conn) []byte {
	s.Status = http.StatusOK
	s.Sides[storage.Response].Head = []byte(established)
	return s.Sides[storage.Response].Head
}

func (httpAnswer) refused(s *storage.Session, e *upstreamError) (answer, body []byte) {
	h, body := ownAnswer(e.status, e.reason+".")
	s.Status, s.ContentType = e.status, "text/plain"
	s.Sides[storage.Response].Head = h.raw
	return h.raw, body
}

// serveConnect serves a CONNECT request whose head was read.
func (p *Proxy) serveConnect(ctx context.Context, c *conn, head []byte, authority string) {
	s := storage.Session{
		Client: c.client, Method: http.MethodConnect, Scheme: "tcp", Host: authority, Protocol: "TCP",
		Timing: storage.Timing{Started: time.Now()},
	}
	s.Sides[storage.Request].Head = head
	p.serveTarget(ctx, c, s, authority, httpAnswer{})
}

// serveTarget serves a client that asked for a connection to authority, host:port: it dials, answers, finds out what is spoken, and serves that.
// s describes what was asked; where that is intercepted it becomes a session only if it fails.
func (p *Proxy) serveTarget(ctx context.Context, c *conn, s storage.Session, authority string, client asking) {
	if host, port, err := splitAuthority(authority); err == nil && isSetup(host, port) {
		c.writes.within(p.cfg.Limits.StallTime)
		if _, err := c.Write(client.granted(&s, nil)); err == nil {
			p.serveOwn(ctx, c, host)
		}
		return
	}
	dialing, cancel := context.WithCancel(ctx)
	leaving := startPeek(c, c.r, cancel) // a client that leaves ends the dial
	s.Timing.Setup = &storage.Setup{Connect: time.Now()}
	up, err := p.dial(dialing, "tcp", authority)
	if err != nil {
		cancel()
		leaving.stop()
		p.refuseConnect(ctx, c, s, err, client)
		return
	}
	defer cancel()
	defer up.Close()
	defer context.AfterFunc(ctx, func() { bottom(up).Close() })()
	s.Upstream = up.addr
	s.Timing.Setup = &up.dialed
	if up.via != nil {
		s.SetFlag(storage.FlagUpstreamProxy)
	}

	c.writes.within(p.cfg.Limits.StallTime)
	if _, err := c.Write(client.granted(&s, up)); err != nil {
		leaving.stop()
		p.record(s, storage.ClientAborted, "the client left before it was told that the connection stands")
		return
	}
	if p.passes(authority) {
		leaving.stop()
		s.SetFlag(storage.FlagPassthrough)
		p.tunnel(ctx, c, up, s)
		return
	}

	first := waitFirst(c, leaving, up)
	switch {
	case ctx.Err() != nil:
		p.record(s, storage.Interrupted, "Millpond was stopped before either side sent anything")
	case first.who == clientLeft:
		p.record(s, storage.ClientAborted, "the client closed the connection before either side sent anything")
	case first.who == upstreamLeft:
		p.record(s, storage.UpstreamAborted, "upstream closed the connection before either side sent anything")
		breakOff(c)
	default:
		p.serveFirst(ctx, c, up, s, first)
	}
}

// refuseConnect tells the client why there is no connection to upstream, and records it.
func (p *Proxy) refuseConnect(ctx context.Context, c *conn, s storage.Session, err error, client asking) {
	var refused *upstreamError
	if !errors.As(err, &refused) {
		refused = &upstreamError{http.StatusBadGateway, err.Error(), err}
	}
	if ctx.Err() != nil {
		p.record(s, storage.Interrupted, "Millpond was stopped while it connected to upstream")
		return
	}
	if errors.Is(err, context.Canceled) {
		p.record(s, storage.ClientAborted, refused.reason)
		return
	}
	answer, body := client.refused(&s, refused)
	rec := p.cfg.Store.Begin(s)
	w := rec.Body(storage.Response)
	w.Write(body)
	w.Complete()
	rec.End(storage.Failed, refused.reason)

	c.writes.within(p.cfg.Limits.HeadTime)
	if _, err := c.Write(slices.Concat(answer, body)); err != nil {
		return // it left; the row is written
	}
	lingerClose(c)
}

// record keeps a session that carried no body.
func (p *Proxy) record(s storage.Session, state storage.State, why string) {
	p.cfg.Store.Begin(s).End(state, why)
}

// lingerClose ends the connection so that the peer gets what was written: closing while bytes of its wait unread would send a reset, which may overtake them.
// A client in the middle of a large upload reads an answer only when it has sent a good part of that. Shutdown does not wait for it.
func lingerClose(c *conn) {
	const patience, most = 2 * time.Second, 64 << 20
	c.under.idle.Store(true)
	closeWrite(c)
	c.SetReadDeadline(time.Now().Add(patience))
	io.CopyN(io.Discard, c.r, most)
	c.Close()
}
