package h2

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// readSize is how much of a DATA frame is passed on at once at the most, in bytes. A peer's reader has so much once a frame needed it: most
// connections carry their bodies in one direction, and many none that are large.
const readSize = 32 << 10

// maxFrame bounds a frame other than DATA, in bytes; for HEADERS, which are refused without ending the connection, it is what a whole list
// may be. A peer may allow frames up to 16 MiB, but only DATA can be passed on in parts.
const maxFrame = 256 << 10

// peer is one end of the relayed connection. Its fields belong to the goroutine that reads it, but for those named.
type peer struct {
	party   Party
	side    Side // what it sends
	conn    net.Conn
	br      *bufio.Reader
	framer  *http2.Framer
	lists   lists
	w       *writer
	head    Head            // of the list that is being relayed
	crowded int             // requests that were refused for maxHeld
	unsent  bool            // frames read here wait in the other peer's buffer
	away    *Close          // its GOAWAY
	told    []http2.Setting // what Handler.Settings was last given
	deaf    atomic.Bool     // set, by any goroutine, when it could not be written to

	// guarded by relay.mu
	initial    int64 // its SETTINGS_INITIAL_WINDOW_SIZE
	initialMax int64 // the largest it ever named: what a sender may still go by
	ignored    ignored
}

func newPeer(party Party, side Side, c Conn, cfg Config) *peer {
	p := &peer{
		party: party, side: side, conn: c.Conn, w: newWriter(c.Conn, cfg.StallTime),
		initial: initialWindow, initialMax: initialWindow,
	}
	if p.br = c.Reader; p.br == nil {
		p.br = bufio.NewReader(c.Conn)
	}
	p.framer = http2.NewFramer(nil, p.br)
	p.lists.init(cfg.MaxList)
	return p
}

// fit makes room to read a frame's payload of n bytes, or readSize of it, at once. It is called between frames.
func (p *peer) fit(n int) {
	if n > p.br.Size() && p.br.Size() < readSize {
		p.br = bufio.NewReaderSize(p.br, readSize)
		p.framer = http2.NewFramer(nil, p.br)
	}
}

// run waits for the next n bytes, at most as many as fit made room for, and returns them where they lie, until the next read. Discard takes them.
func (p *peer) run(n int) ([]byte, error) {
	b, err := p.br.Peek(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// more reports whether the next frame is at hand whole, so that it can share a write with what was read before it.
func (p *peer) more() bool {
	n := p.br.Buffered()
	if n < frameHeader {
		return false
	}
	b, _ := p.br.Peek(frameHeader)
	return n-frameHeader >= int(b[0])<<16|int(b[1])<<8|int(b[2])
}

const frameHeader = 9

// ignored remembers the latest streams that we ended for a peer while it may still send on them: those frames are not for the other
// side. What is forgotten was long ago answered with our RST_STREAM, or concerns only its sender.
type ignored struct {
	ids  map[uint32]bool
	ring [1024]uint32
	next int
}

func (g *ignored) add(id uint32) {
	if g.ids == nil {
		g.ids = make(map[uint32]bool)
	}
	if g.ids[id] {
		return
	}
	delete(g.ids, g.ring[g.next])
	g.ring[g.next] = id
	g.ids[id] = true
	g.next = (g.next + 1) % len(g.ring)
}

func (g *ignored) has(id uint32) bool { return g.ids[id] }

// protocolError is a peer's mistake that ends the connection.
type protocolError struct {
	code http2.ErrCode
	why  string
}

func (e *protocolError) Error() string { return fmt.Sprintf("%v: %s", e.code, e.why) }

// read relays what p sends until it cannot go on, and says why.
func (r *relay) read(p *peer) Close {
	err := r.begin(p)
	for err == nil {
		if p.unsent && !p.more() {
			if err = r.flush(p); err != nil {
				break
			}
		}
		err = r.next(p)
	}
	if p.unsent {
		r.flush(p) // what came before the end
	}
	return r.explain(p, err)
}

// explain makes an error of p's reading the end of the connection.
func (r *relay) explain(p *peer, err error) Close {
	var mistake *protocolError
	var code http2.ConnectionError
	var padding http2.StreamError // of a field list's frame: the list is lost, and the compression state with it
	var write *writeError
	switch {
	case errors.As(err, &write):
		return Close{By: write.party, Err: err}
	case errors.As(err, &mistake):
		return Close{By: p.party, Code: mistake.code, Err: fmt.Errorf("%v broke HTTP/2: %w", p.party, err)}
	case errors.As(err, &padding):
		return Close{By: p.party, Code: padding.Code, Err: fmt.Errorf("%v broke HTTP/2: %w", p.party, err)}
	case errors.As(err, &code):
		if detail := p.framer.ErrorDetail(); detail != nil {
			err = detail
		}
		return Close{By: p.party, Code: http2.ErrCode(code), Err: fmt.Errorf("%v broke HTTP/2: %w", p.party, err)}
	}
	end := &ended{text: p.party.String() + " closed the connection", err: err}
	if p.away != nil {
		end.text = p.away.Err.Error() + ", and closed the connection"
	}
	if err != io.EOF {
		end.text += ": " + err.Error()
	}
	return Close{By: p.party, Err: end}
}

// ended is the end of a connection, in words.
type ended struct {
	text string
	err  error
}

func (e *ended) Error() string { return e.text }
func (e *ended) Unwrap() error { return e.err }

// begin relays the connection preface. RFC 9113, section 3.4. The client's further frames wait until it was told upstream's SETTINGS, so that
// each answer of ours comes after them.
func (r *relay) begin(p *peer) error {
	if p.party == Client {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(p.br, preface); err != nil {
			return err
		}
		if string(preface) != http2.ClientPreface {
			return &protocolError{http2.ErrCodeProtocol, "no connection preface"}
		}
		up := r.peers[Response].w
		up.lock()
		up.buf = append(up.buf, preface...)
		up.unlock(false)
	}
	fh, err := p.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) || fh.Length > maxFrame {
		return &protocolError{http2.ErrCodeProtocol, "the first frame is not SETTINGS"}
	}
	f, err := p.framer.ReadFrameForHeader(fh)
	if err != nil {
		return err
	}
	if err := r.settings(p, f.(*http2.SettingsFrame), true); err != nil {
		return err
	}
	if err := r.flush(p); err != nil {
		return err
	}
	if p.party == Upstream {
		close(r.ready)
		return nil
	}
	late := time.NewTimer(r.cfg.SettingsTime)
	defer late.Stop()
	select {
	case <-r.ready:
		return nil
	case <-r.done:
		return net.ErrClosed
	case <-late.C:
		r.stop(Close{By: Upstream, Code: http2.ErrCodeSettingsTimeout, Err: errors.New("upstream sent no SETTINGS")})
		return net.ErrClosed
	}
}

// writeError is a write that a peer did not take.
type writeError struct {
	party Party
	err   error
}

func (e *writeError) Error() string { return fmt.Sprintf("write to %v: %v", e.party, e.err) }
func (e *writeError) Unwrap() error { return e.err }

// write has fn append frames to the peer that p's are relayed to.
func (r *relay) write(p *peer, fn func(w *writer)) error {
	to := r.peers[p.side.other()]
	to.w.lock()
	fn(to.w)
	p.unsent = true
	return r.wrote(p, to, to.w.unlock(false))
}

func (r *relay) flush(p *peer) error {
	to := r.peers[p.side.other()]
	to.w.lock()
	p.unsent = false
	return r.wrote(p, to, to.w.unlock(true))
}

// wrote judges a write's error. Upstream may have stopped reading after an early response: that is still read to its end,
// and the connection ends with it.
func (r *relay) wrote(p, to *peer, err error) error {
	if err == nil {
		return nil
	}
	if to.party == Client {
		return &writeError{to.party, err}
	}
	if !to.deaf.Swap(true) {
		to.conn.SetReadDeadline(time.Now().Add(earlyTime))
	}
	return nil
}

// earlyTime is how long an early response is waited for on a connection that cannot be written to.
const earlyTime = 30 * time.Second

// next relays one frame.
//
// The framer keeps the largest buffer it ever needed, so after a large one it is replaced.
func (r *relay) next(p *peer) error {
	fh, err := p.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	if fh.Type == http2.FrameData {
		return r.data(p, fh)
	}
	if fh.Type == http2.FramePushPromise {
		return &protocolError{http2.ErrCodeProtocol, "PUSH_PROMISE, which we disabled"}
	}
	if least := leastLength(fh); int(fh.Length) < least { // the framer would take it for the connection's end
		return &protocolError{http2.ErrCodeFrameSize, fmt.Sprintf("a %v frame of %d bytes, whose flags need %d", fh.Type, fh.Length, least)}
	}
	most := maxFrame
	if fh.Type == http2.FrameHeaders {
		most = max(most, 4*r.cfg.MaxList)
	}
	if int(fh.Length) > most {
		return &protocolError{http2.ErrCodeFrameSize, fmt.Sprintf("a %v frame of %d bytes", fh.Type, fh.Length)}
	}
	large := fh.Length > 4*frameSize
	defer func() {
		if large || p.lists.total > 4*frameSize {
			p.lists.total = 0
			p.framer = http2.NewFramer(nil, p.br)
		}
	}()
	frame, err := p.framer.ReadFrameForHeader(fh)
	if err != nil {
		var mistake http2.StreamError
		if fh.Type == http2.FrameWindowUpdate && errors.As(err, &mistake) {
			return r.fault(p, mistake)
		}
		return err
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return r.headers(p, f)
	case *http2.WindowUpdateFrame:
		return r.windowUpdate(p, f)
	case *http2.RSTStreamFrame:
		return r.reset(p, f)
	case *http2.SettingsFrame:
		if f.IsAck() {
			if p.party == Upstream && !r.acknowledged() {
				return nil
			}
			return r.write(p, func(w *writer) { w.raw(fh.Type, fh.Flags, 0, nil) })
		}
		return r.settings(p, f, false)
	case *http2.GoAwayFrame:
		return r.goAway(p, f)
	case *http2.PingFrame:
		return r.write(p, func(w *writer) { w.raw(fh.Type, fh.Flags, 0, f.Data[:]) })
	case *http2.PriorityFrame:
		return r.write(p, func(w *writer) { w.raw(fh.Type, fh.Flags, fh.StreamID, priority(f.PriorityParam)) })
	case *http2.PriorityUpdateFrame:
		payload := append(binary.BigEndian.AppendUint32(nil, f.PrioritizedStreamID), f.Priority...)
		return r.write(p, func(w *writer) { w.raw(fh.Type, fh.Flags, 0, payload) })
	case *http2.UnknownFrame:
		return r.write(p, func(w *writer) { w.raw(fh.Type, fh.Flags, fh.StreamID, f.Payload()) })
	}
	return &protocolError{http2.ErrCodeProtocol, fmt.Sprintf("an unexpected %v frame", fh.Type)}
}

// leastLength returns what a HEADERS frame's flags need of it, in bytes. RFC 9113, section 6.2.
func leastLength(fh http2.FrameHeader) (n int) {
	if fh.Type != http2.FrameHeaders {
		return 0
	}
	if fh.Flags.Has(http2.FlagHeadersPadded) {
		n++
	}
	if fh.Flags.Has(http2.FlagHeadersPriority) {
		n += 5
	}
	return n
}

// priority is the wire form of a frame's priority. RFC 7540, section 6.3: deprecated, but passed on.
func priority(p http2.PriorityParam) []byte {
	dep := p.StreamDep
	if p.Exclusive {
		dep |= 1 << 31
	}
	return append(binary.BigEndian.AppendUint32(nil, dep), p.Weight)
}

// settings passes on SETTINGS, but for what is between each peer and us: the compression table's size, and push, which
// a relay of the same stream ids has no place for. RFC 9113, section 6.5.2.
func (r *relay) settings(p *peer, f *http2.SettingsFrame, first bool) error {
	payload := make([]byte, 0, 6*(f.NumSettings()+1))
	push := false
	told := slices.Clone(p.told)
	for i := range f.NumSettings() {
		s := f.Setting(i)
		told = withSetting(told, s)
		switch s.ID {
		case http2.SettingHeaderTableSize:
			p.w.limit.Store(int64(s.Val))
			s.Val = tableSize
		case http2.SettingEnablePush:
			push, s.Val = true, 0
		case http2.SettingInitialWindowSize:
			if s.Val > 1<<31-1 {
				return &protocolError{http2.ErrCodeFlowControl, "an initial window beyond 2^31-1"}
			}
			r.mu.Lock()
			p.initial = int64(s.Val)
			p.initialMax = max(p.initialMax, p.initial)
			r.credit.Broadcast()
			r.mu.Unlock()
		}
		payload = binary.BigEndian.AppendUint16(payload, uint16(s.ID))
		payload = binary.BigEndian.AppendUint32(payload, s.Val)
	}
	if first && p.party == Client && !push {
		payload = binary.BigEndian.AppendUint16(payload, uint16(http2.SettingEnablePush))
		payload = binary.BigEndian.AppendUint32(payload, 0)
	}
	p.told = told
	r.cfg.Handler.Settings(p.party, told)
	return r.write(p, func(w *writer) {
		if p.party == Client {
			r.passSettings(payload)
		}
		w.raw(http2.FrameSettings, 0, 0, payload)
	})
}

// maxSettings bounds what is told of a peer's SETTINGS: some ten are registered, and a few that mean nothing are sent to keep others honest.
const maxSettings = 32

// withSetting returns the list with s in it, in its place if it has one.
func withSetting(list []http2.Setting, s http2.Setting) []http2.Setting {
	if i := slices.IndexFunc(list, func(old http2.Setting) bool { return old.ID == s.ID }); i >= 0 {
		list[i].Val = s.Val
	} else if len(list) < maxSettings {
		list = append(list, s)
	}
	return list
}

// goAway passes on GOAWAY. Streams that upstream says it did not and will not process are over.
func (r *relay) goAway(p *peer, f *http2.GoAwayFrame) error {
	p.away = &Close{By: p.party, Code: f.ErrCode, Err: fmt.Errorf("%v sent GOAWAY %v %q", p.party, f.ErrCode, f.DebugData())}
	r.cfg.Handler.GoAway(p.party, f.LastStreamID, f.ErrCode, f.DebugData())
	err := r.write(p, func(w *writer) { w.goAway(f.LastStreamID, f.ErrCode, f.DebugData()) })
	if p.party == Client || err != nil {
		return err
	}
	var gone []*Stream
	r.mu.Lock()
	for id, s := range r.streams {
		if id > f.LastStreamID && s.opened {
			gone = append(gone, s)
		}
	}
	for _, s := range gone {
		r.remove(s, false)
	}
	r.mu.Unlock()
	for _, s := range gone {
		s.end(*p.away)
	}
	return nil
}
