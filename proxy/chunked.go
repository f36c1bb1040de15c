package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"millpond/storage"
)

// Bounds on what is kept of the extensions of a body's chunks: 4 KiB of text in 64 of them are some 7 KiB, and enough to see what they are. A body signed
// chunk by chunk has one in each, without end.
const (
	maxExtensions     = 64
	maxExtensionBytes = 4 << 10
)

// chunks follows a chunked body's framing as its bytes pass. RFC 9112, section 7.1. It holds no more than the trailers and some
// extensions.
type chunks struct {
	limit    int  // bytes of one size line with its extensions, and of all trailers
	lenient  bool // take a lone LF for a line's end, and anything behind a size, as a response may have them
	odd      bool // that was done, so that others may find another end
	state    chunkState
	left     int64  // data bytes to come in this chunk
	digits   int    // of the size so far
	line     int    // bytes of the line so far
	ext      bool   // the size has ended, its extension passes
	gap      bool   // only white space has, since the size
	cr       bool   // the byte before was a CR
	trailers []byte // as they came, see fields
	toProxy  bool   // Proxy-Authorization among the trailers is for the proxy, and scan ends before them once
	done     bool

	offset        uint64 // in the body, of the chunk
	extensions    []storage.ChunkExtension
	extensionKept int    // bytes of them
	extensionCut  uint64 // bytes that are not kept
}

type chunkState uint8

const (
	inSize chunkState = iota
	inData
	afterData
	inTrailers
)

// span is a run of data in the bytes that scan was given.
type span struct{ from, to int }

// scan goes over p, which continues the body, until p or the body ends. It returns how many bytes are the body's, and appends where the data is to spans.
// The byte that is wrong is none of them: passed on, it could be the end to who is less strict.
func (c *chunks) scan(p []byte, spans []span) (n int, _ []span, err error) {
	for n < len(p) && !c.done {
		if c.state == inData {
			run := int(min(c.left, int64(len(p)-n)))
			spans = append(spans, span{n, n + run})
			n += run
			if c.left -= int64(run); c.left == 0 {
				c.state, c.line = afterData, 0
			}
			continue
		}
		b := p[n]
		if c.line++; c.line > c.limit {
			return n, spans, fmt.Errorf("a chunk's size line or the trailers are larger than %d bytes", c.limit)
		}
		if err := c.step(b); err != nil {
			return n, spans, err
		}
		n++
		if c.toProxy && c.state == inTrailers && len(c.trailers) == 0 {
			break
		}
	}
	return n, spans, nil
}

// heldTrailers returns what of trailers that toProxy holds back is to be passed on: nothing until all came.
func (c *chunks) heldTrailers() []byte {
	if !c.done {
		return nil
	}
	if kept := c.fields(); kept != nil {
		return kept
	}
	return []byte("\r\n")
}

// fields returns the trailers that are passed on and kept, with the empty line; nil for none.
func (c *chunks) fields() []byte {
	if !c.toProxy {
		return c.trailers
	}
	if kept := dropCredentials(c.trailers); len(kept) > len("\r\n") {
		return kept
	}
	return nil
}

// step takes one byte outside of data.
func (c *chunks) step(b byte) error {
	if c.state == inTrailers {
		c.trailers = append(c.trailers, b)
	}
	if c.cr && b != '\n' {
		return errors.New("a carriage return without line feed stands in the chunked framing")
	}
	switch {
	case b == '\r':
		c.cr = true
		return nil
	case b == '\n':
		if !c.cr {
			if !c.lenient {
				return errors.New("a line feed without carriage return stands in the chunked framing")
			}
			c.odd = true
		}
		c.cr = false
		return c.endLine()
	}
	switch c.state {
	case afterData:
		return errors.New("a chunk's data does not end where its size says")
	case inSize:
		return c.size(b)
	}
	return nil
}

func (c *chunks) size(b byte) error {
	var d byte
	switch {
	case c.ext:
		if c.gap && b != ' ' && b != '\t' {
			if b != ';' && !c.lenient {
				return fmt.Errorf("a chunk's size is followed by the byte %q", b)
			}
			c.gap, c.odd = false, c.odd || b != ';'
		}
		c.extension(b)
		return nil
	case '0' <= b && b <= '9':
		d = b - '0'
	case 'a' <= b && b <= 'f':
		d = b - 'a' + 10
	case 'A' <= b && b <= 'F':
		d = b - 'A' + 10
	case c.digits > 0 && (b == ';' || b == ' ' || b == '\t'):
		c.ext, c.gap = true, b != ';'
		if len(c.extensions) < maxExtensions && c.extensionKept < maxExtensionBytes {
			c.extensions = append(c.extensions, storage.ChunkExtension{Offset: c.offset, Size: uint64(c.left)})
		}
		c.extension(b)
		return nil
	default:
		return fmt.Errorf("a chunk's size has the byte %q", b)
	}
	if c.left > (1<<63-1)>>4 {
		return errors.New("a chunk's size is larger than 2^63 bytes")
	}
	c.left = c.left<<4 | int64(d)
	c.digits++
	return nil
}

// extension takes a byte of the chunk's extension. What is kept are whole extensions but for the last.
func (c *chunks) extension(b byte) {
	last := len(c.extensions) - 1
	if c.extensionKept >= maxExtensionBytes || c.extensions[last].Offset != c.offset || c.extensionCut > 0 {
		c.extensionCut++
		return
	}
	c.extensions[last].Text = append(c.extensions[last].Text, b)
	c.extensionKept++
}

// endLine ends the size line, the line after data, or a trailer line.
func (c *chunks) endLine() error {
	switch c.state {
	case inSize:
		if c.digits == 0 {
			return errors.New("a chunk has no size")
		}
		c.state = inData
		if c.left == 0 {
			c.state = inTrailers
		}
		c.offset += uint64(c.left)
		c.digits, c.ext, c.gap, c.line = 0, false, false, 0
	case afterData:
		c.state, c.line = inSize, 0
	case inTrailers:
		if t := c.trailers; len(t) <= 2 || bytes.HasSuffix(t, []byte("\n\r\n")) || bytes.HasSuffix(t, []byte("\n\n")) {
			c.done = true
			if len(t) <= 2 {
				c.trailers = nil
			}
		}
	}
	return nil
}
