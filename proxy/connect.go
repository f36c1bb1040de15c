package proxy

import (
	"context"
	"errors"
	"io"
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

// serveConnect serves a CONNECT request whose head was read: it dials, answers, finds out what is spoken, and serves that.
// An intercepted CONNECT becomes a session only if it fails.
func (p *Proxy) serveConnect(ctx context.Context, c *conn, head []byte, authority string) {
	s := storage.Session{
		Client: c.client, Method: http.MethodConnect, Scheme: "tcp", Host: authority, Protocol: "TCP",
		Timing: storage.Timing{Started: time.Now()},
	}
	s.Sides[storage.Request].Head = head

	dialing, cancel := context.WithCancel(ctx)
	client := startPeek(c, c.r, cancel) // a client that leaves ends the dial
	s.Timing.Connect = time.Now()
	up, err := p.dial(dialing, "tcp", authority)
	if err != nil {
		cancel()
		client.stop()
		p.refuseConnect(ctx, c, s, err)
		return
	}
	defer cancel()
	defer up.Close()
	defer context.AfterFunc(ctx, func() { bottom(up).Close() })()
	s.Timing.Connect, s.Timing.Connected, s.Upstream = up.dialed.connect, up.dialed.connected, up.addr

	c.writes.within(p.cfg.Limits.StallTime)
	if _, err := io.WriteString(c, established); err != nil {
		client.stop()
		p.record(s, storage.ClientAborted, "the client left before it was told that the connection stands")
		return
	}
	s.Status = http.StatusOK
	s.Sides[storage.Response].Head = []byte(established)

	first := waitFirst(c, client, up)
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
func (p *Proxy) refuseConnect(ctx context.Context, c *conn, s storage.Session, err error) {
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
	h, body := ownAnswer(refused.status, refused.reason+".")
	s.Status, s.ContentType = refused.status, "text/plain"
	s.Sides[storage.Response].Head = h.raw
	rec := p.cfg.Store.Begin(s)
	w := rec.Body(storage.Response)
	w.Write(body)
	w.Complete()
	rec.End(storage.Failed, refused.reason)

	c.writes.within(p.cfg.Limits.HeadTime)
	if _, err := c.Write(slices.Concat(h.raw, body)); err != nil {
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
