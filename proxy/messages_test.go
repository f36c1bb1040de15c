package proxy

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

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
