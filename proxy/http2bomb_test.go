package proxy

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/storage"
)

// TestHTTP2CompressedFieldsDoNotFillMemory has a client send requests of some 100 bytes that are 240 KB each, and never are answered.
func TestHTTP2CompressedFieldsDoNotFillMemory(t *testing.T) {
	const (
		open  = 35       // as many as are let in
		bound = 24 << 20 // bytes: what is let in, as fields and as text. All would be over 60 MB
	)
	h := startHarness(t, Config{})
	client, _, _, up := http2Ends(t, h)
	go io.Copy(io.Discard, up.Conn)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	id := uint32(1)
	send := func() {
		block.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}} {
			enc.WriteField(f)
		}
		for range 60 {
			enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000)})
		}
		client.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		id += 2
	}
	next := func(what func(http2.Frame) bool) {
		t.Helper()
		for {
			f, err := client.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if what(f) {
				return
			}
		}
	}
	before := holdings()
	for range open + 100 {
		send()
	}
	client.WritePing(false, [8]byte{})
	next(func(f http2.Frame) bool {
		return f.Header().Type == http2.FrameRSTStream && f.Header().StreamID == id-2
	})
	if now := holdings(); now.heap > before.heap+bound {
		t.Errorf("%d bytes are held", now.heap-before.heap)
	}
	send()
	next(func(f http2.Frame) bool {
		away, ok := f.(*http2.GoAwayFrame)
		return ok && away.ErrCode == http2.ErrCodeEnhanceYourCalm
	})
	s := h.session(open + 1)
	if n := len(s.Sides[storage.Request].Head); s.State != storage.Failed || n < 1<<10 || n > 5<<10 || s.Path != "/" || !strings.Contains(s.Error, "open streams") {
		t.Errorf("session %v %q, with a head of %d bytes", s.State, s.Error, n)
	}
}
