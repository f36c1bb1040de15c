package proxy

import (
	"strings"
	"testing"

	"millpond/storage"
)

// TestOddNamesPassAndAreTold: a name that is no token passes byte for byte, with control bytes in values, and the session is flagged.
func TestOddNamesPassAndAreTold(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	const plain, odd = "X: caf\xe9\x01\r\nEmpty:\r\n", "a=b; c Server: x\r\ncaf\xe9: y\r\n"
	var up *peerConn
	for i, tt := range []struct{ request, response string }{
		{odd, plain},
		{plain, odd},
		{plain, plain},
	} {
		c.send(strings.Replace(get(o.addr, "/"), "\r\n\r\n", "\r\n"+tt.request+"\r\n", 1))
		if up == nil {
			up = o.accept()
		}
		up.expect("GET / HTTP/1.1\r\nHost: " + o.addr + "\r\n" + tt.request + "\r\n")
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + tt.response + "\r\nhi"
		up.send(answer)
		c.expect(answer)
		s := h.session(uint64(i + 1))
		want := tt.request == odd || tt.response == odd
		if s.State != storage.Done || s.HasFlag(storage.FlagOddName) != want || s.HasFlag(storage.FlagAmbiguousFraming) {
			t.Errorf("request %q, response %q: %v, %q", tt.request, tt.response, s.State, s.Flags)
		}
		if got := string(s.Sides[storage.Request].Head) + string(s.Sides[storage.Response].Head); !strings.Contains(got, tt.request) || !strings.Contains(got, tt.response) {
			t.Errorf("stored: %q", got)
		}
	}
}

func TestOddNamesOfHTTP2(t *testing.T) {
	for name, want := range map[string]bool{":path": false, "x-a": false, "X-A": true, "caf\xe9": true, ":": true} {
		if h := newHead2([]field{{name: ":method", value: "GET"}, {name: name, value: "/"}}); h.oddName != want {
			t.Errorf("%q: odd %v, want %v", name, h.oddName, want)
		}
	}
}
