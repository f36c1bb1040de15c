package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"millpond/storage"
)

const (
	// watchClientAfter is how long an exchange lasts before its client is watched for leaving.
	watchClientAfter = 250 * time.Millisecond
	// watchUpstreamAfter is how long a connection is idle before it is watched for being closed by upstream.
	watchUpstreamAfter = 50 * time.Millisecond
)

// http1 serves the HTTP/1 requests of one client connection, one exchange after the other.
type http1 struct {
	p      *Proxy
	c      *conn
	inside *origin // the tunnel that the connection is the inside of; nil: it is not
	ctx    context.Context
	cancel context.CancelFunc

	leaving watch     // of the client, while it waits for a response
	kept    upstreams // between exchanges

	mu      sync.Mutex
	gone    bool          // the client left
	current *upstreamConn // what is to be closed when ctx ends

	open *exchange // not ended yet
}

// serveHTTP1 serves a client connection until it ends. o is nil outside of a tunnel. It closes c, and every upstream connection, o's too.
func (p *Proxy) serveHTTP1(ctx context.Context, c *conn, o *origin) {
	ctx, cancel := context.WithCancel(ctx)
	h := &http1{p: p, c: c, inside: o, ctx: ctx, cancel: cancel}
	h.leaving = watch{conn: c.Conn, r: c.r, after: watchClientAfter, ended: h.leave}
	if o != nil {
		h.kept.put(o.scheme, o.authority, o.up)
		h.kept.tunnel = c
	} else if to := c.under.reverse; to != nil && c.under.ahead != nil {
		h.kept.put(to.scheme, to.authority, c.under.ahead)
	}
	stop := context.AfterFunc(ctx, h.closeCurrent)
	defer func() {
		stop()
		cancel()
		h.kept.close()
		c.Close()
		if h.open != nil { // a panic is on its way, which whoever accepted the client logs
			h.closeCurrent()
			h.open.end(storage.Failed, "an error inside Millpond, which its log describes")
		}
	}()
	for h.next() {
		h.kept.rest()
	}
}

// closeCurrent ends the waits for upstream.
func (h *http1) closeCurrent() {
	h.mu.Lock()
	up := h.current
	h.mu.Unlock()
	if up != nil {
		bottom(up).Close() // below TLS: upstream's answer to a close_notify could be the end that the client did not wait for
	}
}

// leave ends what is being done for a client that is no longer there.
func (h *http1) leave() {
	h.mu.Lock()
	h.gone = h.gone || h.ctx.Err() == nil // else it was sent away
	h.mu.Unlock()
	h.cancel()
}

// left reports whether the client left.
func (h *http1) left() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// use makes up the connection that is closed when everything for this client is to end; nil: none.
func (h *http1) use(up *upstreamConn) {
	h.mu.Lock()
	h.current = up
	h.mu.Unlock()
	if up != nil && h.ctx.Err() != nil {
		up.Close()
	}
}

// next serves one request, and reports whether another may follow.
func (h *http1) next() bool {
	raw, started, err := h.readRequest()
	if err == nil {
		return h.serve(raw, started)
	}
	switch {
	case errors.Is(err, errHeadTooLarge):
		h.reject(raw, started, http.StatusRequestHeaderFieldsTooLarge, "the request's head is larger than "+size(h.p.cfg.Limits.Head)+", the most that Millpond takes")
	case timedOut(err) && len(raw) > 0:
		h.reject(raw, started, http.StatusRequestTimeout, "the request's head was not complete after "+h.p.cfg.Limits.HeadTime.String())
	case len(raw) > 0 && h.ctx.Err() == nil:
		s := h.session(started)
		s.Sides[storage.Request].Head = h.shown(raw)
		h.p.record(s, storage.ClientAborted, "the client left in the middle of a request's head")
	}
	return false
}

// readRequest waits for a request and reads its head. started is when its first byte was there.
func (h *http1) readRequest() (raw []byte, started time.Time, err error) {
	c := h.c
	if c.r.Buffered() == 0 {
		c.under.idle.Store(true)
		c.reads.within(h.p.cfg.Limits.IdleTime)
		_, err = c.r.Peek(1)
		c.under.idle.Store(false)
		if err != nil {
			return nil, time.Now(), err
		}
	}
	h.kept.wake()
	started = time.Now()
	if at, _ := c.r.Peek(c.r.Buffered()); headEnd(at, 0) < 0 {
		c.reads.exactly(h.p.cfg.Limits.HeadTime)
		defer c.reads.clear()
	}
	raw, err = readHead(c.r, h.p.cfg.Limits.Head)
	return raw, started, err
}

// session is what is known of a request before its head is understood.
func (h *http1) session(started time.Time) storage.Session {
	s := storage.Session{Client: h.c.client, Scheme: "http", Protocol: "HTTP/1.1", Timing: storage.Timing{Started: started}}
	if o := h.inside; o != nil {
		s.Scheme, s.Host, s.TLS = o.scheme, withoutPort(o.authority, o.scheme), o.tls
	}
	return s
}

// serve decides what a request is, and serves it.
func (h *http1) serve(raw []byte, started time.Time) bool {
	head, err := parseRequestHead(raw)
	if err != nil {
		return h.reject(raw, started, http.StatusBadRequest, err.Error())
	}
	s := h.session(started)
	s.Method, s.Protocol, s.Path = head.method, head.proto, shownTarget(head.target)
	if _, shown := head.value(credentialsField); shown && h.toProxy() {
		raw = hideCredentials(raw)
	}
	body, err := requestFraming(head)
	if err != nil {
		s.SetFlag(storage.FlagAmbiguousFraming)
		s.Sides[storage.Request].Head = h.refused(raw)
		return h.rejectAs(s, http.StatusBadRequest, err.Error()+", so that two programs could read it in two ways")
	}
	r := &request{http1: h, head: head, body: body}
	if h.inside != nil {
		r.target = target{scheme: h.inside.scheme, authority: h.inside.authority, host: s.Host, path: head.target}
		if host, ok := head.value("Host"); ok && !sameHost(host, r.target.authority, r.target.scheme) {
			s.SetFlag(storage.FlagHostDiffers)
		}
		return r.serve(s)
	}
	if to := h.c.under.reverse; to != nil {
		if err := r.reverse(to, &s); err != nil {
			s.Sides[storage.Request].Head = h.refused(raw)
			return h.rejectAs(s, http.StatusBadRequest, err.Error())
		}
		return r.serve(s)
	}
	switch {
	case head.method == http.MethodConnect:
		return h.connect(raw, s, head)
	case strings.HasPrefix(head.target, "/") || head.target == "*":
		return h.setup(head, body, nil)
	}
	if r.target, err = parseAbsolute(head.target); err != nil {
		s.Sides[storage.Request].Head = h.refused(raw)
		return h.rejectAs(s, http.StatusBadRequest, err.Error())
	}
	s.Scheme, s.Host = r.target.scheme, r.target.host
	if host, _, _ := net.SplitHostPort(r.target.authority); isOwnName(strings.ToLower(host)) {
		toSetup, _ := toOrigin(head, r.target)
		return h.setup(toSetup, body, nil)
	}
	if !h.authorized(head) {
		return h.askCredentials(head.method)
	}
	var ok bool
	if r.hops, ok = h.p.hopsIn(head); !ok {
		s.Sides[storage.Request].Head = h.refused(raw)
		return h.rejectAs(s, http.StatusLoopDetected, looped)
	}
	var differs bool
	r.received = raw
	if r.head, differs = toOrigin(head, r.target); differs {
		s.SetFlag(storage.FlagHostDiffers)
	}
	s.Path = r.head.target
	return r.serve(s)
}

// connect hands the connection over to what a CONNECT request makes of it.
func (h *http1) connect(raw []byte, s storage.Session, head *head) bool {
	authority := head.target
	host, port, err := splitAuthority(authority)
	if err != nil {
		s.Sides[storage.Request].Head = h.refused(raw)
		s.Scheme, s.Host, s.Path = "tcp", withoutUserinfo(authority), ""
		return h.rejectAs(s, http.StatusBadRequest, "the target of CONNECT is not a host and a port")
	}
	if !isSetup(host, port) && !h.authorized(head) {
		return h.askCredentials(head.method)
	}
	hops, ok := h.p.hopsIn(head)
	if !ok {
		s.Sides[storage.Request].Head = h.refused(raw)
		s.Scheme, s.Host, s.Path = "tcp", authority, ""
		return h.rejectAs(s, http.StatusLoopDetected, looped)
	}
	h.kept.close()
	h.p.serveConnect(withHops(h.ctx, hops), h.c, raw, authority)
	return false
}
