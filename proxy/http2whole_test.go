package proxy

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/storage"
)

// awaitFrame reads frames until one of the kind.
func awaitFrame(t *testing.T, fr *http2.Framer, kind http2.FrameType) http2.Frame {
	t.Helper()
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().Type == kind {
			return f
		}
	}
}

// http2Hello asks for a stream, and returns when the client has the response's field and "hello" of its body, which does not end.
func http2Hello(t *testing.T, h *harness, name, value string) (*http2.Framer, *peerConn) {
	t.Helper()
	client, c, origin, _ := http2Ends(t, h)
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84, 0x86}, EndStream: true, EndHeaders: true})
	awaitFrame(t, origin, http2.FrameHeaders)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	enc.WriteField(hpack.HeaderField{Name: name, Value: value})
	origin.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	origin.WriteData(1, false, []byte("hello"))
	awaitFrame(t, client, http2.FrameData)
	return client, c
}

// A client that leaves when it has as many bytes as Content-Length promises has got all, although the stream's end is still to come; with one byte fewer it has not.
func TestHTTP2ResponseIsWholeAtItsLength(t *testing.T) {
	reset := func(code http2.ErrCode) func(*http2.Framer, *peerConn) {
		return func(client *http2.Framer, _ *peerConn) { client.WriteRSTStream(1, code) }
	}
	closes := func(_ *http2.Framer, c *peerConn) { c.Close() }
	for _, test := range []struct {
		name   string
		head   []string
		leaves func(*http2.Framer, *peerConn)
		want   storage.State
	}{
		{"NO_ERROR", []string{"content-length", "5"}, reset(http2.ErrCodeNo), storage.Done},
		{"CANCEL", []string{"content-length", "5"}, reset(http2.ErrCodeCancel), storage.Done},
		{"STREAM_CLOSED", []string{"content-length", "5"}, reset(http2.ErrCodeStreamClosed), storage.Done},
		{"a closed connection", []string{"content-length", "5"}, closes, storage.Done},
		{"a complaint", []string{"content-length", "5"}, reset(http2.ErrCodeProtocol), storage.ClientAborted},
		{"a byte too early", []string{"content-length", "6"}, reset(http2.ErrCodeCancel), storage.ClientAborted},
		{"closed a byte too early", []string{"content-length", "6"}, closes, storage.ClientAborted},
		{"without a length", []string{"content-type", "text/plain"}, reset(http2.ErrCodeCancel), storage.ClientAborted},
	} {
		for _, modified := range []bool{false, true} {
			t.Run(test.name+", modifiers "+strconv.FormatBool(modified), func(t *testing.T) {
				var cfg Config
				if modified {
					cfg.ResponseModifier = onResponse(func(res *http.Response) error { res.Header.Set("X-Seen", "yes"); return nil })
				}
				h := startHarness(t, cfg)
				client, c := http2Hello(t, h, test.head[0], test.head[1])
				test.leaves(client, c)
				s := h.session(1)
				if s.State != test.want {
					t.Errorf("got %v, %q", s.State, s.Error)
				}
				if got := h.body(1, storage.Response); got != "hello" || s.Sides[storage.Response].Body.Complete != (test.want == storage.Done) {
					t.Errorf("the body is %q, complete %v", got, s.Sides[storage.Response].Body.Complete)
				}
			})
		}
	}
}

// A client that closes in the middle of a body that a modifier wraps has left; Millpond has not been stopped.
func TestHTTP2ClientThatLeavesAWrappedBody(t *testing.T) {
	for range 10 {
		h := startHarness(t, Config{ResponseModifier: onResponse(func(res *http.Response) error { res.Body = upper(res.Body); return nil })})
		_, c := http2Hello(t, h, "content-type", "text/plain")
		c.Close()
		if s := h.session(1); s.State != storage.ClientAborted {
			t.Errorf("got %v, %q", s.State, s.Error)
		}
	}
}

// HTTP/1, by the same rule: the client closes with the last byte, and upstream keeps its connection.
func TestHTTP1ResponseIsWholeAtItsLength(t *testing.T) {
	for range 20 {
		h, c, up := startGet(t, Config{})
		up.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
		up.send("lo")
		c.head()
		c.expect("hello")
		c.Close()
		if s := h.session(1); s.State != storage.Done || !s.Sides[storage.Response].Body.Complete {
			t.Errorf("got %v, %q", s.State, s.Error)
		}
		up.Close()
	}
}
