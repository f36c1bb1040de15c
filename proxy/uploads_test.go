package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

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
