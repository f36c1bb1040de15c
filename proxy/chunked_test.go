package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/iotest"
)

// decodeChunks runs a scanner over in, in pieces of n bytes, and returns the data and what follows the body.
func decodeChunks(in string, n int, lenient bool) (data, rest, trailers string, done bool, err error) {
	c := chunks{limit: 1 << 10, lenient: lenient}
	var out []byte
	for in != "" && !c.done {
		piece := in[:min(n, len(in))]
		used, spans, err := c.scan([]byte(piece), nil)
		for _, s := range spans {
			out = append(out, piece[s.from:s.to]...)
		}
		in = in[used:]
		if err != nil {
			return string(out), in, "", false, err
		}
	}
	return string(out), in, string(c.trailers), c.done, nil
}

func TestChunks(t *testing.T) {
	for _, tt := range []struct{ name, in, data, trailers, rest string }{
		{"empty", "0\r\n\r\nnext", "", "", "next"},
		{"two", "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", "", ""},
		{"extensions", "3;a=b;c=\"d;e\"\r\nabc\r\n00 ;x\r\n\r\n", "abc", "", ""},
		{"leading zeros", "0000003\r\nabc\r\n000\r\n\r\n", "abc", "", ""},
		{"trailers", "1\r\na\r\n0\r\nX-T: 1\r\nGrpc-Status:0\r\n\r\nnext", "a", "X-T: 1\r\nGrpc-Status:0\r\n\r\n", "next"},
		{"line ends in the data", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", "", ""},
	} {
		for n := 1; n <= len(tt.in); n++ {
			data, rest, trailers, done, err := decodeChunks(tt.in, n, false)
			if err != nil || !done || data != tt.data || trailers != tt.trailers || rest != tt.rest {
				t.Errorf("%s in pieces of %d: got %q, trailers %q, rest %q, done %v, %v", tt.name, n, data, trailers, rest, done, err)
			}
		}
	}
}

func TestChunksRefuse(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"no size", "\r\nabc"},
		{"not hex", "g\r\n"},
		{"sign", "-1\r\n"},
		{"prefix", "0x3\r\nabc\r\n0\r\n\r\n"},
		{"space first", " 3\r\nabc\r\n"},
		{"size beyond 63 bits", "8000000000000000\r\n"},
		{"data longer than its size", "3\r\nabcd\r\n0\r\n\r\n"},
		{"lone LF after a size", "3\nabc\r\n0\r\n\r\n"},
		{"lone LF in an extension", "3;a\nabc\r\n0\r\n\r\n"},
		{"lone CR in an extension", "3;a\rb\r\nabc\r\n"},
		{"lone LF after data", "3\r\nabc\n0\r\n\r\n"},
		{"text behind a size", "3 x\r\nabc\r\n0\r\n\r\n"},
		{"text behind a size and a tab", "3\t 0\r\nabc\r\n0\r\n\r\n"},
		{"endless extension", "3;" + strings.Repeat("a", 2<<10)},
		{"endless trailers", "0\r\n" + strings.Repeat("A: b\r\n", 1<<10)},
	} {
		for _, n := range []int{1, 7, 1 << 20} {
			if data, _, _, done, err := decodeChunks(tt.in, n, false); err == nil {
				t.Errorf("%s: got %q, done %v, want an error", tt.name, data, done)
			}
		}
	}
	for _, in := range []string{"3\nabc\n0\n\n", "3 x\r\nabc\r\n0\r\n\r\n"} {
		if data, _, _, done, err := decodeChunks(in, 2, true); err != nil || data != "abc" || !done {
			t.Errorf("lenient, %q: got %q, done %v, %v", in, data, done, err)
		}
	}
}

func TestBodyReader(t *testing.T) {
	const chunked = "3\r\nabc\r\n0A;x\r\n0123456789\r\n0\r\nT: 1\r\n\r\n"
	for _, tt := range []struct {
		name, in, want, rest string
		f                    framing
	}{
		{"none", "next", "", "next", framing{}},
		{"length", "0123456789next", "0123456789", "next", framing{byLength, 10}},
		{"chunked", chunked + "next", "abc0123456789", "next", framing{kind: byChunks}},
		{"until the end", "0123", "0123", "", framing{kind: untilClose}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReaderSize(iotest.HalfReader(strings.NewReader(tt.in)), 16)
			if err := iotest.TestReader(newBodyReader(r, tt.f, 1<<10), []byte(tt.want)); err != nil {
				t.Error(err)
			}
			if rest, _ := io.ReadAll(r); string(rest) != tt.rest {
				t.Errorf("left behind: got %q, want %q", rest, tt.rest)
			}
		})
	}
	for _, in := range []string{"3\r\nab", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n"} {
		if _, err := io.ReadAll(newBodyReader(bufio.NewReader(strings.NewReader(in)), framing{kind: byChunks}, 1<<10)); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: got %v, want %v", in, err, io.ErrUnexpectedEOF)
		}
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte("3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\nnext"), 3)
	f.Add([]byte("A\r\n0123456789\r\n00\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		if n <= 0 || n > 1<<16 {
			n = 1
		}
		data, rest, trailers, done, err := decodeChunks(string(in), n, false)
		if len(data)+len(rest) > len(in) || len(trailers) > 1<<10 {
			t.Fatalf("got more than there was")
		}
		whole, wholeRest, _, wholeDone, wholeErr := decodeChunks(string(in), len(in)+1, false)
		if data != whole || done != wholeDone || (err == nil) != (wholeErr == nil) || err == nil && rest != wholeRest {
			t.Fatalf("in pieces of %d: %q, %v, %v; whole: %q, %v, %v", n, data, done, err, whole, wholeDone, wholeErr)
		}
		if !done {
			return
		}
		// What we take for a whole body, net/http does not read as another.
		if got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in))); err == nil && string(got) != data {
			t.Fatalf("got %q, net/http reads %q", data, got)
		}
	})
}
