// Package content turns bodies into what people read: pure functions over readers, whose memory does not depend on what they read.
package content

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Errors of decoding. What was decoded before one of them is good, and has been read.
var (
	// ErrUnknownCoding says that the body has a content coding that is not decoded here.
	ErrUnknownCoding = errors.New("unknown content coding")

	// ErrNotEncoded says that the body is not in the coding it is labelled with. Nothing was decoded: show it as it is.
	ErrNotEncoded = errors.New("not encoded as labelled")

	// ErrTruncated says that the body ends before its coding does.
	ErrTruncated = errors.New("truncated")

	// ErrTrailing says that bytes follow the end of the encoded content, which was decoded whole.
	ErrTrailing = errors.New("bytes follow the end of the encoded content")

	// ErrCorrupt says that the body is damaged at this point.
	ErrCorrupt = errors.New("corrupt")

	// ErrRatio says that the body grows beyond LimitRatio and LimitFloor.
	ErrRatio = errors.New("decoded content is too large for what it is made from")
)

const (
	// LimitRatio is how many bytes each byte of a body may become. Text reaches 20, logs 100; deflate could reach 1,032 and the others more.
	LimitRatio = 200

	// LimitFloor is how many bytes any body may become, however small: 64 MiB. So a bomb costs no more than that of disk.
	LimitFloor = 64 << 20

	// maxCodings bounds how many codings a body may be in. More than two are not seen outside tests.
	maxCodings = 5
)

// Decode removes the content codings from a body, the last one applied first: contentEncoding is the field's value, a list (RFC 9110, section 8.4).
// It knows gzip (of any number of members), x-gzip, deflate (in zlib's wrapping as RFC 9110 has it, or raw as some servers send it), br, zstd (of any number
// of frames) and identity. An empty body is empty in any coding.
//
// A coding that is not known is ErrUnknownCoding at once; the other errors come from Read. Read needs no more of r than it takes to decode the next
// byte, so events of a stream come as they do. Where r has a method Size() int64, as an io.SectionReader does, LimitRatio counts from that; else from what
// was read so far. Close frees memory, and does not close r.
func Decode(r io.Reader, contentEncoding string) (io.ReadCloser, error) {
	names, err := parseCodings(contentEncoding)
	if err != nil {
		return nil, err
	}
	limit := &ratio{r: r}
	if sized, ok := r.(interface{ Size() int64 }); ok {
		limit.size = sized.Size()
	}
	chain := &decoded{r: limit}
	for i := len(names) - 1; i >= 0; i-- {
		l := newLayer(names[i], chain.r)
		chain.layers = append(chain.layers, l)
		chain.r = &limited{r: l, by: limit}
	}
	return chain, nil
}

// parseCodings returns the codings of a Content-Encoding field that change something, in the order they were applied.
func parseCodings(contentEncoding string) (names []string, err error) {
	for name := range strings.SplitSeq(contentEncoding, ",") {
		name = strings.ToLower(strings.Trim(name, " \t"))
		if name == "" || name == "identity" {
			continue
		}
		if _, known := codings[name]; !known {
			return nil, fmt.Errorf("%w: %.40q", ErrUnknownCoding, name)
		}
		names = append(names, name)
		if len(names) > maxCodings {
			return nil, fmt.Errorf("%w: more than %d codings", ErrUnknownCoding, maxCodings)
		}
	}
	return names, nil
}

// decoded is a body with its codings removed.
type decoded struct {
	r      io.Reader
	layers []*layer
}

func (d *decoded) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *decoded) Close() error {
	d.r = closedReader{}
	for _, l := range d.layers {
		l.close()
	}
	return nil
}

type closedReader struct{}

func (closedReader) Read([]byte) (int, error) { return 0, errors.New("read a closed decoder") }

// ratio counts what is read of the body, to tell what it may become.
type ratio struct {
	r    io.Reader
	read int64
	size int64 // of the whole body, where it is known
}

func (c *ratio) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(n)
	return n, err
}

func (c *ratio) allowed() int64 { return max(LimitFloor, LimitRatio*max(c.read, c.size)) }

// limited guards what one coding makes of a body. Each has its own guard: a later one may be small made from an earlier one that is not.
type limited struct {
	r    io.Reader
	by   *ratio
	made int64
}

func (l *limited) Read(p []byte) (int, error) {
	left := l.by.allowed() - l.made
	if left <= 0 {
		var next [1]byte // the content may end just here
		n, err := l.r.Read(next[:])
		if n > 0 {
			return 0, fmt.Errorf("%w: over %d bytes", ErrRatio, l.made)
		}
		return 0, err
	}
	n, err := l.r.Read(p[:min(int64(len(p)), left)])
	l.made += int64(n)
	return n, err
}
