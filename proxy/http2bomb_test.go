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

// TestHTTP2FieldsDoNotFillMemory has a client send requests of 240 KB that never are answered.
func TestHTTP2FieldsDoNotFillMemory(t *testing.T) {
	const (
		open  = 35       // as many as are let in
		bound = 32 << 20 // bytes: what is let in, as fields and as text, is 17 MB. All would be over 60 MB
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
			enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 4000), Sensitive: true})
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

// TestHTTP2FieldsThatUnfoldAreBounded has a client begin requests of some 100 bytes that are 240 KB each, reset them, and go on for as long as it may.
func TestHTTP2FieldsThatUnfoldAreBounded(t *testing.T) {
	const bound = 5 << 20 // bytes of heads on the sessions: 4 MiB, the last one, and what each may have by itself
	h := startHarness(t, Config{})
	client, conn, _, up := http2Ends(t, h)
	go io.Copy(io.Discard, up.Conn)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	go func() {
		for id := uint32(1); id < 2000; id += 2 {
			block.Reset()
			for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}} {
				enc.WriteField(f)
			}
			for range 60 {
				enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000)})
			}
			client.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
			if client.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	for {
		f, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if away, ok := f.(*http2.GoAwayFrame); ok {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("GOAWAY %v %s", away.ErrCode, away.DebugData())
			}
			break
		}
	}
	conn.Close()
	kept, told := 0, 0
	for id := uint64(1); told == 0; id++ {
		s := h.session(id)
		kept += len(s.Sides[storage.Request].Head)
		if strings.Contains(s.Error, "unfold") {
			told++
			if n := len(s.Sides[storage.Request].Head); s.State != storage.Failed || n > 5<<10 || s.Path != "/" {
				t.Errorf("session %v %q, with a head of %d bytes", s.State, s.Error, n)
			}
		}
	}
	if kept > bound {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestHTTP2RefusedRequestsAreBounded has a client send requests that are refused, of each kind, long after it should know.
func TestHTTP2RefusedRequestsAreBounded(t *testing.T) {
	const sent = maxRefused + 50
	for name, test := range map[string]struct {
		field  hpack.HeaderField
		answer http2.FrameType
		why    string
	}{
		"fields too large": {hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 300<<10), Sensitive: true}, http2.FrameHeaders, "request fields beyond"},
		"a NUL":            {hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 20<<10) + "\x00", Sensitive: true}, http2.FrameRSTStream, "a CR, LF or NUL"},
		"a long path":      {hpack.HeaderField{Name: ":path", Value: strings.Repeat("/", 20<<10) + "\x00", Sensitive: true}, http2.FrameRSTStream, "a CR, LF or NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHarness(t, Config{})
			client, conn, _, up := http2Ends(t, h)
			go io.Copy(io.Discard, up.Conn)
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			for i := range sent {
				block.Reset()
				enc.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
				enc.WriteField(test.field)
				client.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(1 + 2*i), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
				for answered := false; !answered; {
					f, err := client.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					answered = f.Header().Type == test.answer && f.Header().StreamID == uint32(1+2*i)
				}
			}
			conn.Close()
			for id := uint64(1); id <= maxRefused; id++ {
				s := h.session(id)
				if n := len(s.Sides[storage.Request].Head); n > 8<<10 || len(s.Path) > 8<<10 || !strings.Contains(s.Error, test.why) {
					t.Fatalf("session %d: a head of %d bytes, a path of %d, %.200q", id, n, len(s.Path), s.Error)
				}
			}
			if s := h.session(maxRefused + 1); s.State != storage.Failed || !strings.Contains(s.Error, "150 requests of this connection were refused, of which the last 50") || !strings.Contains(s.Error, test.why) {
				t.Errorf("session %v %.300q", s.State, s.Error)
			}
			if n := h.sessions(); n != maxRefused+1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
