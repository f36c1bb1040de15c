package h2

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Stream is one stream of a relayed connection. A hook that changes no more than fields needs none of its methods.
type Stream struct {
	ID uint32

	r        *relay
	exchange Exchange
	headed   bool // the final response's head came; belongs to upstream's reader

	// guarded by relay.mu
	opened bool // upstream saw it
	over   bool
	done   chan struct{} // closed when over; nil until somebody waits
	held   int           // bytes of its field lists, see maxHeld
	sides  [2]side

	width, narrowFlow int64 // see narrow.go: what the response may be lent, and bytes of it since that grew
}

// side is one direction of a stream.
type side struct {
	window   window
	received bool      // the sender ended it
	sent     bool      // its end was written to the receiver
	gone     bool      // the receiver wants no more of it
	taken    *Incoming // who takes what the sender sends, where that is not the receiver
}

// end tells those concerned that the stream is over. It was removed.
func (s *Stream) end(c Close) {
	s.giveUp(c)
	s.exchange.Closed(c)
}

// giveUp ends what hooks read of the stream.
func (s *Stream) giveUp(c Close) {
	for i := range s.sides {
		if in := s.sides[i].taken; in != nil {
			in.fail(c)
		}
	}
}

// remove forgets a stream. byUs says that we ended it, not one of its ends. relay.mu is held.
func (r *relay) remove(s *Stream, byUs bool) {
	delete(r.streams, s.ID)
	r.held -= s.held
	s.over = true
	if len(r.streams) == 0 && !r.dead && !r.narrowing.on {
		r.tellWindow() // nothing is lent that it could add to
	}
	if s.done != nil {
		close(s.done)
	}
	if byUs || !s.opened || s.sides[Request].taken != nil {
		r.peers[Request].ignored.add(s.ID)
	}
	if byUs || s.sides[Response].taken != nil {
		r.peers[Response].ignored.add(s.ID)
	}
	r.credit.Broadcast()
}

// received books that the sender of a side ended it; relayed says that the end was passed on to the receiver too. The exchange is told of that first: once it is
// booked, the other side's end may close the stream.
func (r *relay) received(s *Stream, side Side, relayed bool) {
	if relayed {
		s.exchange.Sent(side)
	}
	r.mu.Lock()
	s.sides[side].received = true
	s.sides[side].sent = s.sides[side].sent || relayed
	r.mu.Unlock()
	r.settle(s)
}

// settle ends a stream that has nothing left to do: all was said, or the response was, and nobody wants the rest.
func (r *relay) settle(s *Stream) {
	r.mu.Lock()
	req, resp := &s.sides[Request], &s.sides[Response]
	if s.over || r.dead || !resp.sent {
		r.mu.Unlock()
		return
	}
	stopClient, stopUpstream := false, false
	switch {
	case req.received && (!s.opened || req.sent && resp.received):
	case s.opened && !resp.received: // a hook sent a response
		if !resp.taken.unwanted() {
			r.mu.Unlock()
			return
		}
		stopClient, stopUpstream = !req.received, true
	case !req.received && (req.gone || req.taken != nil && req.taken.unwanted() && (req.sent || !s.opened)):
		stopClient = true
	default:
		r.mu.Unlock()
		return
	}
	r.remove(s, false)
	r.mu.Unlock()
	var c Close
	if stopUpstream {
		c.Reset, c.Code = Proxy, http2.ErrCodeCancel
		r.resetLater(Response, s.ID, c.Code)
	}
	if stopClient { // RFC 9113, section 8.1: the response is whole, the rest of the request is not wanted
		c.Reset, c.Code = Proxy, http2.ErrCodeNo
		r.resetLater(Request, s.ID, c.Code)
	}
	s.end(c)
}

// resetLater resets a stream towards the peer that sends the side.
func (r *relay) resetLater(side Side, id uint32, code http2.ErrCode) {
	r.answerLater(r.peers[side], func(w *writer) { w.reset(id, code) })
}

func (r *relay) answerLater(p *peer, fn func(*writer)) {
	if err := p.w.later(fn); err != nil {
		r.stop(Close{By: p.party, Code: http2.ErrCodeEnhanceYourCalm, Err: fmt.Errorf("%v: %w", p.party, err)})
	}
}

// cut ends a stream towards both ends.
func (r *relay) cut(s *Stream, c Close) {
	r.mu.Lock()
	if s.over || r.dead {
		r.mu.Unlock()
		return
	}
	r.remove(s, true)
	opened := s.opened
	r.mu.Unlock()
	c.Reset = Proxy
	if opened {
		r.resetLater(Response, s.ID, c.Code)
	}
	r.resetLater(Request, s.ID, c.Code)
	s.end(c)
}

// Reset ends the stream towards both ends, with the code.
func (s *Stream) Reset(code http2.ErrCode, why error) {
	s.r.cut(s, Close{By: Proxy, Code: code, Err: why})
}

// Take makes the caller receive a side in the place of its receiver, who then gets only what is sent with Outgoing. It is to be called
// from Exchange.Head of that side, with a final head. A request that was taken and not sent on is to be answered by Outgoing(Response).
func (s *Stream) Take(side Side) *Incoming {
	in := &Incoming{s: s, side: side, spool: newSpool(s.r.cfg.TempDir)}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.sides[side].taken = in
	s.sides[side].window.kept = true
	return in
}

// Outgoing sends a side that was taken in the place of its sender; also the response to a request that was taken and not sent on.
func (s *Stream) Outgoing(side Side) *Outgoing { return &Outgoing{s: s, side: side} }

// ErrTurn says that a request came too late to be sent on its stream: upstream has seen a later one. RFC 9113, section 5.1.1.
var ErrTurn = errors.New("a later stream was opened")

// open sends the request's head to upstream, which begins the stream there.
func (r *relay) open(s *Stream, fields []hpack.HeaderField, end bool, priority []byte, pad int, flush bool) error {
	up := r.peers[Response]
	up.w.lock()
	r.mu.Lock()
	var err error
	var credit int64
	switch {
	case s.over || r.dead:
		err = errOver
	case s.ID <= r.opened:
		err = ErrTurn
	default:
		r.opened, s.opened = s.ID, true
		s.sides[Request].window.kept = s.sides[Request].taken != nil
		s.sides[Response].window.kept = false
		s.sides[Response].window.lent -= r.narrowing.less
		credit = r.lend(s)
	}
	r.mu.Unlock()
	if err == nil {
		up.w.headers(s.ID, fields, end, priority, pad)
		up.w.windowUpdate(s.ID, credit)
	}
	return errors.Join(err, r.wrote(r.peers[Request], up, up.w.unlock(flush)))
}

var errOver = errors.New("the stream is over")

// pass returns how much credit a stream's sender is to get, and books it as lent. relay.mu is held.
func (r *relay) pass(s *Stream, side Side) int64 {
	if side == Response {
		return r.lend(s)
	}
	return s.sides[side].window.pass(unbounded)
}

// hold withholds a stream's credit from the sender of a side until full is closed. No lock and no other stream is held.
func (r *relay) hold(s *Stream, side Side, full <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &s.sides[side].window
	if w.kept || s.over || r.dead {
		return
	}
	w.kept = true
	if s.done == nil {
		s.done = make(chan struct{})
	}
	s.width, s.narrowFlow = 0, 0
	after := narrowAfter
	if r.cfg.Stalled != nil && r.cfg.Stalled() {
		after = 0
	}
	r.workers.Go(func() {
		lasts := time.NewTimer(after)
		defer lasts.Stop()
		for waiting := true; waiting; {
			select {
			case <-lasts.C:
				if side == Response {
					r.mu.Lock()
					r.narrow()
					r.mu.Unlock()
				}
			case <-full:
				waiting = false
			case <-s.done:
				return
			case <-r.done:
				return
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		w.kept = false
		if n := r.pass(s, side); n > 0 && !s.over {
			r.peers[side].w.creditLater(s.ID, n)
		}
	})
}
