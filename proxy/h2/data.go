package h2

import (
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// data relays a DATA frame, in parts where it is large.
func (r *relay) data(p *peer, fh http2.FrameHeader) error {
	if fh.StreamID == 0 {
		return &protocolError{http2.ErrCodeProtocol, "DATA on stream 0"}
	}
	length, pad := int(fh.Length), -1
	p.fit(length) // its padding with it
	if fh.Flags.Has(http2.FlagDataPadded) {
		if length == 0 {
			return &protocolError{http2.ErrCodeFrameSize, "padded DATA without room for the padding's length"}
		}
		n, err := p.br.ReadByte()
		if err != nil {
			return err
		}
		if pad = int(n); length < 1+pad {
			return &protocolError{http2.ErrCodeProtocol, "padding longer than its frame"}
		}
		length -= 1 + pad
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)

	r.mu.Lock()
	s, ignore, err := r.find(p, fh.Type, fh.StreamID)
	conn := &r.windows[p.side]
	if conn.receive(int64(fh.Length)); err == nil && conn.lent < 0 {
		err = &protocolError{http2.ErrCodeFlowControl, "more DATA than the connection's window"}
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	if s == nil && !ignore { // a stream that one end has reset, and the other does not know yet: its receiver accounts for it
		r.mu.Unlock()
		return r.passData(p, nil, fh.StreamID, length, pad, end)
	}
	if s != nil {
		if code, why := s.misplaced(p); why != "" {
			r.mu.Unlock()
			return r.refuseData(p, s, fh, length+max(pad, 0), code, why)
		}
	}
	if s != nil && s.opened && s.sides[p.side].taken == nil && !s.sides[p.side].gone {
		s.sides[p.side].window.receive(int64(fh.Length))
		s.sides[p.side].window.forward(int64(fh.Length))
		if p.side == Response {
			if n := r.flowed(s, int64(fh.Length)); n > 0 {
				p.w.creditLater(s.ID, n)
			}
		}
		r.mu.Unlock()
		return r.passData(p, s, fh.StreamID, length, pad, end)
	}
	var in *Incoming
	if s != nil {
		in = s.sides[p.side].taken
		w := &s.sides[p.side].window
		if w.receive(int64(fh.Length)); w.lent+r.peers[p.side.other()].initialMax+r.slack(p.side) < 0 {
			r.mu.Unlock()
			return r.refuseData(p, s, fh, length+max(pad, 0), http2.ErrCodeFlowControl, "more DATA than the stream's window")
		}
	}
	r.mu.Unlock()
	return r.takeData(p, s, in, length, pad, end)
}

// misplaced says why DATA of p's has no place on the stream now: its side has ended (RFC 9113, section 5.1), or its response has not begun (section 8.1).
// relay.mu is held.
func (s *Stream) misplaced(p *peer) (code http2.ErrCode, why string) {
	switch {
	case s.sides[p.side].received:
		return http2.ErrCodeStreamClosed, "DATA after END_STREAM"
	case p.party == Upstream && !s.headed:
		return http2.ErrCodeProtocol, "DATA before a response's head"
	}
	return 0, ""
}

// refuseData ends the stream for a DATA frame that its sender must not send, of which rest bytes are unread.
func (r *relay) refuseData(p *peer, s *Stream, fh http2.FrameHeader, rest int, code http2.ErrCode, why string) error {
	r.cut(s, Close{By: p.party, Code: code, Err: fmt.Errorf("%v sent %s", p.party, why)})
	r.repay(nil, p.side, int64(fh.Length))
	_, err := p.br.Discard(rest)
	return err
}

// passData passes DATA on to its receiver, as one frame where it is not large and the receiver's window takes it.
func (r *relay) passData(p *peer, s *Stream, id uint32, length, pad int, end bool) error {
	overhead := 0 // what padding costs of the window
	if pad >= 0 {
		overhead = 1 + pad
	}
	room := p.br.Size() - max(pad, 0)
	for last := false; !last; {
		n := min(length, room)
		last = n == length
		cost := n
		if last {
			cost += overhead
		}
		if got, err := r.awaitCredit(p, cost, n); err != nil {
			return err
		} else if got < cost {
			n, last = min(got, n), false
		}
		whole, padding := n, -1
		if last && pad >= 0 {
			whole, padding = n+pad, pad
		}
		if p.unsent && p.br.Buffered() < whole {
			if err := r.flush(p); err != nil {
				return err
			}
		}
		piece, err := p.run(whole)
		if err != nil {
			return err
		}
		piece = piece[:n]
		length -= n
		if s != nil && n > 0 {
			s.exchange.Passing(p.side, piece)
		}
		if err := r.write(p, func(w *writer) { w.data(id, piece, end && last, padding) }); err != nil {
			return err
		}
		if s != nil && n > 0 && !r.peers[p.side.other()].deaf.Load() {
			if full := s.exchange.Data(p.side, piece); full != nil {
				r.hold(s, p.side, full)
			}
		}
		p.br.Discard(whole)
	}
	if s != nil && end {
		r.received(s, p.side, true)
	}
	return nil
}

// awaitCredit takes cost bytes of the receiver's connection window, or fewer, at most part, where it does not have them. It waits where it has none,
// which is only so when a hook's data has used up credit that the sender was lent.
func (r *relay) awaitCredit(p *peer, cost, part int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.windows[p.side]
	need := int64(cost)
	if part > 0 {
		need = 1
	}
	for w.real < need && !r.dead {
		w.want = true
		if p.unsent {
			r.mu.Unlock()
			err := r.flush(p)
			r.mu.Lock()
			if err != nil {
				return 0, err
			}
			continue
		}
		r.credit.Wait()
	}
	if w.want {
		w.want = false
		r.credit.Broadcast()
	}
	if int64(cost) > w.real && !r.dead {
		cost = int(min(int64(part), w.real))
	}
	w.forward(int64(cost))
	return cost, nil
}

// takeData gives DATA to who took the side over, or drops it (in is nil).
func (r *relay) takeData(p *peer, s *Stream, in *Incoming, length, pad int, end bool) error {
	overhead := int64(0)
	if pad >= 0 {
		overhead = int64(1 + pad)
	}
	for length > 0 {
		n := min(length, p.br.Size())
		piece, err := p.run(n)
		if err != nil {
			return err
		}
		length -= n
		if in == nil || !in.put(piece) {
			r.repay(nil, p.side, int64(n))
		}
		p.br.Discard(n)
	}
	if _, err := p.br.Discard(max(pad, 0)); err != nil {
		return err
	}
	r.repay(s, p.side, overhead)
	if s != nil && end {
		r.endTaken(s, p.side, in, nil)
	}
	return nil
}

func (r *relay) endTaken(s *Stream, side Side, in *Incoming, trailers []hpack.HeaderField) {
	if in != nil {
		in.finish(trailers)
	}
	r.received(s, side, false)
}

// repay gives the sender of a side credit for n bytes that did not go to its receiver: on the connection, and on the
// stream where that is given and goes on.
func (r *relay) repay(s *Stream, side Side, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return
	}
	w := r.peers[side].w
	r.windows[side].repay(n)
	w.creditLater(0, n)
	if s != nil && !s.over && !s.sides[side].received {
		s.sides[side].window.repay(n)
		w.creditLater(s.ID, n)
	}
}
