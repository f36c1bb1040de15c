package h2

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Upstream's frames on a stream that it has not seen are a mistake, whatever the client did with that stream: its exchange is not ready for them.
func TestUpstreamAnswersARequestThatItHasNotSeen(t *testing.T) {
	for name, send := range map[string]func(e *end){
		"HEADERS":       func(e *end) { e.headers(1, true, ":status=200") },
		"DATA":          func(e *end) { e.fr.WriteData(1, true, []byte("x")) },
		"RST_STREAM":    func(e *end) { e.fr.WriteRSTStream(1, http2.ErrCodeCancel) },
		"WINDOW_UPDATE": func(e *end) { e.fr.WriteWindowUpdate(1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			opened, free := make(chan struct{}), make(chan struct{})
			r := greeted(t, func(e *seen) Exchange { return &waiter{e, opened, free} }, nil, nil)
			r.client.headers(1, true, get)
			<-opened
			send(r.upstream)
			r.upstream.skipTo(t, "GOAWAY", "PROTOCOL_ERROR", "idle stream 1")
			close(free)
			r.client.conn.Close()
			r.wait(t)
			s := r.watch.streams[0]
			if len(s.heads[Response]) > 0 || s.data[Response].Len() > 0 || s.closes != 1 || s.closed.By != Upstream {
				t.Errorf("response %q %q, closed %d times, %+v", s.heads[Response], s.data[Response].String(), s.closes, s.closed)
			}
		})
	}
}

// waiter is an exchange that takes its time over the request's head.
type waiter struct {
	*seen
	opened, free chan struct{}
}

func (e *waiter) Head(side Side, h *Head) {
	if side == Request {
		close(e.opened)
		<-e.free
	}
	e.seen.Head(side, h)
}

func TestDataBeforeAResponsesHead(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	r.upstream.headers(1, false, ":status=103")
	r.client.want("HEADERS 1 :status=103")
	r.upstream.fr.WriteData(1, true, []byte("early"))
	r.client.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.upstream.skipTo(t, "RST_STREAM 1 PROTOCOL_ERROR")
	r.watch.until(t, "the end", func() bool { return r.watch.streams[0].closed != nil })
	if s := r.watch.streams[0]; s.closed.By != Upstream || s.data[Response].Len() > 0 || s.sent[Response] {
		t.Errorf("closed %+v, data %q, sent %v", s.closed, s.data[Response].String(), s.sent)
	}
	r.exchange(3)
	r.settled(t)
}

// A response with more fields than is kept ends alone, and what it did to the compression state stays.
func TestLongResponseListEndsItsStream(t *testing.T) {
	for _, fields := range [][]hpack.HeaderField{
		{{Name: "x-long", Value: strings.Repeat("~", DefaultMaxList)}},
		manyOf(hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("b", 3000)}, 2000), // a byte each, compressed
	} {
		r := greeted(t, nil, nil, nil)
		r.client.headers(1, true, get)
		r.upstream.want("HEADERS 1 end " + get)
		list := append([]hpack.HeaderField{{Name: ":status", Value: "200"}}, fields...)
		r.upstream.sendBlock(1, false, r.upstream.encode(append(list, hpack.HeaderField{Name: "x-after", Value: "kept"})), 16384)
		r.client.want("RST_STREAM 1 ENHANCE_YOUR_CALM")
		r.upstream.want("RST_STREAM 1 ENHANCE_YOUR_CALM")
		r.client.headers(3, true, get)
		r.upstream.want("HEADERS 3 end " + get)
		r.upstream.headers(3, true, ":status=200 x-after=kept") // by index
		r.client.want("HEADERS 3 end :status=200 x-after=kept")
		r.settled(t)
	}
}

func TestEndlessListOfUpstreamEndsTheConnection(t *testing.T) {
	for name, fragment := range map[string][]byte{"bytes": bytes.Repeat([]byte{0x88}, 16384), "empty frames": nil} {
		t.Run(name, func(t *testing.T) {
			r := greeted(t, nil, nil, nil)
			r.client.headers(1, true, get)
			r.upstream.want("HEADERS 1 end " + get)
			r.upstream.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}})
			go func() {
				for r.upstream.fr.WriteContinuation(1, false, fragment) == nil {
				}
			}()
			r.client.skipTo(t, "GOAWAY", "ENHANCE_YOUR_CALM", "field list")
			r.client.conn.Close()
			if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "upstream broke HTTP/2") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// A flood passes as fast as the other end reads it, and nothing of it is held: not while it is read, and not while it is not.
func TestFloods(t *testing.T) {
	const unread = 60_000 // more than small sockets hold of the smallest
	for _, flood := range []struct {
		name string
		by   []Party
		send func(fr *http2.Framer, block []byte, id uint32)
	}{
		{"PING", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WritePing(false, [8]byte{byte(id)}) }},
		{"PING answers", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WritePing(true, [8]byte{byte(id)}) }},
		{"SETTINGS", nil, func(fr *http2.Framer, _ []byte, id uint32) {
			fr.WriteSettings(http2.Setting{ID: http2.SettingID(id), Val: id}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: id})
		}},
		{"SETTINGS acknowledgements", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WriteSettingsAck() }},
		{"empty DATA", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WriteData(1, false, nil) }},
		{"PRIORITY", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WritePriority(id, http2.PriorityParam{StreamDep: 1}) }},
		{"credit", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WriteWindowUpdate(1, 1) }},
		{"unknown frames", nil, func(fr *http2.Framer, _ []byte, id uint32) { fr.WriteRawFrame(0xee, 0, id, []byte("unknown")) }},
		{"streams that are reset at once", byClient, func(fr *http2.Framer, block []byte, id uint32) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
			fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{"RST_STREAM of streams that are over", byClient, func(fr *http2.Framer, _ []byte, id uint32) { fr.WriteRSTStream(1, 0) }},
		{"interim responses", byUpstream, func(fr *http2.Framer, _ []byte, id uint32) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x48, 3, '1', '0', '3'}, EndHeaders: true})
		}},
	} {
		by := flood.by
		if by == nil {
			by = []Party{Client, Upstream}
		}
		for _, party := range by {
			t.Run(fmt.Sprintf("%s by %v", flood.name, party), func(t *testing.T) {
				r := greeted(t, func(*seen) Exchange { return quietExchange{} }, nil, nil)
				r.client.headers(1, false, get)
				r.upstream.want("HEADERS 1 " + get)
				if flood.name != "interim responses" {
					r.upstream.headers(1, false, ":status=200")
					r.client.want("HEADERS 1 :status=200")
				}
				bad, other, toOther := r.client, r.upstream, r.sockets[1]
				if party == Upstream {
					bad, other, toOther = other, bad, r.sockets[0]
				}
				// Sockets that do not grow: left alone, they hold the whole flood.
				for _, c := range []net.Conn{bad.conn, other.conn, r.sockets[0].Conn, r.sockets[1].Conn} {
					c.(*net.TCPConn).SetReadBuffer(32 << 10)
					c.(*net.TCPConn).SetWriteBuffer(32 << 10)
				}
				r.watch.mu.Lock()
				r.watch.quiet = true
				r.watch.mu.Unlock()
				block := bad.encode(fields(get))
				before := heap()
				conn := &gauge{Conn: bad.conn}
				w := bufio.NewWriterSize(conn, 16<<10)
				fr := http2.NewFramer(w, nil)
				fr.AllowIllegalWrites = true
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for i := range uint32(unread) {
						flood.send(fr, block, 3+2*i)
					}
					fr.WritePing(false, [8]byte{'e', 'n', 'd', '!'})
					w.Flush()
				}()
				// What the bad end is told meanwhile, it reads: this is about what the other does not.
				go io.Copy(io.Discard, bad.conn)
				untilStuck(t, conn, toOther)
				if grown := int64(heap()) - int64(before); grown > 1<<20 {
					t.Errorf("%d bytes in use while nobody reads", grown)
				}
				for {
					f, err := other.fr.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if p, ok := f.(*http2.PingFrame); ok && string(p.Data[:4]) == "end!" {
						break
					}
				}
				<-sent
				if grown := int64(heap()) - int64(before); grown > 1<<20 {
					t.Errorf("%d bytes in use after all was read", grown)
				}
				r.relay.mu.Lock()
				defer r.relay.mu.Unlock()
				if len(r.relay.streams) > 1 {
					t.Errorf("%d streams are open", len(r.relay.streams))
				}
			})
		}
	}
}
