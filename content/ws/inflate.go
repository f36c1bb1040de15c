package ws

import (
	"compress/flate"
	"errors"
	"fmt"
	"io"

	"millpond/content"
)

// ErrLarge says that a message becomes larger than content.LimitFloor and content.LimitRatio allow.
var ErrLarge = errors.New("the message is too large for what it is made from")

// deflateWindow is how far back a compressed message may refer. RFC 1951, section 2.
const deflateWindow = 32 << 10

// tail ends each message's deflate stream: its sender took it off. RFC 7692, section 7.2.2.
const tail = "\x00\x00\xff\xff"

// Inflater undoes permessage-deflate for the messages of a direction, in their order. It holds some 200 KiB.
type Inflater struct {
	Fresh bool // each message is compressed without the ones before

	in   source
	r    io.ReadCloser // nil before the first message
	out  [deflateWindow]byte
	past []byte // the last bytes of the output, deflateWindow of them where there are as many
	err  error  // where messages depend on each other, the first that is damaged
}

// Message writes a message to w, given its payload, of size bytes on the wire. What was written before an error is good. After an error of the
// payload's content every further message is one too, unless Fresh.
func (i *Inflater) Message(w io.Writer, payload io.Reader, size uint64) error {
	if i.err != nil {
		return i.err
	}
	err := i.message(w, payload, size)
	if err == nil {
		return nil
	}
	i.r = nil
	if !i.Fresh {
		i.err = fmt.Errorf("a message before it cannot be decompressed: %w", err)
	}
	return err
}

// Damaged reports whether every further message is an error.
func (i *Inflater) Damaged() bool { return i.err != nil }

func (i *Inflater) message(w io.Writer, payload io.Reader, size uint64) error {
	i.in.begin(payload)
	if i.Fresh || i.r == nil {
		i.past = i.past[:0]
		i.reset()
	}
	for left := int64(max(content.LimitFloor, content.LimitRatio*size)); ; {
		// What is read is at most the window, so this gives all that the bytes taken so far become.
		n, err := i.r.Read(i.out[:])
		if left -= int64(n); left < 0 {
			return ErrLarge
		}
		i.remember(i.out[:n])
		if _, err := w.Write(i.out[:n]); err != nil {
			return err
		}
		switch {
		case i.in.err != nil:
			return i.in.err
		case errors.Is(err, io.EOF): // a last block, after which the message may go on. RFC 7692, section 7.2.3.4
			i.reset()
			if i.in.only() {
				return nil
			}
		case errors.Is(err, errEnd) && i.in.synced: // nothing came of the last bytes, and the decompressor asked for more
			i.reset()
			return nil
		case err != nil:
			return err
		case i.in.synced:
			return nil
		}
	}
}

// reset begins a deflate stream that may refer to what came before.
func (i *Inflater) reset() {
	past := i.past[max(0, len(i.past)-deflateWindow):]
	if i.r == nil {
		i.r = flate.NewReaderDict(&i.in, past)
		return
	}
	if err := i.r.(flate.Resetter).Reset(&i.in, past); err != nil {
		panic(err) // it has none
	}
}

// remember keeps the last of the output.
func (i *Inflater) remember(b []byte) {
	if len(i.past)+len(b) > 4*deflateWindow {
		i.past = append(i.past[:0], i.past[max(0, len(i.past)-deflateWindow):]...)
	}
	i.past = append(i.past, b...)
}

// errEnd is what a source gives where the decompressor wants more than the message has.
var errEnd = errors.New("it ends too early")

// source gives a decompressor the bytes of a message and the tail, one by one, so that it takes no more than it needs.
type source struct {
	payload io.Reader
	buf     [4 << 10]byte
	part    []byte // of buf
	rest    string // of the tail, once the payload has ended
	tailed  bool
	synced  bool  // the tail was taken as what it is: the end of a block, on which a message ends
	err     error // of payload
}

// begin begins a message. What buf holds stays: to clear it would be most of what a short message costs.
func (s *source) begin(payload io.Reader) {
	s.payload, s.part, s.rest, s.err = payload, nil, "", nil
	s.tailed, s.synced = false, false
}

func (s *source) fill() error {
	for len(s.part) == 0 && !s.tailed {
		n, err := s.payload.Read(s.buf[:])
		s.part = s.buf[:n]
		if errors.Is(err, io.EOF) {
			s.tailed, s.rest = true, tail
		} else if err != nil {
			s.err = err
			return err
		}
	}
	if len(s.part) == 0 && s.rest == "" {
		return errEnd
	}
	return nil
}

// ReadByte implements io.ByteReader.
func (s *source) ReadByte() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	var c byte
	if len(s.part) > 0 {
		c, s.part = s.part[0], s.part[1:]
	} else {
		c, s.rest = s.rest[0], s.rest[1:]
	}
	return c, nil
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	s.synced = len(b) == len(tail) && s.only() && s.rest == tail
	for n := range b {
		c, err := s.ReadByte()
		if err != nil {
			return n, err
		}
		b[n] = c
	}
	return len(b), nil
}

// only reports whether nothing but the tail is left.
func (s *source) only() bool {
	return s.fill() != nil || len(s.part) == 0
}
