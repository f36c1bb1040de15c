package proxy

import (
	"strings"
	"testing"
)

func TestRequestFraming(t *testing.T) {
	for _, tt := range []struct {
		fields string
		want   framing
		err    string
	}{
		{"", framing{}, ""},
		{"Content-Length: 0\r\n", framing{}, ""},
		{"content-length: 12\r\n", framing{byLength, 12}, ""},
		{"Content-Length: 12, 12\r\nContent-Length: 12\r\n", framing{byLength, 12}, ""},
		{"Content-Length: 9223372036854775807\r\n", framing{byLength, 1<<63 - 1}, ""},
		{"Transfer-Encoding: Chunked\r\n", framing{kind: byChunks}, ""},
		{"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", framing{kind: byChunks}, ""},
		{"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", framing{}, "both"},
		{"Content-Length: 3\r\nContent-Length: 4\r\n", framing{}, "differ"},
		{"Content-Length: 3, 4\r\n", framing{}, "differ"},
		{"Content-Length: +3\r\n", framing{}, "not a length"},
		{"Content-Length: -3\r\n", framing{}, "not a length"},
		{"Content-Length: 0x3\r\n", framing{}, "not a length"},
		{"Content-Length: 3 3\r\n", framing{}, "not a length"},
		{"Content-Length:\r\n", framing{}, "not a length"},
		{"Content-Length: 3,\r\n", framing{}, "not a length"},
		{"Content-Length: 9223372036854775808\r\n", framing{}, "not a length"},
		{"Transfer-Encoding: gzip\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding: chunked, gzip\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding: chunked, chunked\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding: xchunked\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding:\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding: identity\r\n", framing{}, "does not end in chunked"},
		{"Transfer-Encoding: chunked;q=1\r\n", framing{}, "does not end in chunked"},
	} {
		h, err := parseRequestHead([]byte("POST / HTTP/1.1\r\n" + tt.fields + "\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := requestFraming(h)
		if tt.err == "" && (err != nil || got != tt.want) {
			t.Errorf("%q: got %v, %v, want %v", tt.fields, got, err, tt.want)
		}
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: got %v, want an error with %q", tt.fields, err, tt.err)
		}
	}
	h, _ := parseRequestHead([]byte("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"))
	if _, err := requestFraming(h); err == nil {
		t.Error("chunked coding in HTTP/1.0: got no error")
	}
}

func TestResponseFraming(t *testing.T) {
	until := framing{kind: untilClose}
	for _, tt := range []struct {
		name, method, head string
		want               framing
		ambiguous, drop    bool
	}{
		{"head", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\n", framing{}, false, false},
		{"head, chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", framing{}, false, false},
		{"204", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n", framing{}, false, false},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n", framing{}, false, false},
		{"205", "GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n", framing{}, false, false},
		{"205 without a length", "GET", "HTTP/1.1 205 Reset Content\r\n", until, false, false},
		{"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", framing{byLength, 3}, false, false},
		{"chunked", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", framing{kind: byChunks}, false, false},
		{"neither", "GET", "HTTP/1.1 200 OK\r\n", until, false, false},
		{"gzip alone", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", until, false, false},
		{"both", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", framing{kind: byChunks}, true, true},
		{"identity and a length", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Identity\r\nContent-Length: 3\r\n", framing{kind: byLength, length: 3}, true, false},
		{"identity and no bytes", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n", framing{}, true, false},
		{"identity alone", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n", until, false, false},
		{"both, bad length", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: x\r\n", framing{kind: byChunks}, true, true},
		{"lengths differ", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n", until, true, false},
		{"bad length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n", until, true, false},
		{"chunked first", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n", until, true, false},
		{"chunked twice", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n", until, true, false},
		{"chunked in HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", until, true, false},
		{"space before the colon", "GET", "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n", until, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := parseResponseHead([]byte(tt.head + "\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			f, ambiguous, drop := responseFraming(h, tt.method)
			if f != tt.want || (ambiguous != "") != tt.ambiguous || drop != tt.drop {
				t.Errorf("got %v, %q, %v, want %v, %v, %v", f, ambiguous, drop, tt.want, tt.ambiguous, tt.drop)
			}
		})
	}
}
