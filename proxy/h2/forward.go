package h2

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// find returns the stream that a frame from p belongs to, nil where it is over. ignore says that the frame is not for the
// other side. A frame of a stream that never was is a mistake, and for upstream one that it has not seen never was. RFC 9113, section 5.1. relay.mu is held.
func (r *relay) find(p *peer, t http2.FrameType, id uint32) (s *Stream, ignore bool, err error) {
	last := r.last
	if p.party == Upstream {
		last = r.opened
	}
	switch s = r.streams[id]; {
	case r.dead:
		err = net.ErrClosed
	case id > last, s != nil && !s.opened && p.party == Upstream:
		err = &protocolError{http2.ErrCodeProtocol, fmt.Sprintf("%v on idle stream %d", t, id)}
	case s == nil:
		ignore = p.ignored.has(id)
	}
	return s, ignore, err
}

// windowUpdate passes on the credit that p gives, as the ledger says.
func (r *relay) windowUpdate(p *peer, f *http2.WindowUpdateFrame) error {
	side, n := p.side.other(), int64(f.Increment)
	r.mu.Lock()
	if f.StreamID == 0 {
		r.windows[side].grant(n)
		n = r.windows[side].pass(unbounded)
	} else {
		s, ignore, err := r.find(p, f.Type, f.StreamID)
		if err != nil || ignore {
			r.mu.Unlock()
			return err
		}
		if s != nil {
			s.sides[side].window.grant(n)
			n = r.pass(s, side)
		}
	}
	r.credit.Broadcast()
	r.mu.Unlock()
	if n == 0 {
		return nil
	}
	return r.write(p, func(w *writer) { w.windowUpdate(f.StreamID, n) })
}

// reset passes on RST_STREAM, with its code.
func (r *relay) reset(p *peer, f *http2.RSTStreamFrame) error {
	r.mu.Lock()
	s, ignore, err := r.find(p, f.Type, f.StreamID)
	if err != nil || ignore {
		r.mu.Unlock()
		return err
	}
	pass := true
	if s != nil {
		resp := &s.sides[Response]
		if p.party == Upstream && resp.taken != nil && (resp.received || resp.taken.unwanted()) {
			// A hook is sending a response, and needs nothing more from upstream.
			resp.received, s.sides[Request].gone = true, true
			r.mu.Unlock()
			r.settle(s)
			return nil
		}
		pass = s.opened
		r.remove(s, false)
	}
	r.mu.Unlock()
	if pass {
		err = r.write(p, func(w *writer) { w.reset(f.StreamID, f.ErrCode) })
	}
	if s != nil {
		s.end(Close{By: p.party, Code: f.ErrCode, Reset: p.party, Err: fmt.Errorf("%v reset the stream: %v", p.party, f.ErrCode)})
	}
	return err
}

// fault ends a stream whose sender broke a rule that concerns this stream alone.
func (r *relay) fault(p *peer, e http2.StreamError) error {
	r.mu.Lock()
	s, _, err := r.find(p, http2.FrameWindowUpdate, e.StreamID)
	r.mu.Unlock()
	if s != nil {
		r.cut(s, Close{By: p.party, Code: e.Code, Err: fmt.Errorf("%v broke HTTP/2: %w", p.party, e)})
	}
	return err
}

// headers relays a field list: a request's, an informational or final response's, or trailers.
func (r *relay) headers(p *peer, f *http2.HeadersFrame) error {
	fh, pad := f.FrameHeader, -1
	var prio []byte
	if fh.Flags.Has(http2.FlagHeadersPadded) {
		pad = int(fh.Length) - len(f.HeaderBlockFragment()) - 1
	}
	if f.HasPriority() {
		prio = priority(f.Priority)
		pad = max(-1, pad-len(prio))
	}
	fields, long, err := p.lists.read(p.framer, f)
	if err != nil {
		return err
	}
	p.head = Head{Fields: fields, End: fh.Flags.Has(http2.FlagHeadersEndStream)}
	h := &p.head
	if p.lists.excess > unfoldBurst {
		return r.unfolded(p, fh.StreamID, h)
	}
	bad := malformed(fields)

	r.mu.Lock()
	if p.party == Client && fh.StreamID > r.last && !r.dead {
		r.last = fh.StreamID
		open, drained, crowded := len(r.streams), r.drained, r.crowded(nil)
		if drained {
			p.ignored.add(fh.StreamID)
		}
		r.mu.Unlock()
		switch {
		case drained:
			return nil
		case long:
			return r.refuse(p, fh.StreamID, h, fmt.Sprintf("request fields beyond %d bytes", r.cfg.MaxList), tooLarge)
		case open >= r.cfg.MaxStreams:
			return r.refuse(p, fh.StreamID, h, fmt.Sprintf("more than %d streams open", r.cfg.MaxStreams), nil)
		case crowded:
			return r.refuseCrowded(p, fh.StreamID, h)
		case bad != "":
			return r.malformed(p, fh.StreamID, h, fmt.Sprintf("%v sent %s", p.party, bad))
		}
		return r.request(fh.StreamID, h, p.lists.size, prio, pad)
	}
	s, ignore, err := r.find(p, fh.Type, fh.StreamID)
	ended := s != nil && s.sides[p.side].received
	crowded := s != nil && r.crowded(s)
	if s != nil {
		r.keep(s, p.lists.size)
	}
	r.mu.Unlock()
	if err != nil || ignore {
		return err
	}
	if ended { // RFC 9113, section 5.1
		r.cut(s, Close{By: p.party, Code: http2.ErrCodeStreamClosed, Err: fmt.Errorf("%v sent HEADERS after END_STREAM", p.party)})
		return nil
	}
	if long {
		if s != nil {
			r.cut(s, Close{By: p.party, Code: http2.ErrCodeEnhanceYourCalm, Err: fmt.Errorf("%v sent fields beyond %d bytes", p.party, r.cfg.MaxList)})
		}
		return nil
	}
	if crowded {
		r.cut(s, Close{By: p.party, Code: http2.ErrCodeEnhanceYourCalm, Err: fmt.Errorf("%v sent fields while those of the other open streams are beyond %d bytes", p.party, 2*maxHeld)})
		return nil
	}
	if bad != "" {
		if s != nil {
			r.cut(s, Close{By: p.party, Code: http2.ErrCodeProtocol, Err: fmt.Errorf("%v sent %s", p.party, bad)})
		}
		return nil
	}
	if s == nil {
		return r.write(p, func(w *writer) { w.headers(fh.StreamID, h.Fields, h.End, prio, pad) })
	}
	if p.party == Upstream && !s.headed {
		code := h.Status()
		h.Informational = code >= 100 && code < 200 && code != 101 && !h.End
		s.headed = !h.Informational
		s.exchange.Head(p.side, h)
	} else if !r.isTaken(s, p.side) {
		s.exchange.Trailers(p.side, h)
	}
	return r.passFields(p, s, h, prio, pad)
}

func (r *relay) isTaken(s *Stream, side Side) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.sides[side].taken != nil
}

// request begins a stream. size is that of its fields.
func (r *relay) request(id uint32, h *Head, size int, priority []byte, pad int) error {
	s := &Stream{ID: id, r: r}
	s.sides[Request].window.kept, s.sides[Response].window.kept = true, true // until upstream sees it
	s.exchange = r.cfg.Handler.Open(s)
	r.mu.Lock()
	dead := r.dead
	if !dead {
		r.streams[id] = s
		r.keep(s, size)
	}
	r.mu.Unlock()
	if dead {
		s.end(r.cause)
		return net.ErrClosed
	}
	s.exchange.Head(Request, h)

	r.mu.Lock()
	in, over := s.sides[Request].taken, s.over
	r.mu.Unlock()
	switch {
	case over:
		return nil
	case in != nil:
		if h.End {
			r.endTaken(s, Request, in, nil)
		}
		return nil
	}
	if err := r.open(s, h.Fields, h.End, priority, pad, false); err != nil {
		return err
	}
	r.peers[Request].unsent = true
	if h.End {
		r.received(s, Request, true)
	}
	return nil
}

// passFields passes on a list of a stream that upstream saw.
func (r *relay) passFields(p *peer, s *Stream, h *Head, prio []byte, pad int) error {
	r.mu.Lock()
	in, over, gone := s.sides[p.side].taken, s.over, s.sides[p.side].gone
	r.mu.Unlock()
	if over {
		return nil
	}
	if in != nil || gone {
		if h.End {
			var trailers []hpack.HeaderField
			if p.party == Client || s.headed && status(h.Fields) == 0 {
				trailers = append(trailers, h.Fields...)
			}
			r.endTaken(s, p.side, in, trailers)
		}
		return nil
	}
	if err := r.write(p, func(w *writer) { w.headers(s.ID, h.Fields, h.End, prio, pad) }); err != nil {
		return err
	}
	if h.End {
		r.received(s, p.side, true)
	}
	return nil
}

// tooLarge answers a request whose fields are more than a relay keeps. RFC 6585, section 5.
var tooLarge = []hpack.HeaderField{{Name: ":status", Value: "431"}, {Name: "content-length", Value: "0"}}

// refuse answers a request without a stream: with the fields, or with REFUSED_STREAM where there are none.
func (r *relay) refuse(p *peer, id uint32, h *Head, why string, answer []hpack.HeaderField) error {
	c := Close{By: Proxy, Err: errors.New(why)}
	switch {
	case answer == nil:
		c.Code, c.Reset = http2.ErrCodeRefusedStream, Proxy
	case !h.End:
		c.Code, c.Reset = http2.ErrCodeNo, Proxy
	}
	r.refused(p, id, h, c)
	r.answerLater(p, func(w *writer) {
		if answer == nil {
			w.reset(id, c.Code)
			return
		}
		w.headers(id, answer, true, nil, -1)
		if c.Reset == Proxy {
			w.reset(id, c.Code)
		}
	})
	return nil
}

// malformed resets a request that must not be passed on. RFC 9113, section 8.1.1.
func (r *relay) malformed(p *peer, id uint32, h *Head, why string) error {
	r.refused(p, id, h, Close{By: p.party, Code: http2.ErrCodeProtocol, Reset: Proxy, Err: errors.New(why)})
	r.answerLater(p, func(w *writer) { w.reset(id, http2.ErrCodeProtocol) })
	return nil
}

// unfolded is the end of a connection one of whose peers has used up unfoldBurst. Open streams tell of it; a request that is none yet does, and whatever it is where
// nothing is open.
func (r *relay) unfolded(p *peer, id uint32, h *Head) error {
	err := &protocolError{http2.ErrCodeEnhanceYourCalm, fmt.Sprintf("compressed fields that unfold to over %d bytes beyond %d each and %d times what was sent", unfoldBurst, tableSize, unfoldRatio)}
	r.mu.Lock()
	tells := len(r.streams) == 0 || p.party == Client && id > r.last
	r.mu.Unlock()
	if tells {
		r.refused(p, id, h, r.explain(p, err))
	}
	return err
}

// refusedBytes is how much is told of the fields of a request that was refused.
const refusedBytes = 4 << 10

func (r *relay) refused(p *peer, id uint32, h *Head, c Close) {
	r.mu.Lock()
	p.ignored.add(id)
	r.mu.Unlock()
	r.cfg.Handler.Refused(id, Legible(beginning(h.Fields, refusedBytes)), c)
}
