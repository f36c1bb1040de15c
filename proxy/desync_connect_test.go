package proxy

import (
	"net"
	"testing"

	"millpond/storage"
)

// After a CONNECT and its 2xx, both sides are a tunnel, whatever framing the two heads claim. RFC 9110, section 9.3.6.
func TestConnectHasNoFraming(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	for _, fields := range []string{"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"} {
		t.Run("the client's "+fields[:len(fields)-2], func(t *testing.T) {
			c := h.dial()
			c.send("CONNECT " + o.addr + " HTTP/1.1\r\n" + fields + "\r\n\x00\x01raw")
			up := o.accept()
			c.expect(established)
			up.expect("\x00\x01raw")
			up.send("raw back")
			c.expect("raw back")
		})
		t.Run("upstream's "+fields[:len(fields)-2], func(t *testing.T) {
			c := h.dial()
			c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
			c.expect(established)
			const inner = "CONNECT inner:1 HTTP/1.1\r\nHost: inner:1\r\n\r\n"
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			up := o.accept()
			up.head()
			up.send(ok)
			c.expect(ok)
			c.send(inner)
			up.expect(inner)
			up.send("HTTP/1.1 200 OK\r\n" + fields + "\r\n5\r\nhello\r\n0\r\n\r\n" + evil)
			c.expect("HTTP/1.1 200 OK\r\n" + fields + "\r\n5\r\nhello\r\n0\r\n\r\n" + evil)
			c.send("raw")
			up.expect("raw")
			c.Conn.(*net.TCPConn).CloseWrite()
			up.expectEnd()
			up.Close()
			c.expectEnd()
			s := h.session(uint64(h.sessions()))
			if s.Method != "CONNECT" || s.State != storage.Done || !s.HasFlag(storage.FlagUpgraded) {
				t.Errorf("%s %v %q %q", s.Method, s.State, s.Flags, s.Error)
			}
			h.expectBody(s, storage.Request, "raw")
		})
	}
	t.Run("both", func(t *testing.T) {
		c := h.dial()
		c.send("CONNECT " + o.addr + " HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
		if got := c.head(); got[:13] != "HTTP/1.1 400 " {
			t.Errorf("got %q", got)
		}
		if len(o.conns) > 0 {
			t.Error("it went upstream")
		}
	})
}
