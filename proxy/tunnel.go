package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"millpond/storage"
)

// tunnel relays both directions unread until both have ended, and records them as the two bodies of the session s. It closes both connections.
//
// The end of one side's sending is passed on and leaves the other direction open for as long as that lasts: a client may end its sending and wait for a long
// answer. Silence has no limit.
func (p *Proxy) tunnel(ctx context.Context, c *conn, up *upstreamConn, s storage.Session) {
	s.SetFlag(storage.FlagTunnel)
	rec := p.cfg.Store.Begin(s)
	c.reads.clear()
	rec.End(relayRaw(ctx, c, up, rec, p.cfg.Limits.StallTime, goneProbe))
}

// relayRaw relays both directions as they are into the bodies of rec, until both have ended, and closes both connections. It returns the session's state and the
// reason. stall limits a write that the peer does not accept; probe is how often a peer that ended its sending is looked at.
func relayRaw(ctx context.Context, c *conn, up *upstreamConn, rec *storage.Recording, stall, probe time.Duration) (storage.State, string) {
	client, upstream := peer{"the client", storage.ClientAborted}, peer{"upstream", storage.UpstreamAborted}
	out := &flow{from: client, to: upstream, src: c.bare(), dst: up, writes: &up.writes, stall: stall, body: rec.Body(storage.Request)}
	back := &flow{from: upstream, to: client, src: &bufferedConn{Conn: up.Conn, r: up.r}, dst: c, writes: &c.writes, stall: stall, body: rec.Body(storage.Response)}
	defer context.AfterFunc(ctx, func() { bottom(c).Close(); bottom(up).Close() })()
	state, why := relayBoth(ctx, out, back, probe)
	// Whoever did not get the other's end must not take what it got for all.
	switch {
	case !back.ended:
		breakOff(c)
	case !out.ended:
		lingerClose(c) // it may still be sending
	default:
		c.Close()
	}
	if out.ended {
		up.Close()
	} else {
		breakOff(up)
	}
	return state, why
}

// peer is one of the two that a tunnel joins.
type peer struct {
	name    string
	aborted storage.State // the tunnel's end if this peer breaks it
}

// flow is one direction of a tunnel.
type flow struct {
	from, to peer
	src      net.Conn
	dst      net.Conn
	writes   *deadline // of dst
	stall    time.Duration
	body     *storage.BodyWriter
	last     []byte // of what src sent, at most lastKept bytes
	lost     int64  // bytes that dst did not take
	ended    bool   // dst was told the end of what src sent, or is gone
}

// end tells how a flow ended: cleanly, with the end of what src sends, which was passed on; or with an error of src or of dst.
type end struct {
	flow     *flow
	src, dst error
}

func (e end) clean() bool { return e.src == nil && e.dst == nil }

// relayBoth runs the two directions of a tunnel until both have ended.
func relayBoth(ctx context.Context, out, back *flow, probe time.Duration) (storage.State, string) {
	ends := make(chan end, 2)
	go func() { ends <- out.run(ctx) }()
	go func() { ends <- back.run(ctx) }()
	first := <-ends
	isGone := func() bool { return false }
	switch {
	case first.clean():
		isGone = watchGone(first.flow.src, first.flow.dst, probe)
	case first.src != nil || timedOut(first.dst):
		// What is broken on one side is broken for the other. After any other failed write, what the peer had sent before it went is still relayed.
		breakOff(first.flow.dst)
		breakOff(first.flow.src)
	}
	second := <-ends
	gone := isGone()

	asked, answered := first, second
	if first.flow == back {
		asked, answered = second, first
	}
	switch {
	case ctx.Err() != nil:
		return storage.Interrupted, "Millpond was stopped while the tunnel was open"
	case answered.clean() && (gone || !timedOut(asked.dst)):
		// Upstream sent all it had. That it went then, and did not take the rest of what the client sent, is how TLS servers treat a client's last message;
		// and a client that closes with upstream's last message unread resets the connection.
		return storage.Done, ""
	case gone:
		return first.flow.from.aborted, first.flow.from.name + " vanished after it had ended its sending"
	case asked.clean() && answered.dst != nil && !timedOut(answered.dst) && answered.flow.parts():
		return storage.Done, "" // the client had ended, and closed; upstream only took its leave
	case asked.src == nil && !timedOut(asked.dst) && answered.src != nil && endsTLS(out.last):
		return storage.Done, "" // a server that closes with the client's close_notify unread resets the connection
	case first.clean():
		return second.outcome()
	}
	return first.outcome()
}

// lastKept is how much of the end of a flow is kept: an alert with the longest padding and MAC that is in use.
const lastKept = 80

// endsTLS reports whether a flow that ended so said close_notify: its last record is an alert, or in TLS 1.3, which hides the type, as long as one (RFC 8446,
// sections 5.2 and 6.1: two bytes, the type and a tag of 16). Nothing can follow: where the connection then breaks, no byte of that direction is lost. Closing a
// socket with the peer's own close_notify unread resets it.
func endsTLS(last []byte) bool {
	const alert, data, hidden, header = 21, 23, 2 + 1 + 16, 5
	for i := 0; i+header < len(last); i++ {
		r := last[i:]
		if n := int(r[3])<<8 | int(r[4]); r[1] == 3 && r[2] <= 4 && n == len(r)-header && (r[0] == alert || r[0] == data && n == hidden) {
			return true
		}
	}
	return false
}

// farewell is how many bytes may be left of what a peer sends when it parts: TLS's close_notify, HTTP/2's GOAWAY.
const farewell = 1 << 10

// parts reports whether what src still sends, now that dst takes no more, is a short farewell and then its end, soon.
func (f *flow) parts() bool {
	const soon = time.Second
	f.src.SetReadDeadline(time.Now().Add(soon))
	_, err := io.CopyN(io.Discard, f.src, max(0, farewell-f.lost))
	return errors.Is(err, io.EOF)
}

// outcome names the peer that broke.
func (e end) outcome() (storage.State, string) {
	if e.src != nil {
		return e.flow.from.aborted, e.flow.from.name + " broke the connection: " + innermost(e.src)
	}
	if timedOut(e.dst) {
		return e.flow.to.aborted, e.flow.to.name + " accepted no bytes for too long"
	}
	return e.flow.to.aborted, e.flow.to.name + " broke the connection: " + innermost(e.dst)
}

// largeAfter is how much passes in one direction before large buffers are taken: most tunnels stay small.
const largeAfter = 1 << 20

// run relays until src ends. Every byte is written before it is recorded.
func (f *flow) run(ctx context.Context) end {
	var buf *storage.Buffer
	defer func() {
		if buf != nil {
			buf.Free()
		}
	}()
	var passed int64
	for filled := false; ; {
		switch {
		case buf != nil:
		case filled && passed > largeAfter:
			buf = storage.NewLargeBuffer()
		default:
			buf = storage.NewBuffer()
		}
		n, err := f.src.Read(buf.B)
		filled = n == len(buf.B)
		if n > 0 {
			f.body.Passing(buf.B[:n])
			f.last = append(f.last, buf.B[max(0, n-lastKept):n]...)
			f.last = append(f.last[:0], f.last[max(0, len(f.last)-lastKept):]...)
			f.writes.within(f.stall)
			if _, err := f.dst.Write(buf.B[:n]); err != nil {
				f.lost = int64(n)
				return end{flow: f, dst: err}
			}
			passed += int64(n)
			if worthGiving(buf, n) {
				f.body.Give(buf, n)
				buf = nil
			} else {
				f.body.Write(buf.B[:n])
			}
			f.body.Wait(ctx)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), !errors.Is(err, net.ErrClosed) && endsTLS(f.last):
			dst := f.dst
			if layer, ok := f.src.(*bufferedConn); ok && withoutNotify(layer.Conn) {
				dst = bottom(dst) // nothing tells whether that was all, and nothing shall tell dst
			} else {
				f.body.Complete()
			}
			// Where it fails, dst has closed already: it got all that src sent, and broke nothing.
			if err := closeWrite(dst); timedOut(err) {
				return end{flow: f, dst: err}
			}
			f.ended = true
			return end{flow: f}
		default:
			return end{flow: f, src: err}
		}
	}
}

// closeWrite ends our sending and leaves receiving open: close_notify on TLS (RFC 8446, section 6.1), FIN on TCP.
func closeWrite(c net.Conn) error {
	for {
		switch layer := c.(type) {
		case interface{ CloseWrite() error }:
			return layer.CloseWrite()
		case *conn:
			c = layer.Conn
		case *upstreamConn:
			c = layer.Conn
		case netConner:
			c = layer.NetConn()
		default:
			return c.Close()
		}
	}
}

// goneProbe is how often a peer that has ended its sending is looked at. The system's own keepalive, as often, does the asking.
const goneProbe = 15 * time.Second

// watchGone looks at a peer that has cleanly ended its sending, until the returned function is called, which says whether it is gone; then both connections were
// broken off. Reading cannot tell, because it has met its end already. But a peer that closed its socket, or lost its power, answers keepalive with a reset,
// or not at all (Linux: after 60 s), and the system then fails even a write of no bytes. Without this, a client that closed would hold the tunnel to a silent
// upstream for ever.
func watchGone(ended, other net.Conn, every time.Duration) (isGone func() bool) {
	tcp, ok := bottom(ended).(*net.TCPConn)
	if !ok {
		return func() bool { return false }
	}
	quit, gone := make(chan struct{}), make(chan bool, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				gone <- false
				return
			case <-tick.C:
			}
			if _, err := tcp.Write(nil); err != nil {
				breakOff(other)
				breakOff(ended)
				gone <- true
				return
			}
		}
	}()
	return func() bool {
		close(quit)
		return <-gone
	}
}
