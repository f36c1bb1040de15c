package proxy

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/gorilla/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/content/sse"
	"millpond/storage"
)

// wsOrigin answers each WebSocket with fn.
func wsOrigin(t *testing.T, secure bool, compress bool, fn func(*websocket.Conn)) string {
	t.Helper()
	upgrader := websocket.Upgrader{EnableCompression: compress, CheckOrigin: func(*http.Request) bool { return true }}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fn(c)
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http") + "/chat"
}

// echo sends back what comes, until the close.
func echo(c *websocket.Conn) {
	for {
		kind, p, err := c.ReadMessage()
		if err != nil {
			return
		}
		if err := c.WriteMessage(kind, p); err != nil {
			return
		}
	}
}

// webSocket connects through the proxy.
func (h *harness) webSocket(address string, compress bool) *websocket.Conn {
	h.t.Helper()
	d := websocket.Dialer{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: h.addr}), EnableCompression: compress,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, HandshakeTimeout: patience,
	}
	c, _, err := d.Dial(address, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// entries waits until a session has n messages, and returns them.
func (h *harness) entries(id uint64, n int) []storage.Entry {
	h.t.Helper()
	list, err := h.store.Messages(id)
	if err != nil {
		h.t.Fatal(err)
	}
	defer list.Close()
	late := time.After(patience)
	for list.Len() < uint64(n) && !list.Final() {
		select {
		case <-list.Grown():
		case <-late:
			h.t.Fatalf("session %d has %d messages, want %d", id, list.Len(), n)
		}
	}
	all := make([]storage.Entry, list.Len()+1)
	got, err := list.Read(all, 0)
	if err != nil || got < n {
		h.t.Fatalf("session %d: read %d messages, want %d: %v", id, got, n, err)
	}
	return all[:got]
}

func (h *harness) closeWebSocket(c *websocket.Conn) {
	h.t.Helper()
	deadline := time.Now().Add(patience)
	if err := c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "bye"), deadline); err != nil {
		h.t.Fatal(err)
	}
	c.SetReadDeadline(deadline)
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		h.t.Fatalf("got %v, want the close back", err)
	}
	c.Close()
}

func TestWebSocketMessages(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, compress := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, compressed %v", secure, compress), func(t *testing.T) {
				h := startHarness(t, Config{InsecureUpstream: true})
				c := h.webSocket(wsOrigin(t, secure, compress, echo), compress)
				for i := range 3 {
					if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, "message %d", i)); err != nil {
						t.Fatal(err)
					}
					if _, p, err := c.ReadMessage(); err != nil || string(p) != fmt.Sprintf("message %d", i) {
						t.Fatalf("got %q, %v", p, err)
					}
				}
				h.closeWebSocket(c)
				got := h.entries(1, 8)
				for i, e := range got {
					opcode, side := uint8(1), storage.Side(i%2)
					if i >= 6 {
						opcode = 8
					}
					if e.Opcode != opcode || e.Side != side || e.Compressed != (compress && opcode == 1) || e.Broken {
						t.Errorf("message %d: %+v", i, e)
					}
					if opcode == 8 && e.Code != 1000 {
						t.Errorf("message %d: close code %d", i, e.Code)
					}
				}
				if len(got) != 8 {
					t.Errorf("%d messages", len(got))
				}
			})
		}
	}
}

// wsFrame is a frame of up to 125 bytes, masked where the client sends it.
func wsFrame(first byte, payload string, masked bool) string {
	b := []byte{first, byte(len(payload))}
	if !masked {
		return string(b) + payload
	}
	b[1] |= 0x80
	b = append(b, 1, 2, 3, 4)
	for i := range len(payload) {
		b = append(b, payload[i]^byte(1+i%4))
	}
	return string(b)
}

const (
	wsAsk    = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: k\r\n"
	wsAnswer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"
)

// described are messages as "side opcode size broken".
func described(entries []storage.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%v %x %d %v\n", e.Side, e.Opcode, e.Size, e.Broken)
	}
	return b.String()
}

func TestWebSocketFramesBesideTheHandshake(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	ask := "GET http://" + o.addr + "/chat HTTP/1.1\r\nHost: " + o.addr + "\r\n" + wsAsk + "\r\n"
	early := wsFrame(0x81, "early", true)
	c.send(ask + early)
	up := o.accept()
	up.head()
	up.send(wsAnswer + "\r\n" + wsFrame(0x81, "at once", false))
	c.head()
	c.expect(wsFrame(0x81, "at once", false))
	up.expect(early)
	for _, fragment := range strings.Split(wsFrame(0x01, "a", true)+wsFrame(0x89, "?", true)+wsFrame(0x80, "b", true), "") {
		c.send(fragment) // one byte
		up.expect(fragment)
	}
	up.send(wsFrame(0x82, "broken off", false)[:7])
	c.expect(wsFrame(0x82, "broken off", false)[:7])
	up.Close()
	c.Close()
	s := h.session(1)
	if got, want := described(h.entries(s.ID, 5)), "response 1 7 false\nrequest 1 5 false\nrequest 9 1 false\nrequest 1 2 false\nresponse 2 5 true\n"; sorted(got) != sorted(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// sorted puts lines in order: the two directions of a connection have none.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Bytes that are no frames pass and are kept, and the session says where the list ends.
func TestWebSocketThatLosesTheThread(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send("GET http://" + o.addr + "/chat HTTP/1.1\r\nHost: " + o.addr + "\r\n" + wsAsk + "\r\n")
	up := o.accept()
	up.head()
	up.send(wsAnswer + "Sec-WebSocket-Extensions: x-secret\r\n\r\n")
	c.head()
	wire := wsFrame(0x81, "one", true) + wsFrame(0x83, "of no known kind", true) + wsFrame(0x81, "two", true)
	c.send(wire)
	up.expect(wire)
	up.send(wsFrame(0x81, "back", false))
	c.expect(wsFrame(0x81, "back", false))
	c.Close()
	up.expectEnd()
	up.Close()
	s := h.session(1)
	if got, want := described(h.entries(s.ID, 2)), "request 1 3 false\nresponse 1 4 false\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	const why = "messages are listed to byte 9 of what the client sent: a frame has the opcode 3, which is reserved; the extension x-secret may, which Millpond does not read"
	if s.Messages.Lost != [2]string{why, ""} {
		t.Errorf("got %q", s.Messages.Lost)
	}
	h.expectBody(s, storage.Request, wire)
}

// headers2 writes a head of fields, name, value, …
func headers2(t *testing.T, f *http2.Framer, stream uint32, end bool, fields ...string) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}); err != nil {
		t.Fatal(err)
	}
}

// await2 reads frames until one of the kind comes, and acknowledges SETTINGS on the way.
func await2[F http2.Frame](t *testing.T, f *http2.Framer) F {
	t.Helper()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if settings, ok := got.(*http2.SettingsFrame); ok && !settings.IsAck() {
			f.WriteSettingsAck()
		}
		if want, ok := got.(F); ok {
			return want
		}
	}
}

// Extended CONNECT, RFC 8441. A frame may come before the answer.
func TestWebSocketOverHTTP2(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"accepted", "200", "request 1 5 false\nresponse 1 4 false\nrequest 8 2 false\nresponse 8 2 false\n"},
		{"refused", "403", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			client, _, origin := http2Tunnel(t, h)
			origin.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
			headers2(t, client, 1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/chat", ":authority", "a.example",
				"sec-websocket-version", "13", "sec-websocket-extensions", "permessage-deflate")
			client.WriteData(1, false, []byte(wsFrame(0x81, "early", true)))
			await2[*http2.DataFrame](t, origin)
			refused := c.answer != "200"
			headers2(t, origin, 1, refused, ":status", c.answer, "sec-websocket-extensions", "permessage-deflate; server_no_context_takeover")
			await2[*http2.HeadersFrame](t, client)
			if refused {
				client.WriteRSTStream(1, http2.ErrCodeCancel)
			} else {
				origin.WriteData(1, false, []byte(wsFrame(0xc1, "\x4a\x4c\x4a\x01", false)))
				await2[*http2.DataFrame](t, client)
				client.WriteData(1, true, []byte(wsFrame(0x88, "\x03\xe8", true)))
				await2[*http2.DataFrame](t, origin)
				origin.WriteData(1, true, []byte(wsFrame(0x88, "\x03\xe8", false)))
				await2[*http2.DataFrame](t, client)
			}
			s := h.session(1)
			if refused {
				if s.Messages != nil {
					t.Errorf("got %+v", s.Messages)
				}
				if _, err := h.store.Messages(s.ID); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a list of messages: %v", err)
				}
				return
			}
			if got := described(h.entries(s.ID, 4)); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
			if m := s.Messages; !m.Deflate || m.Fresh != [2]bool{false, true} || m.Kind != storage.WebSocket {
				t.Errorf("got %+v", m)
			}
		})
	}
}

func TestEventsAreListedAsTheyCome(t *testing.T) {
	const stream = "data: one\n\n: still here\n\nevent: add\ndata: two\ndata: three\n\ndata: broken off"
	for _, coding := range []string{"", "gzip", "br, gzip"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("coding %q, HTTP/2 %v", coding, secure), func(t *testing.T) {
				next := make(chan bool)
				handler := func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
					var out io.Writer = w
					flush := func() { http.NewResponseController(w).Flush() }
					if coding != "" {
						w.Header().Set("Content-Encoding", coding)
						zip := gzip.NewWriter(out)
						out, flush = zip, func() { zip.Flush(); http.NewResponseController(w).Flush() }
						if strings.HasPrefix(coding, "br") {
							inner := brotli.NewWriter(zip)
							out, flush = inner, func() { inner.Flush(); zip.Flush(); http.NewResponseController(w).Flush() }
						}
					}
					for event := range strings.SplitAfterSeq(stream, "\n\n") {
						io.WriteString(out, event)
						flush()
						if !<-next {
							return // broken off
						}
					}
				}
				h := startHTTP2(t, Config{}, handler)
				if !secure {
					plain := httptest.NewServer(http.HandlerFunc(handler))
					t.Cleanup(plain.Close)
					h.origin.URL = plain.URL
				}
				go func() {
					for n := range 3 {
						h.await(1, func(s storage.Session) bool { return s.Messages != nil && s.Messages.Count() == uint64(n+1) })
						next <- true
					}
					next <- false
				}()
				res, err := h.client.Get(h.origin.URL)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				s := h.session(1)
				entries := h.entries(s.ID, 4)
				if got, want := described(entries), "response 0 3 false\nresponse 1 0 false\nresponse 0 9 false\nresponse 0 10 true\n"; got != want {
					t.Errorf("got\n%swant\n%s%q", got, want, s.Messages.Lost)
				}
				for _, e := range entries {
					if event := stream[e.Offset : e.Offset+e.Length]; sse.Parse(event).Data == "" && e.Opcode != storage.Comment {
						t.Errorf("no event: %q", event)
					}
				}
			})
		}
	}
}
