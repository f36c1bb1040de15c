package h2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestPaddingAndPriorityPass(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.fr.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: r.client.encode(fields(get)), EndHeaders: true, PadLength: 7,
		Priority: http2.PriorityParam{StreamDep: 0, Weight: 99, Exclusive: true},
	})
	r.upstream.want("HEADERS 1 priority=0/99/true padded " + get)
	r.client.fr.WriteDataPadded(1, false, []byte("padded"), make([]byte, 200))
	r.client.fr.WriteDataPadded(1, false, nil, make([]byte, 9))
	r.client.fr.WriteDataPadded(1, true, []byte("x"), []byte{})
	r.upstream.want(`DATA 1 pad=200 "padded"`, `DATA 1 pad=9 ""`, `DATA 1 end pad=0 "x"`)
	r.watch.until(t, "the body", func() bool { return r.watch.streams[0].sent[Request] })
	if got := r.watch.streams[0].data[Request].String(); got != "paddedx" {
		t.Errorf("seen %q", got)
	}
}

func TestExtendedConnect(t *testing.T) {
	r := greeted(t, nil, nil, []http2.Setting{{ID: http2.SettingEnableConnectProtocol, Val: 1}})
	head := ":method=CONNECT :protocol=websocket :scheme=https :path=/chat :authority=a.test sec-websocket-version=13"
	r.client.headers(1, false, head)
	r.upstream.want("HEADERS 1 " + head)
	r.upstream.headers(1, false, ":status=200")
	r.client.want("HEADERS 1 :status=200")
	for _, message := range []string{"\x81\x05hello", "\x81\x00"} {
		r.client.fr.WriteData(1, false, []byte(message))
		r.upstream.want(fmt.Sprintf("DATA 1 %q", message))
		r.upstream.fr.WriteData(1, false, []byte(message))
		r.client.want(fmt.Sprintf("DATA 1 %q", message))
	}
}

// A frame may be as large as its receiver allows, up to 16 MiB: it passes in parts, which cost the window the same.
func TestLargeDataFramePassesInParts(t *testing.T) {
	big := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, {ID: http2.SettingInitialWindowSize, Val: 1 << 20}}
	r := greeted(t, nil, big, big)
	r.upstream.fr.WriteWindowUpdate(0, 1<<20)
	r.client.want("WINDOW_UPDATE 0 1048576")
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	body := bytes.Repeat([]byte("0123456789"), 30_000)
	go r.client.fr.WriteDataPadded(1, true, body, make([]byte, 50))
	var got []byte
	cost := uint32(0)
	for end := false; !end; {
		f, err := r.upstream.fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		d := f.(*http2.DataFrame)
		got, end = append(got, d.Data()...), d.StreamEnded()
		if cost += d.Length; d.Length > readSize+256 {
			t.Errorf("a frame of %d bytes", d.Length)
		}
	}
	if !bytes.Equal(got, body) || cost != uint32(len(body))+51 {
		t.Errorf("got %d bytes at a cost of %d, want %d and 51 more", len(got), cost, len(body))
	}
}

// sendBlock sends a field list in frames of at most size bytes.
func (e *end) sendBlock(id uint32, endStream bool, block []byte, size int) {
	n := min(len(block), size)
	e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: endStream, EndHeaders: n == len(block)})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), size)
		e.fr.WriteContinuation(id, n == len(block), block[:n])
	}
}

func TestContinuation(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	list := append(fields(get), hpack.HeaderField{Name: "x-long", Value: strings.Repeat("a", 60_000)}, hpack.HeaderField{Name: "x-last", Value: "1"})
	for i, size := range []int{16384, 1000, 7} {
		id := uint32(1 + 2*i)
		r.client.sendBlock(id, true, r.client.encode(list), size)
		r.upstream.want(fmt.Sprintf("HEADERS %d end frames=3 %s", id, describe(list)))
	}
}

// A list beyond the limit is answered, and what it did to the compression state stays.
func TestLongListIsRefused(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	for i, list := range [][]hpack.HeaderField{
		append(fields(get), hpack.HeaderField{Name: "x-long", Value: strings.Repeat("~", DefaultMaxList)}),
		append(fields(get), hpack.HeaderField{Name: "x-huge", Value: strings.Repeat("~", 2*DefaultMaxList)}),
		append(fields(get), manyOf(hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("b", 3000)}, 2000)...), // a byte each, compressed
	} {
		id := uint32(1 + 2*i)
		r.client.sendBlock(id, true, r.client.encode(append(list, hpack.HeaderField{Name: fmt.Sprintf("x-after-%d", i), Value: "kept"})), 16384)
		r.client.want(fmt.Sprintf("HEADERS %d end :status=431 content-length=0", id))
		next := fmt.Sprintf("%s x-after-%d=kept", get, i) // by index
		r.client.headers(id+100, true, next)
		r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id+100, next))
		r.upstream.headers(id+100, true, ":status=200")
		r.client.want(fmt.Sprintf("HEADERS %d end :status=200", id+100))
		r = greeted(t, nil, nil, nil)
	}
}

func manyOf(f hpack.HeaderField, n int) []hpack.HeaderField {
	list := make([]hpack.HeaderField, n)
	for i := range list {
		list[i] = f
	}
	return list
}

// One frame may hold the long list, where its receiver allows such frames.
func TestLongListInOneFrameIsRefused(t *testing.T) {
	r := greeted(t, nil, nil, []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 1 << 20}})
	r.client.sendBlock(1, true, r.client.encode(append(fields(get), hpack.HeaderField{Name: "x-huge", Value: strings.Repeat("~", 2*DefaultMaxList)})), 1<<20)
	r.client.want("HEADERS 1 end :status=431 content-length=0")
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 3 end " + get)
}

func TestEndlessListEndsTheConnection(t *testing.T) {
	for name, fragment := range map[string][]byte{"bytes": bytes.Repeat([]byte{0x82}, 16384), "empty frames": nil} {
		r := greeted(t, nil, nil, nil)
		r.client.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		go func() {
			for r.client.fr.WriteContinuation(1, false, fragment) == nil {
			}
		}()
		if got := r.client.next(); !strings.Contains(got, "ENHANCE_YOUR_CALM") && !strings.Contains(got, "error") {
			t.Errorf("%s: got %s", name, got)
		}
		r.client.conn.Close()
		if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "field list") {
			t.Errorf("%s: ended with %v", name, err)
		}
	}
}

func TestBrokenRules(t *testing.T) {
	tests := []struct {
		name string
		send func(e *end)
		want string // of the GOAWAY
	}{
		{"DATA on an idle stream", func(e *end) { e.fr.WriteData(9, false, nil) }, "PROTOCOL_ERROR"},
		{"RST_STREAM on an idle stream", func(e *end) { e.fr.WriteRSTStream(9, 0) }, "PROTOCOL_ERROR"},
		{"WINDOW_UPDATE on an idle stream", func(e *end) { e.fr.WriteWindowUpdate(9, 1) }, "PROTOCOL_ERROR"},
		{"no credit for the connection", func(e *end) { e.fr.WriteWindowUpdate(0, 0) }, "PROTOCOL_ERROR"},
		{"more than the window", func(e *end) {
			e.headers(1, false, get)
			for range 5 {
				e.fr.WriteData(1, false, make([]byte, 16384))
			}
		}, "FLOW_CONTROL_ERROR"},
		{"broken compression", func(e *end) {
			e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true})
		}, "COMPRESSION_ERROR"},
		{"padding beyond its frame", func(e *end) {
			e.headers(1, false, get)
			e.fr.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 1})
		}, "PROTOCOL_ERROR"},
		{"a frame between a list's", func(e *end) {
			e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			e.fr.WritePing(false, [8]byte{})
		}, "PROTOCOL_ERROR"},
		{"a huge frame", func(e *end) { e.fr.WriteRawFrame(0xee, 0, 0, make([]byte, maxFrame+1)) }, "FRAME_SIZE_ERROR"},
		{"PUSH_PROMISE", func(e *end) {
			e.fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
		}, "PROTOCOL_ERROR"},
		{"a window beyond 2^31-1", func(e *end) {
			e.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, "FLOW_CONTROL_ERROR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := greeted(t, nil, nil, nil)
			tt.send(r.client)
			for {
				line := r.client.next()
				if strings.HasPrefix(line, "GOAWAY") && strings.Contains(line, tt.want) && strings.Contains(line, "client broke HTTP/2") {
					break
				}
				if strings.HasPrefix(line, "error") {
					t.Fatalf("got %s, want GOAWAY %s", line, tt.want)
				}
			}
			r.client.conn.Close()
			if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "client broke HTTP/2") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestNoCreditResetsTheStreamAlone(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	r.client.fr.WriteWindowUpdate(1, 0)
	r.client.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.upstream.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 3 end " + get)
}

func TestUpstreamWithoutHTTP2(t *testing.T) {
	r := newRig(t, nil)
	r.client.conn.Write([]byte(http2.ClientPreface))
	r.client.fr.WriteSettings()
	r.upstream.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
	r.client.wantStart("GOAWAY 0 ")
	r.client.conn.Close()
	if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "upstream") {
		t.Errorf("ended with %v", err)
	}
}

func TestGoAwayEndsWhatUpstreamWillNotProcess(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 1 "+get, "HEADERS 3 end "+get)
	r.upstream.fr.WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte("busy"))
	r.client.want(`GOAWAY 1 ENHANCE_YOUR_CALM "busy"`)
	r.watch.until(t, "the end of 3", func() bool { return r.watch.streams[1].closed != nil })
	if c := r.watch.streams[1].closed; c.By != Upstream || c.Code != http2.ErrCodeEnhanceYourCalm || !strings.Contains(c.Err.Error(), "busy") {
		t.Errorf("closed %+v", c)
	}
	r.upstream.headers(1, true, ":status=200")
	r.client.want("HEADERS 1 end :status=200")
}

func TestStreamsAreBounded(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	for i := range 200 {
		r.client.headers(uint32(1+2*i), false, get)
		r.upstream.wantStart("HEADERS")
	}
	r.client.headers(401, false, get)
	r.client.want("RST_STREAM 401 REFUSED_STREAM")
	r.client.fr.WriteData(401, true, []byte("late"))
	r.client.want("WINDOW_UPDATE 0 4")
	r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	r.upstream.want("RST_STREAM 1 CANCEL")
	r.client.headers(403, true, get)
	r.upstream.want("HEADERS 403 end " + get)
	if len(r.watch.refused) != 1 {
		t.Errorf("refused %q", r.watch.refused)
	}
}

// A hook adds and changes fields; the others keep their place and their kind.
func TestHookChangesFields(t *testing.T) {
	r := greeted(t, func(e *seen) Exchange { return &adder{e} }, nil, nil)
	r.client.headers(1, false, get+" cookie=secret!")
	r.upstream.want("HEADERS 1 " + get + " cookie=secret! x-added=Request")
	r.client.headers(1, true, "x-sum=1")
	r.upstream.want("HEADERS 1 end x-sum=1 x-added=trailers")
	r.upstream.headers(1, true, ":status=200")
	r.client.want("HEADERS 1 end :status=200 x-added=Response")
}

type adder struct{ *seen }

func (e *adder) Head(side Side, h *Head) {
	e.seen.Head(side, h)
	h.Fields = append(h.Fields, hpack.HeaderField{Name: "x-added", Value: [...]string{"Request", "Response"}[side]})
}

func (e *adder) Trailers(side Side, h *Head) {
	h.Fields = append(h.Fields, hpack.HeaderField{Name: "x-added", Value: "trailers"})
}
