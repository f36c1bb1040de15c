package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"millpond/storage"
)

// send sends a request, in which ADDR stands for the origin, on a connection of its own.
func (h *harness) send(addr, request string) *peerConn {
	c := h.dial()
	c.send(strings.NewReplacer("ADDR", addr).Replace(request))
	return c
}

// Chunked framing passes byte for byte, and the session shows what of it is neither field nor body.
func TestChunkExtensionsAreOnTheSession(t *testing.T) {
	const sent = "5;a=b\r\nhello\r\n00A ; sig=\"x;y\"\r\n0123456789\r\n1\r\n!\r\n0;last\r\nX-Sum: 6\r\n\r\n"
	want := []storage.ChunkExtension{
		{Offset: 0, Size: 5, Text: []byte(";a=b")},
		{Offset: 5, Size: 10, Text: []byte(` ; sig="x;y"`)},
		{Offset: 16, Size: 0, Text: []byte(";last")},
	}
	h, o := startHarness(t, Config{}), startOrigin(t)
	c := h.send(o.addr, "POST http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n"+sent)
	up := o.accept()
	up.head()
	up.expect(sent)
	up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent)
	c.head()
	c.expect(sent)
	s := h.session(1)
	for side, m := range s.Sides {
		if got := fmt.Sprint(m.Chunks.Extensions); got != fmt.Sprint(want) || m.Chunks.Cut != 0 {
			t.Errorf("%v: got %s, %d more bytes, want %v", storage.Side(side), got, m.Chunks.Cut, want)
		}
		if m.Framing != storage.FramingChunked || string(m.Trailers) != "X-Sum: 6\r\n\r\n" {
			t.Errorf("%v: framing %v, trailers %q", storage.Side(side), m.Framing, m.Trailers)
		}
		h.expectBody(s, storage.Side(side), "hello0123456789!")
	}
}

// A body that is signed chunk by chunk has extensions without end. The first are kept, the others counted.
func TestChunkExtensionsAreBounded(t *testing.T) {
	h, o := startHarness(t, Config{}), startOrigin(t)
	long := ";" + strings.Repeat("x", maxExtensionBytes)
	for n, test := range []struct {
		name, extension   string
		chunks            int
		kept, bytes, left int
	}{
		{"many", ";x", maxExtensions + 7, maxExtensions, 2 * maxExtensions, 2 * 7},
		{"as many as are kept", ";x", maxExtensions, maxExtensions, 2 * maxExtensions, 0},
		{"long", long, 2, 1, maxExtensionBytes, 2*len(long) - maxExtensionBytes},
		{"as long as is kept", long[:maxExtensionBytes], 1, 1, maxExtensionBytes, 0},
	} {
		body := strings.Repeat("1"+test.extension+"\r\n!\r\n", test.chunks) + "0\r\n\r\n"
		c := h.send(o.addr, "GET http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\n\r\n")
		up := o.accept()
		up.head()
		up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
		c.head()
		c.expect(body)
		m := h.session(uint64(n + 1)).Sides[storage.Response]
		total := 0
		for _, e := range m.Chunks.Extensions {
			total += len(e.Text)
		}
		if len(m.Chunks.Extensions) != test.kept || total != test.bytes || m.Chunks.Cut != uint64(test.left) {
			t.Errorf("%s: got %d of %d bytes, %d bytes left out, want %d of %d, %d", test.name, len(m.Chunks.Extensions), total, m.Chunks.Cut, test.kept, test.bytes, test.left)
		}
	}
}

func TestFramingIsOnTheSession(t *testing.T) {
	const none, length, chunked, toEnd = storage.FramingNone, storage.FramingLength, storage.FramingChunked, storage.FramingClose
	h, o := startHarness(t, Config{}), startOrigin(t)
	for n, test := range []struct {
		request, response string
		want              [2]storage.Framing
	}{
		{"GET http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", [2]storage.Framing{none, none}},
		{"POST http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", [2]storage.Framing{length, length}},
		{"POST http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nab", [2]storage.Framing{chunked, toEnd}},
		{"GET http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nab", [2]storage.Framing{none, toEnd}},
		{"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n", "", [2]storage.Framing{none, length}},
	} {
		c := h.send(o.addr, test.request)
		if test.response != "" {
			up := o.accept()
			up.head()
			up.send(test.response)
			up.Close()
		}
		c.head()
		c.Close()
		s := h.session(uint64(n + 1))
		if got := [2]storage.Framing{s.Sides[0].Framing, s.Sides[1].Framing}; got != test.want {
			t.Errorf("%.40q, %.40q: got %v, want %v", test.request, test.response, got, test.want)
		}
	}
}

// A body that a modifier made is framed anew, and that is what the session tells.
func TestFramingOfAModifiersBody(t *testing.T) {
	h := startHarness(t, Config{ResponseModifier: onResponse(func(res *http.Response) error {
		res.Body, res.ContentLength = http.NoBody, 0
		res.TransferEncoding = nil
		res.Header.Set("Content-Length", "0")
		return nil
	})})
	o := startOrigin(t)
	c := h.send(o.addr, "GET http://ADDR/ HTTP/1.1\r\nHost: ADDR\r\n\r\n")
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
	c.head()
	if s := h.session(1); s.Sides[storage.Response].Framing != storage.FramingNone {
		t.Errorf("got %v", s.Sides[storage.Response].Framing)
	}
}
