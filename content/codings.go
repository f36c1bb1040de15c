package content

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

var gzipMark = []byte{0x1f, 0x8b} // RFC 1952, section 2.3.1

func openGzip(in *bufio.Reader) (io.Reader, error) {
	if head, _ := in.Peek(2); !bytes.HasPrefix(gzipMark, head) {
		return nil, ErrNotEncoded
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, atStart(err)
	}
	z.Multistream(false)
	return &gzipReader{in, z}, nil
}

// gzipReader reads one member after the other, to tell a broken member from bytes that are no member.
type gzipReader struct {
	in *bufio.Reader
	z  *gzip.Reader
}

func (g *gzipReader) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if err != io.EOF {
		return n, err
	}
	switch head, err := g.in.Peek(2); {
	case len(head) == 0:
		return n, err
	case !bytes.HasPrefix(gzipMark, head):
		return n, ErrTrailing
	}
	if err := g.z.Reset(g.in); err != nil {
		return n, atStart(err)
	}
	g.z.Multistream(false)
	return n, nil
}

// atStart is for readers of headers that say io.EOF where a header that has begun ends.
func atStart(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// openDeflate tells zlib's wrapping from raw deflate by zlib's header: method 8, a window of at most 32 KiB, and a check sum (RFC 1950, section 2.2).
// Raw deflate cannot look so: its first bits would say a stored block with padding that is not zero.
func openDeflate(in *bufio.Reader) (io.Reader, error) {
	head, _ := in.Peek(2)
	if len(head) < 2 || head[0]&0x0f != 8 || head[0]>>4 > 7 || (int(head[0])<<8|int(head[1]))%31 != 0 {
		return openDeflateRaw(in)
	}
	z, err := zlib.NewReader(in)
	if err != nil {
		return nil, atStart(err)
	}
	return &ended{in, z}, nil
}

func openDeflateRaw(in *bufio.Reader) (io.Reader, error) {
	if isPlain(in, func(r *bufio.Reader) io.Reader { return flate.NewReader(r) }) {
		return nil, ErrNotEncoded
	}
	return &ended{in, flate.NewReader(in)}, nil
}

// ended looks whether anything follows the end.
type ended struct {
	in *bufio.Reader
	z  io.Reader
}

func (e *ended) Read(p []byte) (int, error) {
	n, err := e.z.Read(p)
	if err == io.EOF {
		if head, _ := e.in.Peek(1); len(head) > 0 {
			err = ErrTrailing
		}
	}
	return n, err
}

// openBrotli opens a decoder whose window is at most 16 MiB, as RFC 7932 has it.
func openBrotli(in *bufio.Reader) (io.Reader, error) {
	if isPlain(in, func(r *bufio.Reader) io.Reader { return brotli.NewReader(r) }) {
		return nil, ErrNotEncoded
	}
	return &brotliReader{in, brotli.NewReader(brotliFeed{in})}, nil
}

type brotliReader struct {
	in *bufio.Reader
	z  *brotli.Reader
}

func (b *brotliReader) Read(p []byte) (int, error) {
	n, err := b.z.Read(p)
	if err != nil && err.Error() == "brotli: excessive input" { // it has no name
		err = io.EOF
		if head, _ := b.in.Peek(1); len(head) > 0 {
			err = ErrTrailing
		}
	}
	return n, err
}

// brotliFeed gives what it has in two reads, the second of one byte. The decoder complains of excessive input also where it took the last bytes of a whole
// body one by one; it is right where something is left here. A single byte too much can escape so.
type brotliFeed struct{ in *bufio.Reader }

func (f brotliFeed) Read(p []byte) (int, error) {
	if _, err := f.in.Peek(1); err != nil {
		return 0, err
	}
	n := f.in.Buffered()
	if n > 1 {
		n--
	}
	return f.in.Read(p[:min(n, len(p))])
}

// zstdWindow bounds a frame's window, and so what its decoder holds. RFC 9659: a content coding must need no more than 8 MB, and browsers refuse more.
const zstdWindow = 8 << 20

// The marks of a zstd frame and of a skippable one, but for its lowest half byte. RFC 8878, section 3.1.
var (
	zstdMark = []byte{0x28, 0xb5, 0x2f, 0xfd}
	zstdSkip = []byte{0x50, 0x2a, 0x4d, 0x18}
)

func openZstd(in *bufio.Reader) (io.Reader, error) {
	head, _ := in.Peek(4)
	skip := bytes.Clone(head)
	skip[0] &= 0xf0
	if !bytes.HasPrefix(zstdMark, head) && !bytes.HasPrefix(zstdSkip, skip) {
		return nil, ErrNotEncoded
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	return &zstdReader{z}, nil
}

// zstdReader is a decoder that says what is wrong in the words of this package.
type zstdReader struct{ *zstd.Decoder }

func (z *zstdReader) Read(p []byte) (int, error) {
	n, err := z.Decoder.Read(p)
	switch {
	case errors.Is(err, zstd.ErrMagicMismatch): // the first frame's mark was good, so this is after a frame's end
		err = ErrTrailing
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		err = fmt.Errorf("its window is larger than the %d MiB that RFC 9659 allows", zstdWindow>>20)
	}
	return n, err
}
