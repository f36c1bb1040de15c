package proxy

import (
	"testing"

	"millpond/storage"
)

func TestGetIsRelayedByteForByteAndRecorded(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	const fields = "User-Agent: caf\xe9\r\nX-Empty:\r\nx-ODD:\r\nX-Odd:  two \r\n\r\n"
	received := "GET http://" + o.addr + "/a%zz?b=c HTTP/1.1\r\nhOST: " + o.addr + "\r\nProxy-Connection: keep-alive\r\n" + fields
	forwarded := "GET /a%zz?b=c HTTP/1.1\r\nhOST: " + o.addr + "\r\n" + fields
	const answer = "HTTP/1.1 200 Gut\xe9\r\ncOntent-lenGth: 5\r\nContent-Type: text/x-odd; a=b\r\nX-Empty:\r\nSet-Cookie: a\r\nSet-Cookie: b, c\r\n\r\n"
	var up *peerConn
	for i := range uint64(2) {
		c.send(received)
		if i == 0 {
			up = o.accept()
		}
		up.expect(forwarded)
		up.send(answer + "hello")
		c.expect(answer + "hello")

		s := h.session(i + 1)
		if s.State != storage.Done || s.Error != "" || s.Status != 200 || s.Method != "GET" || s.Scheme != "http" || s.Host != o.addr || s.Path != "/a%zz?b=c" ||
			s.Upstream != o.addr || s.Protocol != "HTTP/1.1" || s.ContentType != "text/x-odd; a=b" || s.Client != c.LocalAddr().String() {
			t.Errorf("session %d: %+v", i+1, s)
		}
		if got := string(s.Sides[storage.Request].Head); got != forwarded {
			t.Errorf("request head: got %q, want %q", got, forwarded)
		}
		if got := string(s.Sides[storage.Request].Received); got != received {
			t.Errorf("request head as received: got %q, want %q", got, received)
		}
		if got := string(s.Sides[storage.Response].Head); got != answer {
			t.Errorf("response head: got %q, want %q", got, answer)
		}
		h.expectBody(s, storage.Response, "hello")
		if got := s.HasFlag(storage.FlagReused); got != (i == 1) {
			t.Errorf("session %d: reused is %v", i+1, got)
		}
	}
}
