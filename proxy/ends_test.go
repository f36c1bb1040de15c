package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
)

// get is a GET in absolute form.
func get(addr, path string) string {
	return "GET http://" + addr + path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"
}

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
			left := time.Now()
			c.Close()
			up.expectEnd()
			if took := time.Since(left); took > time.Second {
				t.Errorf("upstream was ended after %v, want at most a second", took)
			}
			s := h.session(1)
			if s.State != storage.ClientAborted || s.Error == "" || s.Sides[storage.Response].Body.Size != tt.size || s.Sides[storage.Response].Body.Complete {
				t.Errorf("got %v, %q, %+v", s.State, s.Error, s.Sides[storage.Response].Body)
			}
		})
	}
}

func TestClientThatLeavesWhileBytesPassEndsUpstream(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
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
			h := startHarness(t, Config{})
			o := startOrigin(t)
			c := h.dial()
			c.send(get(o.addr, "/"))
			up := o.accept()
			up.head()
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
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
	c.head()
	if rest, _ := c.rest(); !strings.HasPrefix(rest, "5\r\nhello\r\n") || strings.Contains(rest, "0\r\n\r\n") {
		t.Errorf("got %q", rest)
	}
	if s := h.session(1); s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "chunk") {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

// TestEarlyAnswersReachTheClient has upstream refuse a body that the client goes on sending, by each way to end a connection.
func TestEarlyAnswersReachTheClient(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(up *peerConn)
	}{
		{"closed with bytes unread", func(up *peerConn) { up.Close() }},
		{"ended sending", func(up *peerConn) { up.Conn.(*net.TCPConn).CloseWrite() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			o := startOrigin(t)
			for range 10 {
				c := h.dial()
				c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 50000000\r\n\r\n")
				go c.Write(make([]byte, 50_000_000))
				up := o.accept()
				up.head()
				const answer = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large"
				up.send(answer)
				tt.end(up)
				c.expect(answer)
				if rest, _ := c.rest(); rest != "" {
					t.Errorf("then came %.100q", rest)
				}
				c.Close()
			}
			for i := range uint64(10) {
				s := h.session(i + 1)
				if s.Status != 413 || s.State != storage.Done || s.Sides[storage.Request].Body.Complete {
					t.Errorf("got %d, %v, %q, %+v", s.Status, s.State, s.Error, s.Sides[storage.Request].Body)
				}
			}
		})
	}
}

func TestContinueIsUpstreamsToSay(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	post := "POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"

	c.send(post)
	up := o.accept()
	if got := up.head(); !strings.Contains(got, "Expect: 100-continue\r\n") {
		t.Errorf("got %q", got)
	}
	const early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	up.send(early + "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
	c.expect(early + "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
	c.send("hello")
	up.expect("hello")
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c.expect("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	s := h.session(1)
	if got := s.Sides[storage.Response].Informational; len(got) != 2 || string(got[0]) != early {
		t.Errorf("got %q", got)
	}
	h.expectBody(s, storage.Request, "hello")

	c.send(post)
	up.head()
	up.send("HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
	up.Close()
	c.expect("HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
	c.expectEnd()
	if s := h.session(2); s.State != storage.Done || s.Status != 417 {
		t.Errorf("got %v, %d, %q", s.State, s.Status, s.Error)
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
	addr := serveEach(t, func(u *peerConn) {
		u.head()
		u.send("HTTP/1.0 200 OK\r\n\r\nhello")
	})
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

// TestUploadMayOutlastTheResponse has upstream answer first and read after.
func TestUploadMayOutlastTheResponse(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 10\r\n\r\n01234")
	up := o.accept()
	up.head()
	up.send(answer)
	c.expect(answer)
	if s := h.await(1, func(s storage.Session) bool { return s.Status == 200 }); s.State != storage.Open {
		t.Errorf("got %v", s.State)
	}
	c.send("56789" + get(o.addr, "/next"))
	up.expect("0123456789GET /next HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
	up.send(answer)
	c.expect(answer)
	s := h.session(1)
	h.expectBody(s, storage.Request, "0123456789")
	if s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestUploadThatStopsAfterTheResponseIsEnded(t *testing.T) {
	h := startHarness(t, Config{Limits: Limits{IdleTime: 50 * time.Millisecond}})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 10\r\n\r\n01234")
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	c.expect("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	c.expectEnd()
	up.expect("01234")
	up.expectEnd()
	if s := h.session(1); s.State != storage.Done || s.Sides[storage.Request].Body.Complete {
		t.Errorf("got %v, %q, %+v", s.State, s.Error, s.Sides[storage.Request].Body)
	}
}

func TestClientThatTakesNothingForTooLongIsEnded(t *testing.T) {
	h := startHarness(t, Config{Limits: Limits{StallTime: 100 * time.Millisecond}})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\n\r\n")
	time.Sleep(200 * time.Millisecond) // silence is no stall
	go io.Copy(up.Conn, neverending('x'))
	if s := h.session(1); s.State != storage.ClientAborted || !strings.Contains(s.Error, "accepted no bytes for 100ms") {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestShutdownInterruptsWhatDoesNotEnd(t *testing.T) {
	for _, tt := range []struct{ name, request, before string }{
		{"before the response", "GET %[1]s/ HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		{"in the response", "GET %[1]s/ HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi"},
		{"in the upload", "POST %[1]s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhi", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			o := startOrigin(t)
			c := h.dial()
			c.send(fmt.Sprintf(tt.request, "http://"+o.addr))
			up := o.accept()
			up.head()
			up.send(tt.before)
			c.expect(tt.before)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			h.p.Shutdown(ctx)
			if s := h.session(1); s.State != storage.Interrupted {
				t.Errorf("got %v, %q", s.State, s.Error)
			}
		})
	}
}

func TestInformationalHeadsAreBounded(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	go func() {
		for {
			if _, err := io.WriteString(up.Conn, "HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	got, _ := c.rest()
	if n := len(got); n > 260<<10 || !strings.Contains(got, "HTTP/1.1 502 ") {
		t.Errorf("got %d bytes", n)
	}
	if s := h.session(1); s.Status != 502 || !strings.Contains(s.Error, "larger than 256 KiB") {
		t.Errorf("got %d, %q", s.Status, s.Error)
	}
}

func TestTrailersAreBounded(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
	go io.Copy(up.Conn, neverending('x'))
	c.head()
	if n, _ := io.Copy(io.Discard, c.r); n > 1<<20 {
		t.Errorf("got %d bytes of trailers", n)
	}
	if s := h.session(1); s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "trailers are larger") {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestUpstreamThatTakesNothingForTooLongIsEnded(t *testing.T) {
	h := startHarness(t, Config{Limits: Limits{StallTime: 100 * time.Millisecond}})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n")
	go io.Copy(c.Conn, neverending('x'))
	o.accept()
	if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
		t.Errorf("got %q", got)
	}
	if s := h.session(1); s.Status != 504 || !strings.Contains(s.Error, "accepted no bytes of the request for 100ms") {
		t.Errorf("got %d %v, %q", s.Status, s.State, s.Error)
	}
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

// The relay is in a write to a client that reads nothing, which the stop makes fail: the client has not left.
func TestShutdownInterruptsAWrite(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
	var sent atomic.Int64
	go func() {
		for {
			n, err := io.WriteString(up.Conn, pattern(64<<10))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	for last := int64(-1); last != sent.Load(); time.Sleep(100 * time.Millisecond) {
		last = sent.Load() // the sockets are full when it stands still
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.p.Shutdown(ctx)
	if s := h.session(1); s.State != storage.Interrupted {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

// The moment at which a request's body was sent is not the moment at which its response was done.
func TestRequestSentIsBeforeASlowResponse(t *testing.T) {
	h := startHarness(t, Config{})
	release := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-release
		w.WriteHeader(http.StatusNoContent)
	}))
	defer origin.Close()
	go func() {
		time.Sleep(50 * time.Millisecond) // the response's own time, not a wait for anything
		close(release)
	}()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: h.addr})}}
	defer client.CloseIdleConnections()
	res, err := client.Post(origin.URL, "text/plain", strings.NewReader(strings.Repeat("x", 20<<10)))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	s := h.session(1)
	if sent, head := s.Timing.RequestSent, s.Timing.ResponseHead; sent.IsZero() || head.Sub(sent) < 25*time.Millisecond {
		t.Errorf("the request was sent at %v, the response began at %v", sent, head)
	}
}
