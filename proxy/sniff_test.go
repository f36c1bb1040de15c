package proxy

import (
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		sent string
		want inside
	}{
		{"\x16", undecided},
		{"\x16\x03", insideTLS},
		{"\x16\x03\x01\x02\x00\x01", insideTLS},
		{"\x16\x02", insideOther},
		{"P", undecided},
		{"PRI", undecided},
		{"PRI * HTTP/2.0", undecided},
		{"PRI * HTTP/2.0\r\n", insideHTTP2},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", insideHTTP2},
		{"PRI /x HTTP/1.1\r\n", insideHTTP1},
		{"POST", undecided},
		{"POST ", undecided},
		{"POST /", insideHTTP1},
		{"get /", insideHTTP1},
		{"M-SEARCH * HTTP/1.1", insideHTTP1},
		{"OPTIONS *", undecided},
		{"GET http://example.com/", insideHTTP1},
		{"GET HTTPS://example.com/", insideHTTP1},
		{"GET ht", undecided},
		{"GET  /", insideOther},
		{"CONNECT example.com:443 HTTP/1.1", insideOther},
		{"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", insideOther},
		{"EHLO example.com\r\n", insideOther},
		{"* OK ready\r\n", insideOther}, // IMAP
		{"\x00", insideOther},
		{"{\"id\":1}", insideOther},
		{strings.Repeat("A", methodLimit), undecided},
		{strings.Repeat("A", methodLimit+1), insideOther},
	} {
		if got := classify([]byte(test.sent)); got != test.want {
			t.Errorf("classify(%q) = %d, want %d", test.sent, got, test.want)
		}
	}
}

// FuzzClassify: a verdict does not change with what follows, and a longer prefix than the longest possible undecided one is decided.
func FuzzClassify(f *testing.F) {
	f.Add([]byte("PRI * HTTP/2.0\r\n"), []byte("x"))
	f.Add([]byte("OPTIONS * "), []byte("HTTP/1.1"))
	f.Add([]byte{0x16, 3}, []byte{1})
	f.Fuzz(func(t *testing.T, b, more []byte) {
		if len(b) == 0 {
			return
		}
		got := classify(b)
		if got == undecided && len(b) > methodLimit+len(" https:") {
			t.Errorf("%q is undecided after %d bytes", b, len(b))
		}
		if after := classify(append(b[:len(b):len(b)], more...)); got != undecided && after != got {
			t.Errorf("%q is %d, and with %q it is %d", b, got, more, after)
		}
	})
}
