package content

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// codings opens the decoder of each content coding over a body that has at least one byte. RFC 9110, section 8.4.1; br is RFC 7932, zstd RFC 8878.
// deflateraw is not registered, but is sent.
var codings = map[string]func(*bufio.Reader) (io.Reader, error){
	"gzip":       openGzip,
	"x-gzip":     openGzip,
	"deflate":    openDeflate,
	"deflateraw": openDeflateRaw,
	"br":         openBrotli,
	"zstd":       openZstd,
}

// layer removes one coding. It looks at nothing before the first Read.
type layer struct {
	name string
	src  *source
	in   *bufio.Reader
	dec  io.Reader // nil before the first Read
	err  error     // how it ended
}

func newLayer(name string, r io.Reader) *layer {
	src := &source{r: r}
	return &layer{name: name, src: src, in: bufio.NewReaderSize(src, 16<<10)}
}

func (l *layer) Read(p []byte) (n int, err error) {
	if len(p) == 0 || l.err != nil {
		return 0, l.err
	}
	if l.dec == nil {
		l.err = l.open()
		if l.err != nil {
			return 0, l.err
		}
	}
	for n == 0 && err == nil { // brotli returns 0, nil at its end
		n, err = l.dec.Read(p)
	}
	if err != nil {
		l.err = l.explain(err)
	}
	return n, l.err
}

func (l *layer) open() (err error) {
	if _, err := l.in.Peek(1); err != nil {
		return err // io.EOF for an empty body
	}
	if l.dec, err = codings[l.name](l.in); err != nil {
		return l.explain(err)
	}
	return nil
}

// explain turns a decoder's error into one of this package. An error of what it read from goes through as it is.
func (l *layer) explain(err error) error {
	if l.src.err != nil && l.src.err != io.EOF {
		return l.src.err
	}
	switch {
	case err == io.EOF:
		return io.EOF
	case errors.Is(err, ErrNotEncoded), errors.Is(err, ErrTrailing):
		return fmt.Errorf("decode %s: %w", l.name, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("decode %s: %w", l.name, ErrTruncated)
	}
	return fmt.Errorf("decode %s: %w: %w", l.name, ErrCorrupt, err)
}

func (l *layer) close() {
	if c, ok := l.dec.(interface{ Close() }); ok {
		c.Close()
	}
}

// source remembers the error of what a layer reads from: decoders change it.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	n, err = s.r.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}
