package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millpond/storage"
)

// worthGiving reports whether a read of n bytes is handed to the recording in its buffer. Others are copied and gathered: a buffer counts whole, and half-empty
// ones would use up the memory that is there for a stalled disk with half the bytes.
func worthGiving(b *storage.Buffer, n int) bool { return n >= len(b.B)/8*7 }

// A read over TLS gives one record at most. RFC 8446, section 5.1. Four of them in one buffer are one write to disk, and count once; to read into
// a larger block would hold memory for nothing while a connection waits.
const recordSize = 16 << 10

var recordBlocks = sync.Pool{New: func() any { return new([recordSize]byte) }}

// readError and writeError tell on which side of a relay it failed.
type (
	readError  struct{ error }
	writeError struct{ error }
)

func (e readError) Unwrap() error  { return e.error }
func (e writeError) Unwrap() error { return e.error }

// sink is where a message goes: a connection, with the limit on a write that its peer does not accept. The head waits in it for the body's first bytes,
// if those are at hand, so that a small message is one write.
type sink struct {
	conn   net.Conn
	writes *deadline
	stall  time.Duration
	head   []byte        // not written yet
	passed *atomic.Int64 // counts writes; nil: nobody asks
}

// write sends p, behind the head if that still waits.
func (s *sink) write(p []byte) error {
	s.writes.within(s.stall)
	if s.passed != nil {
		s.passed.Add(1)
	}
	if s.head != nil {
		head := s.head
		s.head = nil
		if len(p) == 0 {
			p = head
		} else if b := storage.NewBuffer(); len(head)+len(p) <= len(b.B) {
			n := copy(b.B, head)
			n += copy(b.B[n:], p)
			_, err := s.conn.Write(b.B[:n])
			b.Free()
			return wrapWrite(err)
		} else {
			b.Free()
			if _, err := s.conn.Write(head); err != nil {
				return writeError{err}
			}
		}
	}
	_, err := s.conn.Write(p)
	return wrapWrite(err)
}

// flush sends the head if it still waits.
func (s *sink) flush() error {
	if s.head == nil {
		return nil
	}
	return s.write(nil)
}

func wrapWrite(err error) error {
	if err != nil {
		return writeError{err}
	}
	return nil
}

// passage relays one body with its own framing, and records it without. What is at hand is never held back for more.
type passage struct {
	ctx    context.Context // ends the waits for the recording
	from   *bufio.Reader
	to     *sink
	rec    *storage.BodyWriter
	chunks chunks
	passed int64 // bytes read straight from the connection, for choosing buffers
	secure bool  // the sender speaks TLS

	trailers func() []field // of a body that a modifier made; nil: it has none
}

// run relays the body to its end, and tells the recording that it is complete. Its error is a readError, a writeError, or says what is wrong with the framing.
func (p *passage) run(f framing) (err error) {
	switch f.kind {
	case byLength:
		err = p.exactly(f.length)
	case byChunks:
		err = p.chunked()
	case untilClose:
		if err = p.exactly(1<<63 - 1); err != nil && errors.Is(err, io.EOF) {
			err = nil
		}
	default:
		err = p.to.flush()
	}
	if err == nil {
		p.rec.Complete()
	}
	return err
}

// exactly relays n bytes.
func (p *passage) exactly(n int64) error {
	var b *storage.Buffer
	defer func() {
		if b != nil {
			b.Free()
		}
	}()
	var block []byte
	if p.secure {
		kept := recordBlocks.Get().(*[recordSize]byte)
		defer recordBlocks.Put(kept)
		block = kept[:]
	}
	full := false
	for n > 0 {
		if have := p.from.Buffered(); have > 0 || p.to.head != nil {
			at, _ := p.from.Peek(int(min(int64(have), n)))
			if err := p.to.write(at); err != nil {
				return err
			}
			p.rec.Write(at)
			p.from.Discard(len(at))
			n -= int64(len(at))
			continue
		}
		if p.secure {
			got, err := p.from.Read(block[:min(recordSize, n)])
			n -= int64(got)
			if got > 0 {
				if err := p.to.write(block[:got]); err != nil {
					return err
				}
				p.copied(block[:got])
			}
			if err != nil && n > 0 {
				return readError{err}
			}
			continue
		}
		switch {
		case b != nil:
		case full && p.passed > largeAfter:
			b = storage.NewLargeBuffer()
		default:
			b = storage.NewBuffer()
		}
		got, err := p.from.Read(b.B[:min(int64(len(b.B)), n)])
		n -= int64(got)
		p.passed += int64(got)
		full = got == len(b.B)
		if got > 0 {
			if err := p.to.write(b.B[:got]); err != nil {
				return err
			}
			b = p.record(b, got)
		}
		if err != nil && n > 0 {
			return readError{err}
		}
	}
	return nil
}

// record hands the first n bytes of b to the recording, without a copy if that is worth it, and waits while the recording holds its share of memory. It returns
// the buffer if it is still ours.
func (p *passage) record(b *storage.Buffer, n int) *storage.Buffer {
	if !worthGiving(b, n) {
		p.copied(b.B[:n])
		return b
	}
	p.rec.Give(b, n)
	p.wait()
	return nil
}

// copied hands a copy of what was relayed to the recording.
func (p *passage) copied(at []byte) {
	p.rec.Write(at)
	p.wait()
}

// wait holds the sender back while the recording holds its share of memory.
func (p *passage) wait() {
	if p.rec.Full() != nil {
		p.rec.Wait(p.ctx)
	}
}

// chunked relays a chunked body. Its framing passes byte for byte.
func (p *passage) chunked() error {
	var spans []span
	for !p.chunks.done {
		have := p.from.Buffered()
		if have == 0 {
			if err := p.to.flush(); err != nil {
				return err
			}
			// The rest of a large chunk is a body of known length: it needs no looking at.
			if run := min(p.chunks.left, storage.BufferSize); p.chunks.state == inData && run >= upstreamReadSize {
				if err := p.exactly(run); err != nil {
					return err
				}
				if p.chunks.left -= run; p.chunks.left == 0 {
					p.chunks.state, p.chunks.line = afterData, 0
				}
				continue
			}
			if _, err := p.from.Peek(1); err != nil {
				return readError{err}
			}
			have = p.from.Buffered()
		}
		at, _ := p.from.Peek(have)
		var n int
		var broken error
		held := p.chunks.toProxy && p.chunks.state == inTrailers
		n, spans, broken = p.chunks.scan(at, spans[:0])
		out := at[:n]
		if held {
			out = p.chunks.heldTrailers()
		}
		if len(out) > 0 || !held { // without any, what waits of the head is sent
			if err := p.to.write(out); err != nil {
				return err
			}
		}
		for _, s := range spans {
			p.rec.Write(at[s.from:s.to])
		}
		p.from.Discard(n)
		if broken != nil {
			return broken
		}
		p.wait()
	}
	return nil
}

// send sends a body that a modifier made, framed anew, and records it.
func (p *passage) send(body io.Reader, f framing) error {
	if err := p.to.flush(); err != nil {
		return err
	}
	const before, after = 8, 2 // room for a chunk's size line and its end
	b := storage.NewBuffer()
	defer b.Free()
	left := f.length
	for {
		room := b.B[before : len(b.B)-after]
		n, err := body.Read(room)
		if f.kind == byLength && int64(n) > left {
			return readError{errors.New("a modifier's body is longer than it said")}
		}
		left -= int64(n)
		if n > 0 {
			out := room[:n]
			if f.kind == byChunks {
				size := strconv.FormatInt(int64(n), 16)
				start := before - 2 - len(size)
				copy(b.B[start:], size+"\r\n")
				copy(b.B[before+n:], "\r\n")
				out = b.B[start : before+n+after]
			}
			if err := p.to.write(out); err != nil {
				return err
			}
			p.copied(room[:n])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return readError{fmt.Errorf("read a modifier's body: %w", err)}
		}
	}
	if f.kind == byLength && left > 0 {
		return readError{errors.New("a modifier's body is shorter than it said")}
	}
	if f.kind == byChunks {
		if p.trailers != nil {
			p.chunks.trailers = trailerLines(p.trailers())
		}
		end := append([]byte("0\r\n"), p.chunks.trailers...)
		if p.chunks.trailers == nil {
			end = append(end, "\r\n"...)
		}
		if err := p.to.write(end); err != nil {
			return err
		}
	}
	p.rec.Complete()
	return nil
}

// trailerLines renders trailers as they follow the last chunk, with the empty line; nil for none.
func trailerLines(fields []field) []byte {
	if len(fields) == 0 {
		return nil
	}
	h := &head{eol: "\r\n"}
	return h.with("", fields).raw[len(h.eol):] // a head without its start line
}

// bodyReader reads a body without its framing, for modifiers.
type bodyReader struct {
	r      *bufio.Reader
	f      framing
	left   int64
	chunks chunks
	before func() // called once, before the first read
}

func newBodyReader(r *bufio.Reader, f framing, limit int) *bodyReader {
	return &bodyReader{r: r, f: f, left: f.length, chunks: chunks{limit: limit}}
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.before != nil {
		b.before()
		b.before = nil
	}
	switch b.f.kind {
	case noBody:
		return 0, io.EOF
	case untilClose:
		return b.r.Read(p)
	case byLength:
		if b.left == 0 {
			return 0, io.EOF
		}
		n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		return n, unexpected(err)
	}
	for !b.chunks.done && len(p) > 0 {
		if _, err := b.r.Peek(1); err != nil {
			return 0, unexpected(err)
		}
		at, _ := b.r.Peek(min(b.r.Buffered(), len(p)))
		n, spans, err := b.chunks.scan(at, nil)
		got := 0
		for _, s := range spans {
			got += copy(p[got:], at[s.from:s.to])
		}
		b.r.Discard(n)
		if err != nil || got > 0 {
			return got, err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return 0, io.EOF
}

// trailers returns those that followed the body. It is called once Read has returned io.EOF.
func (b *bodyReader) trailers() []field {
	var h head
	h.parseFields(string(b.chunks.fields()))
	return h.fields
}

// finish reads what is left of a body that is known to be small, so that its connection can be used again. It reports whether it did.
func (b *bodyReader) finish() bool {
	const most = 256 << 10
	if b.f.kind != byLength || b.left > most {
		return b.f.kind == byChunks && b.chunks.done
	}
	_, err := io.Copy(io.Discard, b)
	return err == nil
}

// unexpected turns an end that comes too early into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
