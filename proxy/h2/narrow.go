package h2

import (
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/net/http2"
)

// Clients grant megabytes of credit for each stream, and upstream sends what was granted whatever is withheld afterwards. So where a response's recording
// stays full, upstream is told a small initial window: that takes back what it was granted, on all streams at once and below zero where it has to
// (RFC 9113, sections 6.9.2 and 6.9.3). The client knows nothing of this. From then on credit is lent in small windows, and grows again for a stream that is not held;
// once none was held for a while, all that the client grants is lent again, by WINDOW_UPDATE. Upstream is told the client's own window only while no stream is
// open: it would add the difference to what each stream was lent meanwhile, and so to more than the client takes.
const (
	narrowWindow = 64 << 10              // bytes that a stream may be lent at first
	narrowGrowth = 32                    // of its windows that a stream takes until it is lent twice as much. What all are lent stays small against what all may hold
	narrowAfter  = 15 * time.Millisecond // how long a recording is full until that is more than a busy disk
	narrowTime   = 10 * time.Second      // without a hold that lasts, until upstream may have all again
)

// unbounded is no bound on what is lent.
const unbounded = math.MaxInt64

// narrowing is what upstream is told of the client's initial window. relay.mu guards it.
type narrowing struct {
	on    bool
	since time.Time // of the last hold that lasted
	less  int64     // the client's initial window less what upstream was told; 0 where that is the client's own
	due   bool      // SETTINGS of ours wait in upstream's writer

	// Acknowledgements of SETTINGS come in their order. RFC 9113, section 6.5.3.
	passed int // the client's SETTINGS that upstream has not acknowledged
	ours   int // how many of those were before ours; -1: ours are not on their way
}

// narrow lends upstream less, after a hold that lasts. relay.mu is held.
func (r *relay) narrow() {
	d := &r.narrowing
	d.on, d.since = true, time.Now()
	r.tellWindow()
}

// wireWindow is what upstream's initial window is to be. relay.mu is held.
func (r *relay) wireWindow() int64 {
	initial, d := r.peers[Request].initial, &r.narrowing
	switch {
	case d.on:
		return min(initial, narrowWindow)
	case len(r.streams) > 0:
		return max(initial-d.less, 0)
	}
	return initial
}

// tellWindow has upstream told its initial window, where it knows another: soon, as the goroutine that reads upstream must not wait for it. Until it has
// acknowledged, nothing more is told. relay.mu is held.
func (r *relay) tellWindow() {
	d := &r.narrowing
	if d.due || d.ours >= 0 || d.less == r.peers[Request].initial-r.wireWindow() {
		return
	}
	d.due = true
	r.answerLater(r.peers[Response], func(w *writer) {
		r.mu.Lock()
		defer r.mu.Unlock()
		d.due, d.ours = false, d.passed
		r.bookWindow()
		payload := binary.BigEndian.AppendUint16(nil, uint16(http2.SettingInitialWindowSize))
		w.raw(http2.FrameSettings, 0, 0, binary.BigEndian.AppendUint32(payload, uint32(r.wireWindow())))
	})
	r.lendAll()
}

// lendAll lends each stream soon what it may have. relay.mu is held.
func (r *relay) lendAll() {
	r.answerLater(r.peers[Response], func(w *writer) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for id, s := range r.streams {
			if s.opened {
				w.windowUpdate(id, r.lend(s))
			}
		}
	})
}

// bookWindow books that upstream is told its initial window, as it is to be: each stream that it knows has so much less. relay.mu and upstream's writer
// are held.
func (r *relay) bookWindow() {
	less := r.peers[Request].initial - r.wireWindow()
	for _, s := range r.streams {
		if s.opened {
			s.sides[Response].window.lent -= less - r.narrowing.less
		}
	}
	r.narrowing.less = less
}

// passSettings books that SETTINGS of the client's are passed on, and puts into the payload what upstream is told for an initial window.
// Upstream's writer is held.
func (r *relay) passSettings(payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.narrowing.passed++
	for at := 0; at+6 <= len(payload); at += 6 {
		if binary.BigEndian.Uint16(payload[at:]) == uint16(http2.SettingInitialWindowSize) {
			r.bookWindow()
			binary.BigEndian.PutUint32(payload[at+2:], uint32(r.wireWindow()))
		}
	}
}

// acknowledged books upstream's acknowledgement of SETTINGS, and reports whether they were the client's.
func (r *relay) acknowledged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &r.narrowing
	if d.ours == 0 {
		d.ours = -1
		r.tellWindow()
		return false
	}
	d.passed = max(d.passed-1, 0)
	if d.ours > 0 {
		d.ours--
	}
	return true
}

// lend returns how much credit upstream is to get for a stream's response, and books it as lent. relay.mu is held.
func (r *relay) lend(s *Stream) int64 {
	most := int64(unbounded)
	if r.narrowing.on {
		most = s.wide() - r.peers[Request].initial
	}
	return s.sides[Response].window.pass(most)
}

// wide is what the stream's response may be lent while it is narrow.
func (s *Stream) wide() int64 { return max(s.width, narrowWindow) }

// flowed returns how much credit upstream is to get for n bytes that it sent of a stream's response while that is narrow: then the client's credit alone does not bring it on. relay.mu is held.
func (r *relay) flowed(s *Stream, n int64) int64 {
	d := &r.narrowing
	if !d.on {
		return 0
	}
	if time.Since(d.since) > r.cfg.narrowTime {
		d.on = false
		r.lendAll()
		return 0
	}
	if s.narrowFlow += n; s.narrowFlow >= narrowGrowth*s.wide() {
		s.width, s.narrowFlow = 2*s.wide(), 0
	}
	if s.sides[Response].window.lent+r.peers[Request].initial > s.wide()/2 {
		return 0
	}
	return r.lend(s)
}

// slack is how much more than it was lent a side's sender may send: credit that was taken back can be in use. RFC 9113, section 6.9.3. relay.mu is held.
func (r *relay) slack(side Side) int64 {
	if side == Response {
		return r.narrowing.less
	}
	return 0
}
