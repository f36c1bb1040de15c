package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadHeadKeepsBytesAndWhatFollows(t *testing.T) {
	const odd = "GET / HTTP/1.1\r\nhOsT: a\r\nEmpty:\r\nX: caf\xe9\r\nX:  two  \r\nfold: a\r\n b\r\n\r\n"
	for _, tt := range []struct{ name, in, want, rest string }{
		{"crlf", odd + "body", odd, "body"},
		{"lf", "GET / HTTP/1.1\nA: b\n\nbody", "GET / HTTP/1.1\nA: b\n\n", "body"},
		{"mixed end", "GET / HTTP/1.1\nA: b\n\r\nbody", "GET / HTTP/1.1\nA: b\n\r\n", "body"},
		{"no fields", "GET / HTTP/1.1\r\n\r\nbody", "GET / HTTP/1.1\r\n\r\n", "body"},
		{"empty lines before", "\r\n\n\r\nGET / HTTP/1.1\r\n\r\nbody", "GET / HTTP/1.1\r\n\r\n", "body"},
		{"larger than the buffer", "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 40_000) + "\r\n\r\nbody", "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 40_000) + "\r\n\r\n", "body"},
	} {
		for how, r := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)), "with its error": iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				br := bufio.NewReaderSize(r, clientReadSize)
				raw, err := readHead(br, 256<<10)
				if err != nil || string(raw) != tt.want {
					t.Fatalf("got %.100q, %v, want %.100q", raw, err, tt.want)
				}
				if rest, err := io.ReadAll(br); string(rest) != tt.rest || err != nil {
					t.Errorf("left behind: got %q, %v, want %q", rest, err, tt.rest)
				}
			})
		}
	}
}

func TestReadHeadEnds(t *testing.T) {
	const limit = 1 << 10
	fits := "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", limit-len("GET / HTTP/1.1\r\nA: \r\n\r\n")) + "\r\n\r\n"
	for _, tt := range []struct {
		name, in string
		want     error
		kept     int
	}{
		{"nothing", "", errNoHead, 0},
		{"only empty lines", "\r\n\r\n", errNoHead, 0},
		{"at the limit", fits, nil, limit},
		{"one beyond", strings.Replace(fits, "x", "xx", 1), errHeadTooLarge, limit},
		{"endless line", "GET " + strings.Repeat("x", 10*limit), errHeadTooLarge, limit},
		{"endless empty lines", strings.Repeat("\r\n", limit), errHeadTooLarge, 0},
		{"ends early", "GET / HT", io.EOF, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := readHead(bufio.NewReaderSize(strings.NewReader(tt.in), clientReadSize), limit)
			if !errors.Is(err, tt.want) || len(raw) != tt.kept {
				t.Errorf("got %d bytes, %v, want %d, %v", len(raw), err, tt.kept, tt.want)
			}
		})
	}
}

func TestReadHeadOfAnEndlessLineHoldsNoMoreThanTheLimit(t *testing.T) {
	const limit = 256 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readHead(bufio.NewReaderSize(neverending('a'), clientReadSize), limit); !errors.Is(err, errHeadTooLarge) {
		t.Errorf("got %v, want %v", err, errHeadTooLarge)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8*limit { // it grows by doubling or less
		t.Errorf("%d bytes were allocated, want at most %d", allocated, 8*limit)
	}
}

type neverending byte

func (b neverending) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestParseRequestHead(t *testing.T) {
	h, err := parseRequestHead([]byte("GET /\xe6\xb5\x8b%zz?a=[] HTTP/1.1\r\nhOsT: a\r\nEmpty:\r\nX: caf\xe9\x01\r\na=b; c Server: x\r\nX:\ttwo \r\nFold: one\r\n\t two\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if h.method != "GET" || h.target != "/\xe6\xb5\x8b%zz?a=[]" || h.proto != "HTTP/1.1" {
		t.Errorf("got %q %q %q", h.method, h.target, h.proto)
	}
	want := []field{
		{name: "hOsT", value: "a", line: "hOsT: a\r\n"},
		{name: "Empty", value: "", line: "Empty:\r\n"},
		{name: "X", value: "caf\xe9\x01", line: "X: caf\xe9\x01\r\n"},
		{name: "a=b; c Server", value: "x", line: "a=b; c Server: x\r\n"},
		{name: "X", value: "two", line: "X:\ttwo \r\n"},
		{name: "Fold", value: "one two", line: "Fold: one\r\n\t two\r\n"},
	}
	if len(h.fields) != len(want) {
		t.Fatalf("got %d fields %+v, want %d", len(h.fields), h.fields, len(want))
	}
	for i := range want {
		if h.fields[i] != want[i] {
			t.Errorf("field %d: got %+v, want %+v", i, h.fields[i], want[i])
		}
	}
	if !h.oddName {
		t.Error("the name with spaces is not told")
	}
}

func TestParseRequestHeadRefuses(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"garbage", "\x16\x03\x01 hello\r\n\r\n", "is not an HTTP request"},
		{"no version", "GET /\r\n\r\n", "no HTTP version"},
		{"other version", "GET / HTTP/3.0\r\n\r\n", "HTTP/1.0 or HTTP/1.1"},
		{"spaces in the target", "GET /a b HTTP/1.1\r\n\r\n", "one target"},
		{"space before the colon", "GET / HTTP/1.1\r\nContent-Length : 3\r\n\r\n", "space stands before the colon"},
		{"bare CR in a field", "GET / HTTP/1.1\r\nA: b\rContent-Length: 3\r\n\r\n", "carriage return"},
		{"bare CR in the first line", "GET /\r HTTP/1.1\r\n\r\n", "carriage return"},
		{"folded framing", "GET / HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\n\r\n", "folded"},
		{"fold at the start", "GET / HTTP/1.1\r\n A: b\r\n\r\n", "begins with a space"},
		{"no colon", "GET / HTTP/1.1\r\nHello\r\n\r\n", "no name and colon"},
		{"no name", "GET / HTTP/1.1\r\n: b\r\n\r\n", "no name and colon"},
		{"control byte in a name", "GET / HTTP/1.1\r\nX\x01: b\r\n\r\n", "a control byte stands in the name of line 2"},
		{"control byte after a framing name", "GET / HTTP/1.1\r\nA: b\r\nContent-Length\x0b: 3\r\n\r\n", "a control byte stands in the name of line 3"},
		{"tab in a name", "GET / HTTP/1.1\r\nX\tY: b\r\n\r\n", "a control byte stands in the name"},
		{"DEL in a name", "GET / HTTP/1.1\r\nX\x7f: b\r\n\r\n", "a control byte stands in the name"},
		{"no-break space after a framing name", "GET / HTTP/1.1\r\ntransfer-encoding\xa0: chunked\r\n\r\n", "is Transfer-Encoding to who trims it"},
		{"quotes around a framing name", "GET / HTTP/1.1\r\n\"Content-Length\": 3\r\n\r\n", "is Content-Length to who trims it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseRequestHead([]byte(tt.in)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestParseResponseHead(t *testing.T) {
	for _, tt := range []struct {
		in        string
		status    int
		ambiguous bool
		fails     bool
	}{
		{in: "HTTP/1.1 200 OK\r\n\r\n", status: 200},
		{in: "HTTP/1.0 401 Non-Autoris\xe9\r\n\r\n", status: 401},
		{in: "HTTP/1.1 999\r\n\r\n", status: 999},
		{in: "HTTP/1.1 204 \r\n\r\n", status: 204},
		{in: "HTTP/1.1 200 OK\r\nPragma:\r\nno colon\r\n\r\n", status: 200, ambiguous: true},
		{in: "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\n", status: 200, ambiguous: true},
		{in: "HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", status: 200, ambiguous: true},
		{in: "HTTP/2 200 OK\r\n\r\n", fails: true},
		{in: "HTTP/1.1 20 OK\r\n\r\n", fails: true},
		{in: "HTTP/1.1 099 OK\r\n\r\n", fails: true},
		{in: "SSH-2.0-x\r\n\r\n", fails: true},
	} {
		h, err := parseResponseHead([]byte(tt.in))
		if (err != nil) != tt.fails {
			t.Errorf("%q: got %v", tt.in, err)
		}
		if err == nil && (h.status != tt.status || (h.ambiguous != "") != tt.ambiguous) {
			t.Errorf("%q: got %d, ambiguous %q, want %d, %v", tt.in, h.status, h.ambiguous, tt.status, tt.ambiguous)
		}
	}
}

func TestHeadWithKeepsLines(t *testing.T) {
	h, err := parseRequestHead([]byte("GET / HTTP/1.1\nhOsT:   a\nFold: b\n c\nX: 1\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	fields := append([]field{}, h.fields...)
	fields[2] = field{name: "X", value: "2"}
	got := h.with("GET /new HTTP/1.1", fields)
	if want := "GET /new HTTP/1.1\nhOsT:   a\nFold: b\n c\nX: 2\n\n"; string(got.raw) != want {
		t.Errorf("got %q, want %q", got.raw, want)
	}
}

func FuzzRequestHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("POST http://a/b HTTP/1.0\nTransfer-Encoding: chunked\nX: a\n b\n\n"))
	f.Add([]byte("\r\nPUT * HTTP/1.1\r\nContent-Length: 1, 1\r\nA : b\r\n\r\nx"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 1 << 10
		r := bufio.NewReaderSize(bytes.NewReader(in), 16)
		raw, err := readHead(r, limit)
		if len(raw) > limit {
			t.Fatalf("%d bytes were kept, the limit is %d", len(raw), limit)
		}
		if err != nil {
			return
		}
		if !bytes.Contains(in, raw) {
			t.Fatalf("the head %q is not in the input", raw)
		}
		if h, err := parseRequestHead(raw); err == nil {
			// What is not changed goes out as it came.
			if again := h.with(h.start, h.fields); !bytes.Equal(again.raw, raw) {
				t.Fatalf("rendered as %q, was %q", again.raw, raw)
			}
			requestFraming(h)
		}
		if h, err := parseResponseHead(raw); err == nil {
			responseFraming(h, "GET")
		}
	})
}
