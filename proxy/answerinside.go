package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millpond/storage"
)

// answerInside answers the request that a client sends inside TLS with the reason why there is no upstream, and records what the client got: the session,
// which begins as s, the CONNECT, becomes that request's. A client that asks nothing leaves it a failed CONNECT.
func (p *Proxy) answerInside(ctx context.Context, c *conn, tc *tls.Conn, s storage.Session, e *upstreamError) {
	rec := p.cfg.Store.Begin(s)
	defer rec.End(storage.Failed, e.reason) // where no request came
	if tc.ConnectionState().NegotiatedProtocol == "h2" {
		p.answerHTTP2(tc, rec, s, e)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &http1{p: p, c: c, inside: &origin{scheme: "https", authority: s.Host, tls: s.TLS}, ctx: ctx, cancel: cancel}
	defer c.Close()
	c.reads.within(p.cfg.Limits.HeadTime)
	if _, err := c.r.Peek(1); err != nil {
		return
	}
	raw, started, err := h.readRequest()
	if err != nil {
		return
	}
	asked, method := asInside(s, started), ""
	asked.Sides[storage.Request].Head = shortened(raw)
	if head, err := parseRequestHead(raw); err == nil {
		method = head.method
		asked.Method, asked.Protocol, asked.Path = method, head.proto, head.target
		asked.Sides[storage.Request].Head = raw
	}
	rec.Change(func(now *storage.Session) { *now = asked })
	h.say(rec, method, e.status, e.reason, storage.Failed)
}

// asInside is s, the session of a CONNECT, as that of a request inside, of which nothing is known but when it began.
func asInside(s storage.Session, started time.Time) storage.Session {
	if s.Scheme != "http" { // a listener in reverse mode has its upstream's
		s.Scheme = "https"
	}
	s.Method, s.Host, s.Protocol, s.Status = "", withoutPort(s.Host, s.Scheme), "HTTP/1.1", 0
	s.Timing.Started = started
	s.Sides = [2]storage.Message{}
	return s
}

// answerHTTP2 is answerInside for a client that offered nothing but HTTP/2. net/http does it: nothing here is relayed. c is over TLS, or plain to a listener in reverse mode. The first answer is the session's.
func (p *Proxy) answerHTTP2(c net.Conn, rec *storage.Recording, s storage.Session, e *upstreamError) {
	l := &oneConn{conn: c, closed: make(chan struct{})}
	text := "Millpond: " + e.reason + ".\n"
	srv := http.Server{
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: p.cfg.Limits.HeadTime,
		IdleTimeout:       p.cfg.Limits.HeadTime,
		MaxHeaderBytes:    p.cfg.Limits.Head,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(l.closed)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := newHead2([]field{
				{name: ":status", value: strconv.Itoa(e.status)},
				{name: "content-type", value: "text/plain; charset=utf-8"},
				{name: "x-content-type-options", value: "nosniff"}, // the reason may quote upstream's certificate
				{name: "content-length", value: strconv.Itoa(len(text))},
			})
			for _, f := range answer.fields[1:] {
				w.Header().Set(f.name, f.value)
			}
			w.Header().Set("Connection", "close") // GOAWAY
			w.WriteHeader(e.status)
			fmt.Fprint(w, text)
			asked := asInside(s, time.Now())
			asked.Method, asked.Path, asked.Protocol, asked.Status, asked.ContentType = r.Method, r.RequestURI, "HTTP/2", e.status, "text/plain; charset=utf-8"
			asked.Sides[storage.Request].Head, asked.Sides[storage.Request].Framing = headOfHTTP2(r, asked.Scheme).raw, storage.FramingHTTP2
			asked.Sides[storage.Response].Head, asked.Sides[storage.Response].Framing = answer.raw, storage.FramingHTTP2
			rec.Change(func(now *storage.Session) { *now = asked })
			if body := rec.Body(storage.Response); r.Method != http.MethodHead {
				body.Write([]byte(text))
			}
			rec.Body(storage.Response).Complete()
			rec.End(storage.Failed, e.reason)
		}),
	}
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	srv.Serve(l) // returns when the connection is closed
}

// headOfHTTP2 is a request's head as net/http understood it: the fields by name, for their order is lost.
func headOfHTTP2(r *http.Request, scheme string) *head {
	fields := []field{
		{name: ":method", value: r.Method},
		{name: ":scheme", value: scheme},
		{name: ":authority", value: r.Host},
		{name: ":path", value: r.RequestURI},
	}
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range r.Header[name] {
			fields = append(fields, field{name: strings.ToLower(name), value: value})
		}
	}
	return newHead2(fields)
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn // nil once accepted
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
