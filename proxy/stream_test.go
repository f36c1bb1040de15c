package proxy

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// TestEventsArriveAtOnce sends events one by one in each framing, and reads what is stored while the response lasts.
func TestEventsArriveAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, fields string
		event        func(string) string
	}{
		{"chunked", "Transfer-Encoding: chunked\r\n", func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }},
		{"until close", "", func(s string) string { return s }},
		{"length", "Content-Length: 100000\r\n", func(s string) string { return s }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, up := startGet(t, Config{})
			up.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + tt.fields + "\r\n")
			c.head() // before any event
			var took []time.Duration
			size := uint64(0)
			for i := range 20 {
				event := fmt.Sprintf("data: %d\n\n", i)
				at := time.Now()
				up.send(tt.event(event))
				c.expect(tt.event(event))
				took = append(took, time.Since(at))
				size += uint64(len(event))
				s := h.await(1, func(s storage.Session) bool {
					b, err := h.store.Body(s.ID, storage.Response)
					if err != nil {
						return false
					}
					defer b.Close()
					return uint64(b.Size()) == size
				})
				if s.State != storage.Open {
					t.Fatalf("got %v", s.State)
				}
			}
			// None waited for the next, which was sent after it had arrived; nor for a timer, which would delay each.
			if quickest := slices.Min(took); quickest > 100*time.Millisecond {
				t.Errorf("all events took more than 100 ms: %v", took)
			}
			c.Close()
		})
	}
}

// TestSlowClientHoldsUpstreamBack has a client read nothing: upstream gets rid of no more than socket buffers hold.
func TestSlowClientHoldsUpstreamBack(t *testing.T) {
	_, _, up := startGet(t, Config{})
	up.send("HTTP/1.1 200 OK\r\n\r\n")
	up.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := io.Copy(up, io.LimitReader(neverending('x'), 256<<20))
	if err == nil || n > 64<<20 {
		t.Errorf("upstream sent %d MiB to a client that reads nothing, %v", n>>20, err)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	const n = 50
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "POST http://%s/%d HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", o.addr, i, o.addr)
	}
	c.send(all.String())
	up := o.accept()
	for i := range n {
		if got := up.head(); !strings.HasPrefix(got, fmt.Sprintf("POST /%d ", i)) {
			t.Fatalf("request %d: got %q", i, got)
		}
		up.expect("2\r\nhi\r\n0\r\n\r\n")
		if up.r.Buffered() > 0 {
			t.Fatal("the next request was sent before this one was answered")
		}
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%03d", i)
		up.send(answer)
		c.expect(answer)
	}
}

// TestSlowAnswersLetPipelinedRequestsWait has a client send its next request while it waits so long that it is watched.
func TestSlowAnswersLetPipelinedRequestsWait(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/1"))
	up := o.accept()
	up.head()
	time.Sleep(2 * watchClientAfter)
	c.send(get(o.addr, "/2") + get(o.addr, "/3")[:20])
	time.Sleep(watchClientAfter / 4)
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	for i := range 3 {
		if i > 0 {
			if got := up.head(); !strings.HasPrefix(got, fmt.Sprintf("GET /%d ", i+1)) {
				t.Fatalf("got %q", got)
			}
		}
		up.send(answer)
		c.expect(answer)
		if i == 1 {
			c.send(get(o.addr, "/3")[20:])
		}
	}
}

func TestHTTP10(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send("GET http://" + o.addr + "/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	up := o.accept()
	up.expect("GET / HTTP/1.0\r\nHost: " + o.addr + "\r\nConnection: keep-alive\r\n\r\n")
	up.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi")
	c.expect("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi") // HTTP/1.0 knows no 1xx
	c.send("GET http://" + o.addr + "/ HTTP/1.0\r\n\r\n")
	up.expect("GET / HTTP/1.0\r\nHost: " + o.addr + "\r\n\r\n")
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	c.expect("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	c.expectEnd()
	up.expectEnd()
}

// TestBodylessResponses sees that no byte is added or awaited, and that the connection stays in order.
func TestBodylessResponses(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	var up *peerConn
	for i, tt := range []struct{ method, answer string }{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
	} {
		c.send(tt.method + " http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
		if i == 0 {
			up = o.accept()
		}
		up.head()
		up.send(tt.answer)
		c.expect(tt.answer)
		if s := h.session(uint64(i + 1)); s.State != storage.Done || !s.Sides[storage.Response].Body.Complete {
			t.Errorf("%q: %v, %q, %+v", tt.answer, s.State, s.Error, s.Sides[storage.Response].Body)
		}
	}
}

func TestUpstreamConnectionsOfAClientAreBounded(t *testing.T) {
	h := startHarness(t, Config{})
	c := h.dial()
	var ups []*peerConn
	for range maxIdleUpstreams + 1 {
		o := startOrigin(t)
		c.send(get(o.addr, "/"))
		up := o.accept()
		up.head()
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.head()
		ups = append(ups, up)
	}
	ups[0].expectEnd() // the longest unused
	ups[1].SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := ups[1].r.Peek(1); !timedOut(err) {
		t.Errorf("the second connection was closed too: %v", err)
	}
	c.Close()
	for _, up := range ups[1:] {
		up.SetReadDeadline(time.Now().Add(patience))
		up.expectEnd()
	}
}
