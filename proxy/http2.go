package proxy

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/proxy/h2"
	"millpond/storage"
)

// http2Conn joins the streams of one relayed HTTP/2 connection to the pipeline and the recording.
type http2Conn struct {
	p       *Proxy
	c       *client
	o       *origin
	ctx     context.Context // ends with the connection
	stop    context.Context // ends where Millpond ends it
	used    atomic.Bool     // a stream was sent to upstream
	open    atomic.Int64    // streams
	seen    bool            // there was a stream; belongs to the goroutine that reads the client
	reused  *upstreamConn
	facts   http2Facts
	refused refused
	work    sync.WaitGroup // what goes on beside the relay: modifiers that take their time, bodies of theirs
}

// serveHTTP2 relays an HTTP/2 connection inside a tunnel until it ends. It closes c and o's connection. There is no time limit on silence: PING, upstream's own
// limit and TCP keepalive end what is dead.
func (p *Proxy) serveHTTP2(ctx context.Context, c *conn, o *origin) {
	stop := ctx
	ctx, cancel := context.WithCancel(ctx)
	hc := &http2Conn{p: p, c: c.under, o: o, ctx: ctx, stop: stop, reused: &upstreamConn{addr: o.up.addr, tls: o.up.tls, via: o.up.via, used: true}}
	started := time.Now()
	hc.c.idle.Store(true)
	err := h2.Relay(ctx, h2.Config{
		Client:   h2.Conn{Conn: c.Conn, Reader: c.r},
		Upstream: h2.Conn{Conn: o.up.Conn, Reader: o.up.r},
		Handler:  hc, MaxList: p.cfg.Limits.Head, StallTime: p.cfg.Limits.StallTime, SettingsTime: p.cfg.Limits.DialTime, Drain: p.closed,
		Stalled: p.cfg.Store.Stalled,
	})
	hc.c.idle.Store(false)
	stopped := stop.Err() != nil
	cancel()
	hc.work.Wait()
	hc.refused.end()
	var end *h2.StreamError
	if errors.As(err, &end) && !hc.seen && !stopped && (end.Close.By == h2.Upstream || end.Close.Code != http2.ErrCodeNo) {
		s := hc.session(started) // no stream tells of it
		s.TLS, s.Upstream = o.tls, o.up.addr
		begun := hc.facts.begun(0)
		s.HTTP2 = hc.facts.ended(&begun, h2.Close{})
		p.record(s, storage.Failed, err.Error())
	}
}

// session is what is known of every stream.
func (hc *http2Conn) session(started time.Time) storage.Session {
	o := hc.o
	s := storage.Session{
		Client: hc.c.addr, Scheme: o.scheme, Host: withoutPort(o.authority, o.scheme), Protocol: "HTTP/2", TLS: o.tls,
		Timing: storage.Timing{Started: started},
	}
	s.Sides[storage.Request].Framing = storage.FramingHTTP2
	if hc.c.reverse != nil {
		s.SetFlag(storage.FlagReverse)
	}
	return s
}

// describe fills in what a request's head tells.
func (hc *http2Conn) describe(s *storage.Session, h *head) {
	s.Method, s.Path = h.method, h.target
	if hc.c.reverse != nil {
		return // upstream's name is the host
	}
	authority, ok := h.value(":authority")
	if !ok {
		authority, ok = h.value("Host")
	}
	if !ok || authority == "" {
		return
	}
	s.Host = withoutPort(authority, s.Scheme)
	if !sameHost(authority, hc.o.authority, hc.o.scheme) {
		s.SetFlag(storage.FlagHostDiffers)
	}
}

// Open implements h2.Handler.
func (hc *http2Conn) Open(s *h2.Stream) h2.Exchange {
	hc.seen = true
	if hc.open.Add(1) == 1 {
		hc.c.idle.Store(false)
	}
	e := &http2Stream{hc: hc, stream: s, ctx: hc.ctx}
	e.toClient.owed.Store(-1)
	return e
}

// upstream returns the connection as the session is to describe it: how it was made stands on the first stream's.
func (hc *http2Conn) upstream() *upstreamConn {
	if hc.used.Swap(true) {
		return hc.reused
	}
	return hc.o.up
}

// http2Stream is the h2.Exchange of one stream: it offers the heads to the pipeline and records what passes. What modifiers
// make of a stream beyond its fields is in http2modified.go.
type http2Stream struct {
	hc     *http2Conn
	stream *h2.Stream
	ctx    context.Context
	cancel context.CancelFunc // nil where no modifier could wait for it
	early  int                // bytes of 1xx heads; belongs to the goroutine that reads upstream
	facts  storage.HTTP2      // as the session began with

	toClient delivery

	mu     sync.Mutex
	x      *exchange // nil until the request passed the pipeline; used by one goroutine at a time
	busy   int       // uses of x that go on
	ended  bool      // x was
	closed *h2.Close
	failed string // why the proxy itself answered
	sentAt time.Time
	sent   [2]bool
	expect bool // the client waits for 100 before it sends its body
	bodies [2]*storage.BodyWriter
}

// Head implements h2.Exchange.
func (e *http2Stream) Head(side h2.Side, h *h2.Head) {
	switch {
	case side == h2.Request:
		e.request(h)
	case h.Informational:
		e.informational(newHead2(fromHPACK(h.Fields)))
	default:
		e.response(h)
	}
}

func (e *http2Stream) request(h *h2.Head) {
	s := e.hc.session(time.Now())
	e.facts = e.hc.facts.begun(e.stream.ID)
	s.HTTP2 = &e.facts
	head := newHead2(fromHPACK(h.Fields))
	e.hc.describe(&s, head)
	if expect, ok := head.value("Expect"); ok && expect == "100-continue" {
		e.expect = true
	}
	o := offer{head: head, length: bodyLength(head, h.End), framing: storage.FramingHTTP2}
	if to := e.hc.c.reverse; to != nil {
		o.head = to.headHTTP2(head)
		h.Fields = toHPACK(o.head.fields)
		if !bytes.Equal(o.head.raw, head.raw) {
			o.received = head.raw
		}
	}
	e.use()
	if e.hc.p.cfg.RequestModifier == nil {
		defer e.release()
		x, v := e.hc.p.begin(e.ctx, e.hc.c, s, e.hc.o.authority, o)
		e.begun(x)
		e.sendRequest(v, h, nil)
		return
	}
	e.ctx, e.cancel = context.WithCancel(e.ctx)
	body := &heldBody{e: e, side: h2.Request}
	if !h.End {
		o.body, o.trailers = body, body.trailers
	}
	e.offer(body, func() verdict {
		x, v := e.hc.p.begin(e.ctx, e.hc.c, s, e.hc.o.authority, o)
		e.begun(x)
		return v
	}, func(v verdict, inTurn bool) {
		if !inTurn {
			h = nil
		}
		e.sendRequest(v, h, body)
	})
}

func (e *http2Stream) begun(x *exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.x = x
	e.bodies = [2]*storage.BodyWriter{x.rec.Body(storage.Request), x.rec.Body(storage.Response)}
}

func (e *http2Stream) response(h *h2.Head) {
	if !e.use() {
		return // the client has reset the stream: this passes as it is
	}
	head := newHead2(fromHPACK(h.Fields))
	o := offer{head: head, length: bodyLength(head, h.End), framing: storage.FramingHTTP2}
	if e.hc.p.cfg.ResponseModifier == nil {
		defer e.release()
		e.sendResponse(e.x.response(o), h, nil)
		return
	}
	body := &heldBody{e: e, side: h2.Response}
	if !h.End {
		o.body, o.trailers = body, body.trailers
	}
	e.offer(body, func() verdict { return e.x.response(o) }, func(v verdict, inTurn bool) {
		if !inTurn {
			h = nil
		}
		e.sendResponse(v, h, body)
	})
}

// use keeps the exchange from being ended until release. It reports false where that has happened.
func (e *http2Stream) use() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.busy++
	if e.x != nil {
		e.x.requestSent = e.sentAt
	}
	return true
}

// release gives up a use of the exchange.
func (e *http2Stream) release() {
	e.mu.Lock()
	e.busy--
	e.mu.Unlock()
	e.finish()
}

// informational records a 1xx head: of an endless row of them, the first.
func (e *http2Stream) informational(h *head) {
	if e.early += len(h.raw); e.early <= e.hc.p.cfg.Limits.Head {
		e.x.informational(h)
	}
}

// Passing implements h2.Exchange.
func (e *http2Stream) Passing(side h2.Side, p []byte) {
	if side == h2.Response {
		e.toClient.passing.Add(int64(len(p)))
	}
	e.bodies[side].Passing(p)
}

// Data implements h2.Exchange.
func (e *http2Stream) Data(side h2.Side, p []byte) <-chan struct{} {
	w := e.bodies[side]
	w.Write(p)
	if side == h2.Response {
		e.passed(len(p))
	}
	w.Brim(e.ctx)
	return w.Full()
}

// Trailers implements h2.Exchange.
func (e *http2Stream) Trailers(side h2.Side, h *h2.Head) {
	e.x.trailers(storage.Side(side), h2.Text(h.Fields))
}

// Sent implements h2.Exchange.
func (e *http2Stream) Sent(side h2.Side) {
	e.mu.Lock()
	e.sent[side] = true
	if side == h2.Request {
		e.sentAt = time.Now()
	}
	w := e.bodies[side]
	e.mu.Unlock()
	w.Complete()
}

// Closed implements h2.Exchange.
func (e *http2Stream) Closed(c h2.Close) {
	if e.hc.open.Add(-1) == 0 {
		e.hc.c.idle.Store(true)
	}
	if e.cancel != nil {
		e.cancel()
	}
	e.mu.Lock()
	e.closed = &c
	if !e.ended && satisfied(&c) {
		e.awaitBooking()
	}
	e.mu.Unlock()
	e.finish()
}

// finish ends the exchange once the stream is closed and nobody uses it.
func (e *http2Stream) finish() {
	e.mu.Lock()
	if e.busy > 0 || e.closed == nil || e.ended {
		e.mu.Unlock()
		return
	}
	e.ended = true
	if e.x == nil { // the connection ended before the request was looked at
		e.mu.Unlock()
		return
	}
	e.x.requestSent = e.sentAt
	state, why := e.outcome()
	closed := *e.closed
	e.mu.Unlock()
	if state == storage.Done && e.toClient.whole() {
		e.bodies[h2.Response].Complete()
	}
	if facts := e.hc.facts.ended(&e.facts, closed); facts != &e.facts {
		e.x.rec.Change(func(s *storage.Session) { s.HTTP2 = facts })
	}
	e.x.end(state, why)
}

// outcome says how the stream ended. A response that came whole is an answer, also where upstream then wanted no more
// of the request (RFC 9113, section 8.1) or the client stopped sending it.
func (e *http2Stream) outcome() (storage.State, string) {
	c := e.closed
	sent := e.sent[h2.Response] || satisfied(c) && e.toClient.whole()
	switch {
	case e.failed != "" && sent:
		return storage.Failed, e.failed
	case c.By == h2.Nobody, sent:
		return storage.Done, ""
	case e.hc.stop.Err() != nil:
		return storage.Interrupted, "Millpond was stopped"
	case c.By == h2.Client:
		return storage.ClientAborted, c.Err.Error()
	case c.By == h2.Upstream:
		return storage.UpstreamAborted, c.Err.Error()
	}
	var early *h2.StreamError
	if errors.As(c.Err, &early) { // a body that a modifier passed on broke off
		c = &early.Close
		if c.By == h2.Client {
			return storage.ClientAborted, c.Err.Error()
		}
	}
	return storage.UpstreamAborted, c.Err.Error()
}

// bodyLength is a body's length as its head tells it, 0 for none, -1 for unknown.
func bodyLength(h *head, none bool) int64 {
	if none {
		return 0
	}
	text, _ := h.value("Content-Length")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

func fromHPACK(list []hpack.HeaderField) []field {
	fields := make([]field, len(list))
	for i, f := range list {
		fields[i] = field{name: f.Name, value: f.Value, sensitive: f.Sensitive}
	}
	return fields
}

func toHPACK(fields []field) []hpack.HeaderField {
	list := make([]hpack.HeaderField, len(fields))
	for i, f := range fields {
		list[i] = hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: f.sensitive}
	}
	return list
}
