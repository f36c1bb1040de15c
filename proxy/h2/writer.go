package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	frameSize  = 16 << 10 // the largest frame every peer takes. RFC 9113, section 4.2
	flushSize  = 32 << 10 // bytes that are written without waiting for the end of what is at hand
	maxAnswers = 1024     // frames that wait for a peer which makes us answer, and does not read
	tableSize  = 4096     // of both compression contexts, in bytes: the default
)

// errAnswers ends a connection whose peer asks for more answers than it reads.
var errAnswers = errors.New("peer does not read the frames it asked for")

// writer writes frames to one peer. Its lock is held while a write waits for the peer, so the goroutine that reads this same
// peer must not take it: a peer that only goes on to read after it has written would wait for itself. That goroutine leaves its frames with
// later; they go out with the next write, or from a goroutine of their own.
type writer struct {
	conn  net.Conn
	stall time.Duration

	mu      sync.Mutex
	buf     []byte
	err     error // of the first write that did not succeed; later ones are dropped
	leaving bool  // a GOAWAY was written
	enc     *hpack.Encoder
	block   bytes.Buffer
	limit   atomic.Int64 // the peer's new SETTINGS_HEADER_TABLE_SIZE, -1: none

	amu     sync.Mutex
	answers []func(*writer)
	credits map[uint32]int64 // by stream, 0 for the connection
	refused bool
	wake    chan struct{}
}

func newWriter(conn net.Conn, stall time.Duration) *writer {
	w := &writer{conn: conn, stall: stall, wake: make(chan struct{}, 1)}
	w.enc = hpack.NewEncoder(&w.block)
	w.limit.Store(-1)
	return w
}

func (w *writer) lock() { w.mu.Lock() }

// unlock writes out what is buffered, where flush asks for it or it is much.
func (w *writer) unlock(flush bool) error {
	w.takeAnswers()
	if flush || len(w.buf) >= flushSize {
		w.flush()
	}
	err := w.err
	w.mu.Unlock()
	return err
}

func (w *writer) flush() {
	if len(w.buf) > 0 && w.err == nil {
		w.conn.SetWriteDeadline(time.Now().Add(w.stall))
		_, w.err = w.conn.Write(w.buf)
	}
	w.buf = w.buf[:0]
	if cap(w.buf) > 4*flushSize { // a long field list
		w.buf = nil
	}
}

// later has fn write its frames soon, without waiting for the peer. Beyond maxAnswers it is errAnswers.
func (w *writer) later(fn func(*writer)) error {
	w.amu.Lock()
	defer w.amu.Unlock()
	if w.refused || len(w.answers) >= maxAnswers {
		w.refused = true
		return errAnswers
	}
	w.answers = append(w.answers, fn)
	w.wakeUp()
	return nil
}

// creditLater has a WINDOW_UPDATE written soon, without waiting for the peer.
func (w *writer) creditLater(id uint32, n int64) {
	w.amu.Lock()
	defer w.amu.Unlock()
	if w.credits == nil {
		w.credits = make(map[uint32]int64)
	}
	w.credits[id] += n
	w.wakeUp()
}

func (w *writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) takeAnswers() {
	w.amu.Lock()
	answers := w.answers
	w.answers = nil
	for id, n := range w.credits {
		w.windowUpdate(id, n)
	}
	clear(w.credits)
	w.amu.Unlock()
	for _, fn := range answers {
		fn(w)
	}
}

// answer writes what later left, until done.
func (w *writer) answer(done <-chan struct{}) {
	for {
		select {
		case <-w.wake:
			w.lock()
			w.unlock(true)
		case <-done:
			return
		}
	}
}

// The methods below append one frame; the lock is held.

func (w *writer) frame(length int, t http2.FrameType, flags http2.Flags, id uint32) {
	w.buf = append(w.buf, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags))
	w.buf = binary.BigEndian.AppendUint32(w.buf, id)
}

func (w *writer) raw(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	w.frame(len(payload), t, flags, id)
	w.buf = append(w.buf, payload...)
}

// data appends a DATA frame. pad is -1 where the frame is not to be padded.
func (w *writer) data(id uint32, p []byte, end bool, pad int) {
	var flags http2.Flags
	if end {
		flags |= http2.FlagDataEndStream
	}
	if pad < 0 {
		w.raw(http2.FrameData, flags, id, p)
		return
	}
	w.frame(1+len(p)+pad, http2.FrameData, flags|http2.FlagDataPadded, id)
	w.buf = append(append(w.buf, byte(pad)), p...)
	w.buf = append(w.buf, zeros[:pad]...)
}

var zeros [255]byte

func (w *writer) windowUpdate(id uint32, n int64) {
	for n > 0 { // the sum of several increments may be more than one can say
		step := min(n, 1<<31-1)
		w.frame(4, http2.FrameWindowUpdate, 0, id)
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(step))
		n -= step
	}
}

func (w *writer) reset(id uint32, code http2.ErrCode) {
	w.frame(4, http2.FrameRSTStream, 0, id)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(code))
}

func (w *writer) goAway(last uint32, code http2.ErrCode, why []byte) {
	w.leaving = true
	w.frame(8+len(why), http2.FrameGoAway, 0, 0)
	w.buf = binary.BigEndian.AppendUint32(w.buf, last)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(code))
	w.buf = append(w.buf, why...)
}

// headers appends a field list as HEADERS and, where it is long, CONTINUATION frames. priority may be nil, pad -1.
func (w *writer) headers(id uint32, fields []hpack.HeaderField, end bool, priority []byte, pad int) {
	if limit := w.limit.Swap(-1); limit >= 0 {
		w.enc.SetMaxDynamicTableSizeLimit(uint32(limit))
		w.enc.SetMaxDynamicTableSize(uint32(min(limit, tableSize)))
	}
	w.block.Reset()
	for _, f := range fields {
		w.enc.WriteField(f) // into memory: it cannot fail
	}
	block := w.block.Bytes()

	var flags http2.Flags
	extra := len(priority)
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	if extra > 0 {
		flags |= http2.FlagHeadersPriority
	}
	if pad >= 0 && len(block)+extra+1+pad <= frameSize {
		flags |= http2.FlagHeadersPadded
		extra += 1 + pad
	} else {
		pad = -1
	}
	n := min(len(block), frameSize-extra)
	if n == len(block) {
		flags |= http2.FlagHeadersEndHeaders
	}
	w.frame(n+extra, http2.FrameHeaders, flags, id)
	if pad >= 0 {
		w.buf = append(w.buf, byte(pad))
	}
	w.buf = append(w.buf, priority...)
	w.buf = append(w.buf, block[:n]...)
	if pad > 0 {
		w.buf = append(w.buf, zeros[:pad]...)
	}
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n, flags = min(len(block), frameSize), 0
		if n == len(block) {
			flags = http2.FlagContinuationEndHeaders
		}
		w.raw(http2.FrameContinuation, flags, id, block[:n])
	}
	if w.block.Cap() > 4*frameSize {
		w.block = bytes.Buffer{}
	}
}
