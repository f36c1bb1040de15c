package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
)

func TestClientThatLeavesEndsUpstream(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request string
		before  string // what upstream sends before the client leaves
		size    uint64
	}{
		{"while waiting for the response", "GET %s HTTP/1.1\r\n", "", 0},
		{"in the middle of a silent body", "GET %s HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", 5},
		{"in the middle of a silent upload", "POST %s HTTP/1.1\r\nContent-Length: 100\r\n", "", 0},
		{"after its upload", "POST %s HTTP/1.1\r\nContent-Length: 3\r\n", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			o := startOrigin(t)
			c := h.dial()
			c.send(fmt.Sprintf(tt.request, "http://"+o.addr+"/") + "Host: " + o.addr + "\r\n\r\n")
			if strings.HasPrefix(tt.request, "POST") {
				c.send("abc")
			}
			up := o.accept()
			up.head()
			if strings.HasPrefix(tt.request, "POST") {
				up.expect("abc")
			}
			up.send(tt.before)
			c.expect(tt.before)
			c.Close()
			up.expectEnd() // although it says nothing, and nobody else does
			s := h.session(1)
			if s.State != storage.ClientAborted || s.Error == "" || s.Sides[storage.Response].Body.Size != tt.size || s.Sides[storage.Response].Body.Complete {
				t.Errorf("got %v, %q, %+v", s.State, s.Error, s.Sides[storage.Response].Body)
			}
		})
	}
}

func TestClientThatLeavesWhileBytesPassEndsUpstream(t *testing.T) {
	h, c, up := startGet(t, Config{})
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
	c.head()
	c.Close()
	for sent := 0; ; sent++ { // until the connection breaks
		if _, err := up.Write(make([]byte, 64<<10)); err != nil {
			break
		} else if sent > 1<<14 {
			t.Fatal("a GiB was taken for a client that left")
		}
	}
	if s := h.session(1); s.State != storage.ClientAborted {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestUpstreamThatBreaksOffBreaksTheClient(t *testing.T) {
	reset := func(c *peerConn) {
		c.Conn.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	shut := func(c *peerConn) { c.Close() }
	for _, tt := range []struct {
		name, answer string
		end          func(*peerConn)
		wantReset    bool
	}{
		{"length, FIN", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", shut, false},
		{"length, reset", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", reset, false},
		{"chunked, FIN", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", shut, false},
		{"chunked, inside a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\nhello", shut, false},
		{"chunked, inside the trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n", shut, false},
		{"until close, reset", "HTTP/1.1 200 OK\r\n\r\nhello", reset, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, up := startGet(t, Config{})
			up.send(tt.answer)
			c.expect(tt.answer)
			tt.end(up)
			rest, err := c.rest()
			if rest != "" || tt.wantReset && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %q, %v, reset wanted: %v", rest, err, tt.wantReset)
			}
			s := h.session(1)
			if body := s.Sides[storage.Response].Body; s.State != storage.UpstreamAborted || s.Error == "" || body.Size != 5 || body.Complete {
				t.Errorf("got %v, %q, %+v", s.State, s.Error, body)
			}
			if got := h.body(s.ID, storage.Response); got != "hello" {
				t.Errorf("stored: %q", got)
			}
		})
	}
}

func TestBrokenChunksBreakTheClient(t *testing.T) {
	h, c, up := startGet(t, Config{})
	up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
	c.head()
	if rest, _ := c.rest(); !strings.HasPrefix(rest, "5\r\nhello\r\n") || strings.Contains(rest, "0\r\n\r\n") {
		t.Errorf("got %q", rest)
	}
	if s := h.session(1); s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "chunk") {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

// TestReusedConnectionThatEndsIsNotReplayed closes upstream's connection as a POST arrives on it.
func TestReusedConnectionThatEndsIsNotReplayed(t *testing.T) {
	for _, inTunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a tunnel %v", inTunnel), func(t *testing.T) {
			h := startHarness(t, Config{})
			o := startOrigin(t)
			c := h.dial()
			target := "http://" + o.addr
			if inTunnel {
				target = ""
				c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
				c.head()
			}
			post := "POST " + target + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 2\r\n\r\nhi"
			c.send(post)
			up := o.accept()
			up.head()
			up.expect("hi")
			up.send("HTTP/1.1 204 No Content\r\n\r\n")
			c.expect("HTTP/1.1 204 No Content\r\n\r\n")

			c.send(post)
			up.head()
			up.Close()
			c.expectEnd()
			s := h.session(2)
			if s.State != storage.UpstreamAborted || s.Status != 0 || !s.HasFlag(storage.FlagReused) {
				t.Errorf("got %v, %d, %q, %q", s.State, s.Status, s.Error, s.Flags)
			}
			select {
			case <-o.conns:
				t.Error("the POST was sent again")
			case <-time.After(300 * time.Millisecond): // that nothing comes has no event to wait for
			}
		})
	}
}

func TestIdleUpstreamThatClosesIsDropped(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	for range 2 {
		c.send(get(o.addr, "/"))
		up := o.accept()
		up.head()
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.expect("HTTP/1.1 204 No Content\r\n\r\n")
		time.Sleep(2 * watchUpstreamAfter) // the connection is idle
		up.Close()
		time.Sleep(2 * watchUpstreamAfter)
	}
	for i := range uint64(2) {
		if s := h.session(i + 1); s.State != storage.Done || s.HasFlag(storage.FlagReused) {
			t.Errorf("session %d: %v, %q, %q", i+1, s.State, s.Error, s.Flags)
		}
	}
}

func TestIdleUpstreamThatClosesEndsATunnel(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
	c.head()
	c.send("GET / HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.expect("HTTP/1.1 204 No Content\r\n\r\n")
	up.Close()
	c.expectEnd()
	if s := h.session(1); s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestUpstreamWithoutAResponseIsA502(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"nothing", "", "closed the connection without a response"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", "in the middle of a response's head"},
		{"not HTTP", "SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10), "larger than 256 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			addr := serveEach(t, func(u *peerConn) {
				u.head()
				io.WriteString(u, tt.answer)
			})
			c := h.dial()
			c.send(get(addr, "/"))
			got, _ := c.rest()
			if !strings.HasPrefix(got, "HTTP/1.1 502 Bad Gateway\r\n") || !strings.Contains(got, "Millpond: ") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q", got)
			}
			s := h.session(1)
			if s.Status != 502 || !strings.Contains(s.Error, tt.want) {
				t.Errorf("got %d, %v, %q", s.Status, s.State, s.Error)
			}
			if head := string(s.Sides[storage.Response].Head); !strings.HasPrefix(got, head) || h.body(s.ID, storage.Response) != got[len(head):] {
				t.Errorf("stored is not what was sent: %q", head)
			}
		})
	}
}

func TestCloseDelimitedBodyEndedByFINIsDone(t *testing.T) {
	h := startHarness(t, Config{})
	addr := serveAnswer(t, "HTTP/1.0 200 OK\r\n\r\nhello")
	c := h.dial()
	c.send(get(addr, "/"))
	if got, err := c.rest(); got != "HTTP/1.0 200 OK\r\n\r\nhello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	s := h.session(1)
	if s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
	h.expectBody(s, storage.Response, "hello")
}

// TestReusedConnectionThatEndsAfterAnInformationalResponse: what has begun to answer has had the request.
func TestReusedConnectionThatEndsAfterAnInformationalResponse(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.head()
	c.send(get(o.addr, "/"))
	up.head()
	up.send("HTTP/1.1 103 Early Hints\r\n\r\n")
	up.Close()
	c.expect("HTTP/1.1 103 Early Hints\r\n\r\n")
	if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Errorf("got %q", got)
	}
}
