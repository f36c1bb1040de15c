package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millpond/storage"
)

const (
	// setupHost is the name under which a client finds the proxy itself, through the proxy. The domain is reserved for private use.
	setupHost = "millpond.internal"
	// checkHost answers as setupHost does. The set-up page loads a picture from it over TLS, to find out whether the device trusts us: a client
	// that does not is no row.
	checkHost = "check." + setupHost
)

// isOwnName reports whether the host, in lower case, is the proxy itself.
func isOwnName(host string) bool { return host == setupHost || host == checkHost }

// listensOn reports whether one of the proxy's listeners has the authority's port.
func (p *Proxy) listensOn(authority string) bool {
	_, port, _ := net.SplitHostPort(authority)
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.listeners {
		if _, own, err := net.SplitHostPort(l.Addr().String()); err == nil && own == port {
			return true
		}
	}
	return false
}

// setup answers a request for the proxy itself, with head in origin form. It is a session only where recorded is given: a program that was told to fetch
// one of our own addresses. It ends the connection: what a person looks at once needs none that stays.
func (h *http1) setup(head *head, body framing, recorded *exchange) bool {
	x := &exchange{client: h.c.under, in: offer{head: head, length: body.known()}}
	x.viewRequest(context.WithValue(h.ctx, http.LocalAddrContextKey, h.c.under.raw.LocalAddr()), setupHost)
	r := x.req
	r.URL.Scheme, r.URL.Host = "", "" // as a server has it
	r.Body = io.NopCloser(newBodyReader(h.c.r, body, h.p.cfg.Limits.Head))
	h.c.reads.within(h.p.cfg.Limits.HeadTime)
	w := &setupWriter{h: h, header: http.Header{}, method: head.method}
	if recorded != nil {
		w.rec = recorded.rec
	}
	handler := h.p.cfg.Setup
	if handler == nil {
		handler = http.HandlerFunc(setupText)
	}
	handler.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	if recorded != nil {
		w.rec.Body(storage.Response).Complete()
		recorded.end(storage.Done, "")
	}
	lingerClose(h.c)
	return false
}

func setupText(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "This is Millpond, a capture proxy. Set it as the HTTP proxy of your device or program, and it will relay and record what they fetch.")
}

// setupWriter is an http.ResponseWriter for an answer that the connection's end ends.
type setupWriter struct {
	h      *http1
	header http.Header
	method string
	rec    *storage.Recording
	begun  bool
}

func (w *setupWriter) Header() http.Header { return w.header }

// WriteHeader sends the head, once.
func (w *setupWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.header.Set("Connection", "close")
	h := &head{proto: "HTTP/1.1", eol: "\r\n", status: status}
	var fields []field
	for name, values := range w.header {
		for _, v := range values {
			fields = append(fields, field{name: name, value: v})
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	h = h.with("HTTP/1.1 "+strconv.Itoa(status)+" "+http.StatusText(status), fields)
	if w.rec != nil {
		media := w.header.Get("Content-Type")
		w.rec.Change(func(s *storage.Session) {
			s.Status, s.ContentType = status, media
			s.Timing.ResponseHead = time.Now()
			s.Sides[storage.Response].Head = h.raw
			s.SetFlag(storage.FlagAnswered)
		})
	}
	w.h.c.writes.within(w.h.p.cfg.Limits.StallTime)
	w.h.c.Write(h.raw)
}

func (w *setupWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.method == http.MethodHead {
		return len(p), nil
	}
	w.h.c.writes.within(w.h.p.cfg.Limits.StallTime)
	n, err := w.h.c.Write(p)
	if w.rec != nil {
		w.rec.Body(storage.Response).Write(p[:n])
	}
	return n, err
}
