package proxy

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"millpond/storage"
)

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

// The relay is in a write to a client that reads nothing, which the stop makes fail: the client has not left.
func TestShutdownInterruptsAWrite(t *testing.T) {
	h, _, up := startGet(t, Config{})
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

func TestShutdownLetsExchangesEnd(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	idle, busy := h.dial(), h.dial()
	idle.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	idle.head()
	busy.send(get(o.addr, "/"))
	up = o.accept()
	up.head()
	down := make(chan error, 1)
	go func() { down <- h.p.Shutdown(t.Context()) }()
	idle.expectEnd()
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	busy.expect("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	busy.expectEnd()
	if err := <-down; err != nil {
		t.Error(err)
	}
	if s := h.session(2); s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}
