package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"millpond/storage"
)

// Names below localhost are this machine's (RFC 6761, section 6.3), whether its server listens on IPv4 or IPv6, and no way around the loop check.
func TestNamesBelowLocalhost(t *testing.T) {
	h := startHarness(t, Config{})
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Skipf("this machine has no %s: %v", at, err)
		}
		defer l.Close()
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				up := newPeer(t, nc)
				readHead(up.r, 1<<20)
				fmt.Fprint(up, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
				up.Close()
			}
		}()
		for _, name := range []string{"app.localhost", "a.b.LocalHost", "app.localhost."} {
			_, port, _ := net.SplitHostPort(l.Addr().String())
			c := h.dial()
			c.send(get(net.JoinHostPort(name, port), "/"))
			if answer, _ := c.rest(); !strings.HasSuffix(answer, "hi") {
				t.Errorf("%s at %s: got %q", name, at, answer)
			}
			if s := h.session(uint64(h.sessions())); s.State != storage.Done || s.Upstream != l.Addr().String() {
				t.Errorf("%s: session %v %q to %s", name, s.State, s.Error, s.Upstream)
			}
		}
	}
	_, own, _ := net.SplitHostPort(h.addr)
	c := h.dial()
	c.send("CONNECT app.localhost:" + own + " HTTP/1.1\r\n\r\n")
	c.rest()
	if s := h.session(uint64(h.sessions())); s.State != storage.Failed || !strings.Contains(s.Error, "own") {
		t.Errorf("a loop: %v %q", s.State, s.Error)
	}
}
