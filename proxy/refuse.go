package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millpond/storage"
)

// ownAnswer renders what the proxy itself says to a client, as an HTTP/1 message that ends its connection. text says what happened and what to do.
func ownAnswer(status int, text string) (h *head, body []byte) {
	body = []byte("Millpond: " + text + "\n")
	h = &head{proto: "HTTP/1.1", eol: "\r\n", status: status}
	return h.with("HTTP/1.1 "+strconv.Itoa(status)+" "+http.StatusText(status), []field{
		{name: "Content-Type", value: "text/plain; charset=utf-8"},
		{name: "X-Content-Type-Options", value: "nosniff"},
		{name: "Content-Length", value: strconv.Itoa(len(body))},
		{name: "Connection", value: "close"},
	}), body
}

// reject answers a request whose head could not be taken, and records what came of it. It returns false, as next does: the connection ends.
func (h *http1) reject(raw []byte, started time.Time, status int, why string) bool {
	s := h.session(started)
	s.Sides[storage.Request].Head = h.shown(raw)
	if bytes.HasPrefix(raw, []byte(http.MethodHead+" ")) {
		s.Method = http.MethodHead
	}
	return h.rejectAs(s, status, why)
}

// rejectAs answers a request that goes nowhere, and records it as s.
func (h *http1) rejectAs(s storage.Session, status int, why string) bool {
	h.say(h.p.cfg.Store.Begin(s), s.Method, status, why, storage.Failed)
	return false
}

// say sends an answer of the proxy's own in place of the response to method, records it, and ends the session and the connection with it.
func (h *http1) say(rec *storage.Recording, method string, status int, why string, state storage.State) {
	answer, body := ownAnswer(status, why+".")
	if method == http.MethodHead { // the head tells the length of what GET would get. RFC 9110, section 9.3.2
		body = nil
	}
	kind := byLength
	if body == nil {
		kind = noBody
	}
	rec.Change(func(s *storage.Session) {
		s.Status, s.ContentType = status, "text/plain; charset=utf-8"
		m := &s.Sides[storage.Response]
		m.Head, m.Framing = answer.raw, kind.stored()
	})
	w := rec.Body(storage.Response)
	w.Write(body)
	w.Complete()
	rec.End(state, why)

	h.leaving.stop()
	h.c.writes.within(h.p.cfg.Limits.HeadTime)
	if _, err := h.c.Write(slices.Concat(answer.raw, body)); err == nil {
		lingerClose(h.c)
	}
}

// shown returns what of a head that was not understood stands on its session.
func (h *http1) shown(raw []byte) []byte {
	return shortened(h.refused(raw))
}

// refused returns what stands on the session of a head that goes nowhere.
func (h *http1) refused(raw []byte) []byte {
	if h.toProxy() {
		raw = hideMentions(raw)
	}
	return raw
}

// shortened returns the beginning of a head that was not understood: enough to see what it was.
func shortened(raw []byte) []byte {
	const most = 8 << 10
	return slices.Clone(raw[:min(len(raw), most)])
}

func size(n int) string {
	if n >= 1<<10 && n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
