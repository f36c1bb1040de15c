package proxy

import (
	"net"
	"testing"

	"millpond/storage"
)

func TestUpgrade(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	upgrade := "GET http://" + o.addr + "/chat HTTP/1.1\r\nHost: " + o.addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie: a\r\nOrigin: http://x\r\nSec-WebSocket-Key: k\r\n\r\n"
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

	t.Run("with a frame in the same write", func(t *testing.T) {
		c := h.dial()
		c.send(upgrade + "first frame")
		up := o.accept()
		up.expect("GET /chat HTTP/1.1\r\nHost: " + o.addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie: a\r\nOrigin: http://x\r\nSec-WebSocket-Key: k\r\n\r\n")
		up.send(switching + "and one back")
		c.expect(switching + "and one back")
		up.expect("first frame")
		for range 3 {
			c.send("ping")
			up.expect("ping")
			up.send("pong")
			c.expect("pong")
		}
		c.Conn.(*net.TCPConn).CloseWrite()
		up.expectEnd()
		up.send("last")
		up.Close()
		c.expect("last")
		c.expectEnd()
		s := h.session(1)
		if s.State != storage.Done || s.Status != 101 || !s.HasFlag(storage.FlagUpgraded) {
			t.Errorf("got %v %q %d %q", s.State, s.Error, s.Status, s.Flags)
		}
		h.expectBody(s, storage.Request, "first framepingpingping")
		h.expectBody(s, storage.Response, "and one backpongpongponglast")
	})
	t.Run("refused, with the next request behind it", func(t *testing.T) {
		c := h.dial()
		c.send(upgrade + get(o.addr, "/next"))
		up := o.accept()
		up.head()
		up.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		c.expect("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		up.expect("GET /next HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.expect("HTTP/1.1 204 No Content\r\n\r\n")
		for i := uint64(2); i <= 3; i++ {
			if s := h.session(i); s.State != storage.Done || s.HasFlag(storage.FlagUpgraded) {
				t.Errorf("session %d: %v %q %q", i, s.State, s.Error, s.Flags)
			}
		}
	})
	t.Run("a CONNECT inside a tunnel", func(t *testing.T) {
		c := h.dial()
		c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
		c.head()
		const nested = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"
		c.send(nested)
		up := o.accept()
		up.expect(nested)
		up.send("HTTP/1.1 200 Connection established\r\n\r\nhello")
		c.expect("HTTP/1.1 200 Connection established\r\n\r\nhello")
		c.send("bye")
		up.expect("bye")
		c.Close()
		up.expectEnd()
	})
}
