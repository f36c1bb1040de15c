package h2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// vector is something that one end must not send, or that few send, while stream 1 is open in both directions.
type vector struct {
	name string
	by   []Party // who sends it; nil: each of the two in turn
	send func(e *end)

	connection http2.ErrCode // the whole connection ends with this code
	stream     http2.ErrCode // stream 1 alone does, towards both ends
	passes     string        // the other end gets this, and judges: the beginning of a line. "-": it gets nothing
}

const none = http2.ErrCodeNo

// raw sends a frame as it is.
func raw(t http2.FrameType, flags http2.Flags, id uint32, payload string) func(*end) {
	return func(e *end) { e.fr.WriteRawFrame(t, flags, id, []byte(payload)) }
}

// list sends a field block as it is, on stream 1, as trailers.
func list(block string) func(*end) {
	return raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, block)
}

var byClient, byUpstream = []Party{Client}, []Party{Upstream}

var vectors = []vector{
	// Frame sizes. RFC 9113, section 4.2 and each frame's own.
	{name: "PING of 7 bytes", send: raw(http2.FramePing, 0, 0, "1234567"), connection: http2.ErrCodeFrameSize},
	{name: "SETTINGS of 5 bytes", send: raw(http2.FrameSettings, 0, 0, "12345"), connection: http2.ErrCodeFrameSize},
	{name: "SETTINGS ack with a payload", send: raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "123456"), connection: http2.ErrCodeFrameSize},
	{name: "WINDOW_UPDATE of 3 bytes", send: raw(http2.FrameWindowUpdate, 0, 1, "123"), connection: http2.ErrCodeFrameSize},
	{name: "RST_STREAM of 5 bytes", send: raw(http2.FrameRSTStream, 0, 1, "12345"), connection: http2.ErrCodeFrameSize},
	{name: "PRIORITY of 4 bytes", send: raw(http2.FramePriority, 0, 1, "1234"), connection: http2.ErrCodeFrameSize},
	{name: "GOAWAY of 7 bytes", send: raw(http2.FrameGoAway, 0, 0, "1234567"), connection: http2.ErrCodeFrameSize},
	{name: "HEADERS too short for its priority", send: raw(http2.FrameHeaders, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, 1, "1"), connection: http2.ErrCodeFrameSize},
	{name: "padded HEADERS without room for the length", send: raw(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, ""), connection: http2.ErrCodeFrameSize},
	{name: "a huge frame of a kind that nobody knows", send: raw(0xee, 0, 1, strings.Repeat("x", maxFrame+1)), connection: http2.ErrCodeFrameSize},

	// Stream ids. Sections 5.1 and 5.1.1.
	{name: "DATA on stream 0", send: raw(http2.FrameData, 0, 0, "x"), connection: http2.ErrCodeProtocol},
	{name: "HEADERS on stream 0", send: raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, "\x82"), connection: http2.ErrCodeProtocol},
	{name: "RST_STREAM on stream 0", send: raw(http2.FrameRSTStream, 0, 0, "1234"), connection: http2.ErrCodeProtocol},
	{name: "PRIORITY on stream 0", send: raw(http2.FramePriority, 0, 0, "12345"), connection: http2.ErrCodeProtocol},
	{name: "CONTINUATION on stream 0", send: raw(http2.FrameContinuation, 0, 0, ""), connection: http2.ErrCodeProtocol},
	{name: "SETTINGS on a stream", send: raw(http2.FrameSettings, 0, 1, ""), connection: http2.ErrCodeProtocol},
	{name: "PING on a stream", send: raw(http2.FramePing, 0, 1, "12345678"), connection: http2.ErrCodeProtocol},
	{name: "GOAWAY on a stream", send: raw(http2.FrameGoAway, 0, 1, "12345678"), connection: http2.ErrCodeProtocol},
	{name: "DATA on an idle stream", send: raw(http2.FrameData, 0, 9, "x"), connection: http2.ErrCodeProtocol},
	{name: "RST_STREAM on an idle stream", send: raw(http2.FrameRSTStream, 0, 9, "1234"), connection: http2.ErrCodeProtocol},
	{name: "WINDOW_UPDATE on an idle stream", send: raw(http2.FrameWindowUpdate, 0, 9, "\x00\x00\x00\x01"), connection: http2.ErrCodeProtocol},
	{name: "a response to no request", by: byUpstream, send: func(e *end) { e.headers(9, true, ":status=200") }, connection: http2.ErrCodeProtocol},
	{name: "PUSH_PROMISE", send: raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02\x82"), connection: http2.ErrCodeProtocol},
	{name: "a stream with an even id", by: byClient, send: func(e *end) { e.headers(2, true, get) }, passes: "HEADERS 2 end " + get},
	{name: "PRIORITY on an idle stream", send: raw(http2.FramePriority, 0, 9, "\x00\x00\x00\x00\x07"), passes: "PRIORITY 9 0/7/false"},
	{name: "a stream that depends on itself", send: raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x01\x07"), passes: "PRIORITY 1 1/7/false"},

	// After the end of a side, and before its beginning. Sections 5.1 and 8.1.
	{name: "DATA after END_STREAM", send: func(e *end) { e.fr.WriteData(1, true, nil); e.fr.WriteData(1, true, []byte("x")) }, stream: http2.ErrCodeStreamClosed},
	{name: "padded DATA after END_STREAM", send: func(e *end) {
		e.fr.WriteData(1, true, nil)
		e.fr.WriteDataPadded(1, false, []byte("x"), make([]byte, 200))
	}, stream: http2.ErrCodeStreamClosed},
	{name: "HEADERS after END_STREAM", send: func(e *end) { e.headers(1, true, "a=b"); e.headers(1, true, "c=d") }, stream: http2.ErrCodeStreamClosed},
	{name: "a second set of trailers", send: func(e *end) { e.headers(1, false, "a=b"); e.headers(1, false, "c=d") }, passes: "HEADERS 1 a=b"},

	// Windows. Section 6.9.
	{name: "no credit for a stream", send: raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00"), stream: http2.ErrCodeProtocol},
	{name: "no credit for the connection", send: raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), connection: http2.ErrCodeProtocol},
	{name: "an initial window beyond 2^31-1", send: func(e *end) { e.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, connection: http2.ErrCodeFlowControl},
	{name: "more DATA than the window", send: func(e *end) {
		for range 5 {
			e.fr.WriteData(1, false, make([]byte, 16384))
		}
	}, connection: http2.ErrCodeFlowControl},
	{name: "credit beyond 2^31-1", send: raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff"), passes: "WINDOW_UPDATE 1 2147483647"},

	// SETTINGS and acknowledgements. Section 6.5.
	{name: "an acknowledgement of nothing", send: func(e *end) { e.fr.WriteSettingsAck() }, passes: "SETTINGS ack"},
	{name: "an answer to no PING", send: func(e *end) { e.fr.WritePing(true, [8]byte{'x'}) }, passes: `PING ack=true "x`},
	{name: "a setting that nobody knows", send: func(e *end) { e.fr.WriteSettings(http2.Setting{ID: 0xfefe, Val: 7}) }, passes: "SETTINGS UNKNOWN_SETTING_65278=7"},
	{name: "a frame size below 16384", send: func(e *end) { e.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 7}) }, passes: "SETTINGS MAX_FRAME_SIZE=7"},

	// Padding. Section 6.1.
	{name: "DATA with padding as long as itself", send: raw(http2.FrameData, http2.FlagDataPadded, 1, "\x04abcd"), passes: `DATA 1 pad=4 ""`},
	{name: "DATA with padding longer than itself", send: raw(http2.FrameData, http2.FlagDataPadded, 1, "\x05abcd"), connection: http2.ErrCodeProtocol},
	{name: "HEADERS with padding longer than itself", send: raw(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, "\x05\x82"), connection: http2.ErrCodeProtocol},
	{name: "padded DATA without room for the length", send: raw(http2.FrameData, http2.FlagDataPadded, 1, ""), connection: http2.ErrCodeFrameSize},

	// Field blocks. Section 4.3 and RFC 7541.
	{name: "CONTINUATION that continues nothing", send: raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "\x82"), connection: http2.ErrCodeProtocol},
	{name: "a frame inside a field block", send: func(e *end) { raw(http2.FrameHeaders, 0, 1, "\x82")(e); raw(0xee, 0, 1, "x")(e) }, connection: http2.ErrCodeProtocol},
	{name: "CONTINUATION of another stream", send: func(e *end) {
		raw(http2.FrameHeaders, 0, 1, "\x82")(e)
		raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3, "\x82")(e)
	}, connection: http2.ErrCodeProtocol},
	{name: "index 0", send: list("\x80"), connection: http2.ErrCodeCompression},
	{name: "an index beyond the table", send: list("\xff\x80\x01"), connection: http2.ErrCodeCompression},
	{name: "an index that overflows", send: list("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), connection: http2.ErrCodeCompression},
	{name: "a block that ends in a field", send: list("\x00\x03abc\x0a123"), connection: http2.ErrCodeCompression},
	{name: "a table larger than allowed", send: list("\x3f\xe1\xff\x03"), connection: http2.ErrCodeCompression},
	{name: "a table's size behind a field", send: list("\x40\x01a\x01b\x20"), connection: http2.ErrCodeCompression},
	{name: "Huffman code that is none", send: list("\x00\x01a\x84\xff\xff\xff\xff"), connection: http2.ErrCodeCompression},
	{name: "a string longer than its block", send: list("\x00\x7f\xff\xff\xff\xff\x0f"), connection: http2.ErrCodeCompression},

	// What a message holds is for its receiver to judge, unless it could be read as several lines. Sections 8.2 and 8.3.
	{name: "a pseudo-field in trailers", send: func(e *end) { e.headers(1, false, "a=b :status=200") }, passes: "HEADERS 1 a=b :status=200"},
	{name: "upper case in a name", send: func(e *end) { e.headers(1, false, "A=b") }, passes: "HEADERS 1 A=b"},
	{name: "a field of the connection", send: func(e *end) { e.headers(1, false, "connection=close transfer-encoding=chunked") }, passes: "HEADERS 1 connection=close transfer-encoding=chunked"},
	{name: "no pseudo-field at all", by: byClient, send: func(e *end) { e.headers(3, true, "a=b") }, passes: "HEADERS 3 end a=b"},
	{name: "a pseudo-field twice, and behind a field", by: byClient, send: func(e *end) { e.headers(3, true, ":path=/a x=y :path=/b") }, passes: "HEADERS 3 end :path=/a x=y :path=/b"},
	{name: "a line end in a value", send: func(e *end) { e.send(1, true, "", hpack.HeaderField{Name: "a", Value: "b\r\nc: d"}) }, stream: http2.ErrCodeProtocol},
	{name: "a NUL in a name", send: func(e *end) { e.send(1, true, "", hpack.HeaderField{Name: "a\x00", Value: "b"}) }, stream: http2.ErrCodeProtocol},
	{name: "an empty name", send: func(e *end) { e.send(1, true, "", hpack.HeaderField{Name: "", Value: "b"}) }, stream: http2.ErrCodeProtocol},
	{name: "a length that is not the body's", by: byClient, send: func(e *end) { e.headers(3, true, get+" content-length=9") }, passes: "HEADERS 3 end " + get + " content-length=9"},

	// What nobody knows passes. Section 5.5.
	{name: "a frame of a kind that nobody knows", send: raw(0xee, 0x55, 1, "x"), passes: `UNKNOWN type=238 flags=85 1 "x"`},
	{name: "the same on the connection", send: raw(0xee, 0, 0, ""), passes: `UNKNOWN type=238 flags=0 0 ""`},
	{name: "DATA without bytes", send: func(e *end) { e.fr.WriteData(1, false, nil) }, passes: `DATA 1 ""`},
}

// TestVectors sends each vector on a connection of its own, while another connection goes on.
func TestVectors(t *testing.T) {
	bystander := greeted(t, nil, nil, nil)
	turn := uint32(1)
	for _, v := range vectors {
		by := v.by
		if by == nil {
			by = []Party{Client, Upstream}
		}
		for _, party := range by {
			t.Run(fmt.Sprintf("%s by %v", v.name, party), func(t *testing.T) {
				v.play(t, party)
				bystander.exchange(turn)
				turn += 2
			})
		}
	}
	bystander.settled(t)
}

func (v vector) play(t *testing.T, party Party) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	r.upstream.headers(1, false, ":status=200")
	r.client.want("HEADERS 1 :status=200")
	bad, other := r.client, r.upstream
	if party == Upstream {
		bad, other = other, bad
	}
	v.send(bad)
	switch {
	case v.connection != none:
		bad.skipTo(t, "GOAWAY", fmt.Sprintf("%v ", v.connection), party.String()+" broke HTTP/2")
		other.skipTo(t, "GOAWAY", fmt.Sprintf("%v ", v.connection))
		r.client.conn.Close()
		if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "broke HTTP/2") {
			t.Errorf("the relay ended with %v", err)
		}
	case v.stream != none:
		bad.skipTo(t, fmt.Sprintf("RST_STREAM 1 %v", v.stream))
		other.skipTo(t, fmt.Sprintf("RST_STREAM 1 %v", v.stream))
	default:
		other.skipTo(t, v.passes)
		r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
		r.upstream.skipTo(t, "RST_STREAM 1 CANCEL")
	}
	if v.connection == none {
		r.watch.until(t, "the end of stream 1", func() bool { return r.watch.streams[0].closed != nil })
		r.exchange(11)
		r.settled(t)
	}
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	for _, s := range r.watch.streams {
		if s.closes != 1 && !s.s.open() {
			t.Errorf("stream %d was closed %d times", s.s.ID, s.closes)
		}
	}
}

// open reports whether the stream is not over.
func (s *Stream) open() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return !s.over && !s.r.dead
}

// skipTo reads frames up to one whose line begins with start and holds all parts.
func (e *end) skipTo(t *testing.T, start string, parts ...string) {
	t.Helper()
	for {
		line := e.next()
		ok := strings.HasPrefix(line, start)
		for _, part := range parts {
			ok = ok && strings.Contains(line, part)
		}
		if ok {
			return
		}
		if strings.HasPrefix(line, "error") {
			t.Fatalf("%s got %s, want %s %q", e.name, line, start, parts)
		}
	}
}

// exchange has a request with a body and a response with one pass, and gives the credit that they cost back.
func (r *rig) exchange(id uint32) {
	t := r.client.t
	body := bytes.Repeat([]byte("b"), 1000)
	r.client.headers(id, false, get)
	r.client.fr.WriteData(id, true, body)
	r.upstream.skipTo(t.(*testing.T), fmt.Sprintf("HEADERS %d ", id))
	r.upstream.skipTo(t.(*testing.T), fmt.Sprintf("DATA %d end 1000 bytes", id))
	r.upstream.fr.WriteWindowUpdate(0, 1000)
	r.upstream.headers(id, false, ":status=200")
	r.upstream.fr.WriteData(id, true, body)
	r.client.skipTo(t.(*testing.T), fmt.Sprintf("HEADERS %d :status=200", id))
	r.client.skipTo(t.(*testing.T), fmt.Sprintf("DATA %d end 1000 bytes", id))
	r.client.fr.WriteWindowUpdate(0, 1000)
}

// settled waits until no stream is left, and what each receiver will take is what its sender believes it may send: no credit was lost, and none made.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	var left int
	var windows [2]window
	defer func() {
		if t.Failed() {
			t.Logf("%d streams, windows %+v", left, windows)
		}
	}()
	eventually(t, "an even ledger", func() bool {
		r.relay.mu.Lock()
		defer r.relay.mu.Unlock()
		left = 0
		for _, s := range r.relay.streams {
			if s.ID == 1 || s.ID == 11 {
				left++
			}
		}
		windows = r.relay.windows
		return left == 0 && windows[Request].real == windows[Request].lent && windows[Response].real == windows[Response].lent
	})
}
