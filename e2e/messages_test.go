package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millpond/e2e/harness"
)

// listed is what the list of messages tells of one.
type listed struct {
	Number  uint64 `json:"number"`
	Side    string `json:"side"`
	Type    string `json:"type"`
	Preview string `json:"preview"`
	Pending bool   `json:"pending"`
	Problem string `json:"problem"`
}

// said is the nth message of a side.
func said(side string, n int) string {
	return fmt.Sprintf(`{"side":%q,"n":%d,"text":"%s"}`, side, n, strings.Repeat("words that repeat ", n%7))
}

// 10,000 WebSocket messages without a pause, from the server and compressed, are all listed, in order, with the right bytes: while the connection is open, and
// after the program was killed.
func TestTenThousandMessagesWithoutAPause(t *testing.T) {
	const n = 10_000
	for _, compressed := range []bool{false, true} {
		t.Run(fmt.Sprintf("compressed %v", compressed), func(t *testing.T) {
			dir := t.TempDir()
			p := harness.Start(t, dir)
			upgrader := websocket.Upgrader{EnableCompression: compressed}
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, err := upgrader.Upgrade(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if _, _, err := c.ReadMessage(); err != nil {
					t.Error(err)
					return
				}
				for i := range n {
					if err := c.WriteMessage(websocket.TextMessage, []byte(said("response", i))); err != nil {
						t.Error(err)
						return
					}
				}
				_, _, _ = c.ReadMessage() // until the program is killed
			}))
			defer origin.Close()
			d := websocket.Dialer{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.Proxy}), EnableCompression: compressed}
			c, _, err := d.Dial("ws"+strings.TrimPrefix(origin.URL, "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			began := time.Now()
			if err := c.WriteMessage(websocket.TextMessage, []byte(said("request", 0))); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if _, m, err := c.ReadMessage(); err != nil || string(m) != said("response", i) {
					t.Fatalf("message %d: got %q, %v", i, m, err)
				}
			}
			t.Logf("%d messages took %v", n, time.Since(began))
			id := p.Sessions(t, "")[0].ID
			expect := func() {
				t.Helper()
				next := 0
				for from := 1; from <= n; {
					var list struct {
						Messages []listed `json:"messages"`
					}
					p.Get(t, fmt.Sprintf("/api/sessions/%d/messages?from=%d&limit=500", id, from), &list)
					if len(list.Messages) == 0 {
						t.Fatalf("%d messages are listed, want %d", from, n+1)
					}
					for _, m := range list.Messages {
						if m.Pending {
							break
						}
						if want := said("response", next); m.Side != "response" || m.Preview != want || m.Problem != "" {
							t.Fatalf("message %d: got %+v, want %q", from, m, want)
						}
						from, next = from+1, next+1
					}
				}
			}
			expect()
			time.Sleep(1500 * time.Millisecond) // a stream that is in a file of its own is told of each second, and what is told survives
			p.Kill()
			p = harness.Start(t, dir)
			expect()
			for _, i := range []int{1, n / 2, n} {
				res, err := p.Call(t.Context(), "GET", fmt.Sprintf("/api/sessions/%d/messages/%d/payload?as=decoded", id, i))
				if err != nil {
					t.Fatal(err)
				}
				digest, size, err := harness.Digest(res.Body)
				res.Body.Close()
				want, _, _ := harness.Digest(strings.NewReader(said("response", i-1)))
				if err != nil || digest != want {
					t.Errorf("payload of message %d: %d bytes, %v, or others", i, size, err)
				}
			}
		})
	}
}
