package wire

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millpond/e2e/harness"
)

// gorilla/websocket at both ends, with compression, through ws and wss.
func TestGorillaWebSocket(t *testing.T) {
	w := startWorld(t)
	for _, protocol := range []harness.Protocol{harness.HTTP, harness.HTTPS} {
		t.Run(string(protocol), func(t *testing.T) {
			r := &run{T: t, world: w, protocol: protocol, path: "/socket/" + string(protocol)}
			dialer := websocket.Dialer{
				Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: w.program.Proxy}), EnableCompression: true, TLSClientConfig: &tls.Config{RootCAs: w.roots},
			}
			c, res, err := dialer.Dial("ws"+strings.TrimPrefix(w.origin.URL(protocol, r.path), "http"), nil)
			r.must(err)
			defer c.Close()
			if got := res.Header.Get("Sec-WebSocket-Extensions"); !strings.Contains(got, "permessage-deflate") {
				t.Errorf("the extensions agreed on are %q", got)
			}
			said := func(i int) string { return fmt.Sprintf("message %d %s", i, strings.Repeat("again ", i)) }
			for i := range 50 {
				r.must(c.WriteMessage(websocket.TextMessage, []byte(said(i))))
				if _, got, err := c.ReadMessage(); err != nil || string(got) != said(i) {
					t.Fatalf("message %d came back as %q, %v", i, got, err)
				}
			}
			r.must(c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "bye"), time.Now().Add(patience)))
			_, _, _ = c.ReadMessage()
			_ = c.Close()
			all := r.messages(r.session().ID, 102)
			for i, m := range all[:100] {
				if !m.Compressed || m.Problem != "" || !strings.HasPrefix(strings.TrimSpace(said(i/2)), strings.TrimSuffix(m.Preview, "…")) {
					t.Errorf("message %d is listed as %+v", i, m)
				}
			}
		})
	}
}
