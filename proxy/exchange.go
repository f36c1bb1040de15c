package proxy

import (
	"io"
	"net/http"
	"net/url"
	"time"

	martian "github.com/google/martian/v3"

	"millpond/storage"
)

// exchange is one request and its response on their way through the pipeline, with their recording.
type exchange struct {
	p       *Proxy
	client  *client
	session storage.Session // as it begins
	rec     *storage.Recording

	in, back  offer   // the request and the response as offered
	sent, got verdict // and as they are sent on
	req       *http.Request
	res       *http.Response
	reqBody   *viewBody // nil: the message has none
	resBody   *viewBody
	reqURL    url.URL // of the request as offered
	reqHost   string

	martian         *martian.Context
	unlink          func()
	answered, moved bool

	upstream     *upstreamConn
	requestSent  time.Time
	firstByte    time.Time // of the response; zero over HTTP/2, where heads come whole
	responseHead time.Time
	sentNoted    bool // requestSent is on the recording
	viaNoted     bool // upstream is
}

// record begins the recording, once.
func (x *exchange) record() {
	if x.rec != nil {
		return
	}
	s := x.session
	m := &s.Sides[storage.Request]
	m.Head, m.Framing = x.sent.head.raw, x.framing(x.in, x.sent)
	if x.in.received != nil {
		m.Received = x.in.received
	} else if x.sent.head != x.in.head {
		m.Received = x.in.head.raw
	}
	if x.sent.head != x.in.head || x.sent.body != nil {
		s.SetFlag(storage.FlagModified)
	}
	if x.sent.head.oddName {
		s.SetFlag(storage.FlagOddName)
	}
	if x.moved {
		s.SetFlag(storage.FlagMoved)
	}
	if x.answered {
		s.SetFlag(storage.FlagAnswered)
	}
	x.rec = x.p.cfg.Store.Begin(s)
	x.expectMessages()
}

// via says which connection the request goes out on.
func (x *exchange) via(up *upstreamConn) {
	x.upstream = up
	if !up.used { // else it can wait for the response: one change less
		x.rec.Change(x.noteUpstream)
	}
}

// noteUpstream writes down the connection that serves the exchange.
func (x *exchange) noteUpstream(s *storage.Session) {
	up := x.upstream
	if up == nil || x.viaNoted {
		return
	}
	x.viaNoted = true
	s.Upstream = up.addr
	if up.tls != nil && s.TLS == nil {
		s.TLS = up.tls
	}
	if up.tls != nil && up.tls.UpstreamError != "" {
		s.SetFlag(storage.FlagInsecure)
	}
	if up.via != nil {
		s.SetFlag(storage.FlagUpstreamProxy)
	}
	if up.used {
		s.SetFlag(storage.FlagReused)
		return
	}
	s.Timing.Setup = &up.dialed
}

// wrote says that the request's last byte was written.
func (x *exchange) wrote() { x.requestSent = time.Now() }

// recordResponse writes the response's head to the recording.
func (x *exchange) recordResponse() {
	h := x.got.head
	media, _ := h.value("Content-Type")
	modified := x.got.head != x.back.head || x.got.body != nil
	x.sentNoted = !x.requestSent.IsZero()
	x.rec.Change(func(s *storage.Session) {
		x.noteUpstream(s)
		s.Status, s.ContentType = h.status, media
		s.Timing.RequestSent, s.Timing.FirstByte, s.Timing.ResponseHead = x.requestSent, x.firstByte, x.responseHead
		m := &s.Sides[storage.Response]
		m.Head, m.Framing = h.raw, x.framing(x.back, x.got)
		switch {
		case x.back.received != nil:
			m.Received = x.back.received
		case modified && x.back.head != nil:
			m.Received = x.back.head.raw
		}
		if modified && !x.answered && !x.moved {
			s.SetFlag(storage.FlagModified)
		}
		if h.ambiguous != "" {
			s.SetFlag(storage.FlagAmbiguousFraming)
		}
		if h.oddName {
			s.SetFlag(storage.FlagOddName)
		}
	})
	x.readMessages()
}

// framing is that of a message as it is sent on.
func (x *exchange) framing(o offer, v verdict) storage.Framing {
	switch {
	case v.body == nil:
		return o.framing
	case x.session.Protocol == "HTTP/2":
		return storage.FramingHTTP2
	}
	return newFraming(v).kind.stored()
}

// flag marks the session.
func (x *exchange) flag(flag string) {
	x.rec.Change(func(s *storage.Session) { s.SetFlag(flag) })
}

// informational records a 1xx head that was passed on.
func (x *exchange) informational(h *head) {
	x.rec.Change(func(s *storage.Session) {
		m := &s.Sides[storage.Response]
		m.Informational = append(m.Informational, h.raw)
	})
}

// trailers records the fields that came after a body, in the form of a head without start line.
func (x *exchange) trailers(side storage.Side, raw []byte) {
	x.rec.Change(func(s *storage.Session) { s.Sides[side].Trailers = raw })
}

// chunked records what a chunked body's framing held beside sizes.
func (x *exchange) chunked(side storage.Side, c *chunks) {
	trailers := c.fields()
	if trailers == nil && c.extensions == nil {
		return
	}
	x.rec.Change(func(s *storage.Session) {
		m := &s.Sides[side]
		m.Trailers = trailers
		if c.extensions != nil {
			m.Chunks = &storage.Chunks{Extensions: c.extensions, Cut: c.extensionCut}
		}
	})
}

// end ends the recording and lets go of the views. Every exchange is ended once, when both directions are done.
func (x *exchange) end(state storage.State, why string) {
	if !x.sentNoted && !x.requestSent.IsZero() || !x.viaNoted && x.upstream != nil {
		x.rec.Change(func(s *storage.Session) {
			x.noteUpstream(s)
			s.Timing.RequestSent = x.requestSent
		})
	}
	x.rec.End(state, why)
	x.unlink()
	for _, body := range []io.Closer{x.sent.body, x.got.body} {
		if body != nil {
			body.Close()
		}
	}
}
