package proxy

import (
	"net"
	"strings"
	"testing"

	"millpond/storage"
)

func TestParseReverse(t *testing.T) {
	for url, want := range map[string]string{
		"https://api.example":        "https://api.example",
		"https://api.example/":       "https://api.example",
		"http://api.example:80":      "http://api.example",
		"http://[::1]:9000":          "http://[::1]:9000",
		"HTTPS://api.example:8443":   "https://api.example:8443",
		"api.example":                "",
		"ftp://api.example":          "",
		"https://api.example/v1":     "",
		"https://u:p@api.example":    "",
		"https://":                   "",
		"https://api.example:0":      "",
		"https://api.example?x=1":    "",
		"https://api example":        "",
		"https://api.example:nought": "",
	} {
		r, err := ParseReverse(url)
		if got := r.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %s, %v; want %q", url, got, err, want)
		}
	}
}

func mustReverse(t *testing.T, url string) Reverse {
	t.Helper()
	r, err := ParseReverse(url)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReverse(t *testing.T) {
	origin := startOrigin(t)
	to := mustReverse(t, "http://"+origin.addr)
	p := startProxy(t, Config{Auth: mustCredentials(t, "a:b")}) // which is not for a listener that is no proxy
	addr := p.listenToo("127.0.0.1:0", func(l net.Listener) error { return p.p.ServeReverse(l, to) })
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := newPeer(t, nc)
	defer c.Close()
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	var o *peerConn
	for _, test := range []struct{ sent, want string }{
		{"GET /a?b HTTP/1.1\r\nX: y\r\nhost: local\r\nProxy-Authorization: mine\r\n\r\n", "GET /a?b HTTP/1.1\r\nX: y\r\nhost: ORIGIN\r\nProxy-Authorization: mine\r\n\r\n"},
		{"GET http://other.example/a HTTP/1.1\r\nHost: other.example\r\n\r\n", "GET /a HTTP/1.1\r\nHost: ORIGIN\r\n\r\n"},
		{"OPTIONS * HTTP/1.1\r\nHost: ORIGIN\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: ORIGIN\r\n\r\n"},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET / HTTP/1.0\r\nHost: ORIGIN\r\nConnection: keep-alive\r\n\r\n"},
	} {
		sent, want := strings.ReplaceAll(test.sent, "ORIGIN", origin.addr), strings.ReplaceAll(test.want, "ORIGIN", origin.addr)
		c.send(sent)
		if o == nil {
			o = origin.accept() // and it serves them all
		}
		if got := o.head(); got != want {
			t.Errorf("sent %q, the origin got %q, want %q", sent, got, want)
		}
		o.send(answer)
		c.expect(answer)
		s := p.next()
		m := s.Sides[storage.Request]
		received := sent
		if sent == want {
			received = ""
		}
		if s.State != storage.Done || s.Host != origin.addr || !s.HasFlag(storage.FlagReverse) || string(m.Head) != want || string(m.Received) != received {
			t.Errorf("session %v %s %v, head %q, received %q", s.State, s.Host, s.Flags, m.Head, m.Received)
		}
	}
	c.send("CONNECT a:1 HTTP/1.1\r\n\r\n")
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 400") {
		t.Errorf("CONNECT: %q", head)
	}
}

// curl over both schemes, to an upstream of both.
func TestCurlReverse(t *testing.T) {
	secure := webServer(t, upstreamCA().issue(nil, "localhost"))
	to := mustReverse(t, "https://localhost:"+secure)
	p := startProxy(t, Config{})
	addr := p.listenToo("127.0.0.1:0", func(l net.Listener) error { return p.p.ServeReverse(l, to) })
	for _, url := range []string{"http://" + addr + "/", "https://" + addr + "/"} {
		out, code := run(t, "", "curl", "-sS", "--http1.1", "--cacert", caFile(t), url, url)
		if want := strings.Repeat("HTTP/1.1 localhost:"+secure, 2); code != 0 || out != want {
			t.Fatalf("curl %s: %d: %s, want %s", url, code, out, want)
		}
		for i, s := range p.all(2) {
			if s.Scheme != "https" || s.Host != "localhost:"+secure || s.HasFlag(storage.FlagReused) != (i == 1) {
				t.Errorf("session %+v", s)
			}
		}
	}
}

// An upgrade in reverse mode, to an upstream by its IPv6 address, whose brackets stay.
func TestReverseUpgrade(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	to := mustReverse(t, "http://"+l.Addr().String())
	p := startProxy(t, Config{})
	addr := p.listenToo("[::1]:0", func(l net.Listener) error { return p.p.ServeReverse(l, to) })
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := newPeer(t, nc)
	defer c.Close()
	c.send("GET /chat HTTP/1.1\r\nHost: local\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nat once")
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	o := newPeer(t, accepted)
	defer o.Close()
	o.expect("GET /chat HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"
	o.send(switching)
	o.expect("at once")
	c.expect(switching)
	o.send("an answer")
	c.expect("an answer")
	c.Close()
	o.expectEnd()
	o.Close()
	if s := p.next(); s.Host != l.Addr().String() || !s.HasFlag(storage.FlagReverse) || !s.HasFlag(storage.FlagUpgraded) {
		t.Errorf("session %s %v %q", s.Host, s.Flags, s.Error)
	}
}

// A listener that would forward to a listener of this process refuses, whichever of them it is.
func TestReverseLoops(t *testing.T) {
	p := startProxy(t, Config{})
	l := listenLocal(t)
	for _, target := range []string{p.addr, l.Addr().String()} {
		to := mustReverse(t, "http://"+target)
		addr := target
		if target == p.addr {
			addr = p.listenToo("127.0.0.1:0", func(l net.Listener) error { return p.p.ServeReverse(l, to) })
		} else {
			done := make(chan error, 1)
			go func() { done <- p.p.ServeReverse(l, to) }()
			t.Cleanup(func() { l.Close(); <-done })
		}
		if out, code := run(t, "", "curl", "-sS", "-i", "http://"+addr+"/"); code != 0 || !strings.HasPrefix(out, "HTTP/1.1 508 ") {
			t.Errorf("curl %s: %d: %s", addr, code, out)
		}
		if s := p.next(); s.State != storage.Failed || !strings.Contains(s.Error, "loop") {
			t.Errorf("session %v %q", s.State, s.Error)
		}
	}
}
