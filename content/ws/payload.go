package ws

import (
	"errors"
	"fmt"
	"io"
)

// Payload reads one message's payload where it lies: without the heads of frames, without masking, and without control frames that came between. It is for one
// goroutine, and reads linearly whatever the fragments.
type Payload struct {
	r       io.ReaderAt // the direction's bytes
	start   int64       // of the message in them
	end     int64
	control bool

	f    frame
	at   int64 // of the frame's payload in r; 0 before the first
	base int64 // of the frame's payload in the message's
	last bool  // no frame of the message follows
	pos  int64 // of Read
}

// NewPayload returns the payload of a message that lies at an offset of r, with a length. control is for a Close, Ping or Pong. r should be Buffered where
// fragments may be many.
func NewPayload(r io.ReaderAt, offset, length uint64, control bool) *Payload {
	return &Payload{r: r, start: int64(offset), end: int64(offset + length), control: control}
}

// Read implements io.Reader.
func (p *Payload) Read(b []byte) (int, error) {
	n, err := p.ReadAt(b, p.pos)
	p.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (p *Payload) ReadAt(b []byte, off int64) (int, error) {
	if p.at == 0 || off < p.base {
		p.base, p.last = 0, false
		if err := p.next(p.start); err != nil {
			return 0, err
		}
	}
	n := 0
	for {
		length := p.length()
		if within := off + int64(n) - p.base; within < length {
			part := b[n:min(int64(len(b)), int64(n)+length-within)]
			got, err := p.r.ReadAt(part, p.at+within)
			unmask(part[:got], p.f.key, uint64(within))
			n += got
			if got < len(part) {
				return n, short(err)
			}
		}
		if n == len(b) {
			return n, nil
		}
		if p.last {
			return n, io.EOF
		}
		p.base += length
		if err := p.next(p.at + length); err != nil {
			return n, err
		}
	}
}

// length is how much of the frame's payload there is.
func (p *Payload) length() int64 { return min(int64(p.f.length), p.end-p.at) }

// next moves to the first frame of the message at or after a position. Where there is none, io.EOF.
func (p *Payload) next(at int64) error {
	for first := at == p.start; at < p.end; first = false {
		var head [maxHead]byte
		n, err := p.r.ReadAt(head[:min(maxHead, p.end-at)], at)
		if n < 2 || n < headSize(head[1]) {
			if int64(n) == p.end-at { // a head that was broken off
				break
			}
			return short(err)
		}
		size := headSize(head[1])
		f := parseFrame(head[:size])
		at += int64(size)
		switch {
		case f.control() && !p.control:
			at += int64(f.length)
			continue
		case f.control() != p.control, !p.control && first == (f.opcode == Continuation):
			return fmt.Errorf("read message at %d: no frame of it", at-int64(size))
		}
		p.f, p.at = f, at
		p.last = p.control || f.fin || uint64(p.end-at) <= f.length
		return nil
	}
	p.last, p.f, p.at = true, frame{}, max(p.at, p.end)
	return io.EOF
}

// short is the error of a read that gave less than there is said to be.
func short(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Buffered reads r through a window of 64 KiB, for many small reads that are near each other. It is for one goroutine.
func Buffered(r io.ReaderAt) io.ReaderAt { return &window{r: r} }

type window struct {
	r   io.ReaderAt
	at  int64
	buf []byte
}

const windowSize = 64 << 10

func (w *window) ReadAt(b []byte, off int64) (int, error) {
	if len(b) >= windowSize {
		return w.r.ReadAt(b, off)
	}
	if off < w.at || off+int64(len(b)) > w.at+int64(len(w.buf)) {
		if cap(w.buf) == 0 {
			w.buf = make([]byte, windowSize)
		}
		n, err := w.r.ReadAt(w.buf[:windowSize], off)
		w.at, w.buf = off, w.buf[:n]
		if n < len(b) {
			return copy(b, w.buf), err
		}
	}
	return copy(b, w.buf[off-w.at:]), nil
}
