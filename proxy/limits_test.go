package proxy

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
)

func TestClientThatTakesNothingForTooLongIsEnded(t *testing.T) {
	h, _, up := startGet(t, Config{Limits: Limits{StallTime: 100 * time.Millisecond}})
	up.send("HTTP/1.1 200 OK\r\n\r\n")
	time.Sleep(200 * time.Millisecond) // silence is no stall
	go io.Copy(up.Conn, neverending('x'))
	if s := h.session(1); s.State != storage.ClientAborted || !strings.Contains(s.Error, "accepted no bytes for 100ms") {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

func TestInformationalHeadsAreBounded(t *testing.T) {
	h, c, up := startGet(t, Config{})
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
	h, c, up := startGet(t, Config{})
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

// TestEndlessHeadLineCostsNothing sends a line of 200 MB.
func TestEndlessHeadLineCostsNothing(t *testing.T) {
	h := startHarness(t, Config{})
	c := h.dial()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	io.WriteString(c, "GET http://a/ HTTP/1.1\r\nX: ")
	io.Copy(c.Conn, io.LimitReader(neverending('x'), 200<<20))
	got, _ := c.rest()
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	if s := h.session(1); s.Status != 431 || len(s.Sides[storage.Request].Head) > 8<<10 {
		t.Errorf("got %d, a head of %d bytes, answer %.50q", s.Status, len(s.Sides[storage.Request].Head), got)
	}
}

func TestClientsBeyondTheBoundWait(t *testing.T) {
	h := startHarness(t, Config{Limits: Limits{Connections: 2}})
	first, second, third := h.dial(), h.dial(), h.dial()
	const request, answer = "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n"
	third.send(request)
	third.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := third.r.Peek(1); !timedOut(err) {
		t.Fatalf("the third was served: %v", err)
	}
	first.Close()
	third.SetReadDeadline(time.Now().Add(patience))
	third.expect(answer)
	second.send(request)
	second.expect(answer)
}

func TestIdleClientIsClosed(t *testing.T) {
	h, c, up := startGet(t, Config{Limits: Limits{IdleTime: 50 * time.Millisecond}})
	time.Sleep(2 * watchClientAfter) // no limit on a response
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.expect("HTTP/1.1 204 No Content\r\n\r\n")
	c.expectEnd()
	up.expectEnd()
	if s := h.session(1); s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

// exhausted is a listener whose first Accepts fail for want of descriptors.
type exhausted struct {
	net.Listener
	failures int
}

func (e *exhausted) Accept() (net.Conn, error) {
	if e.failures > 0 {
		e.failures--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return e.Listener.Accept()
}

func TestAcceptGoesOnAfterDescriptorsRanOut(t *testing.T) {
	h := startHarness(t, Config{})
	l := listenLocal(t)
	served := make(chan error, 1)
	go func() { served <- h.p.Serve(&exhausted{l, 3}) }()
	h.addr = l.Addr().String()
	c := h.dial()
	c.send("GET / HTTP/1.1\r\n\r\n")
	c.expect("HTTP/1.1 200 OK\r\n")
	h.p.Shutdown(t.Context())
	if err := <-served; err != nil {
		t.Error(err)
	}
}
