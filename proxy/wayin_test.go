package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// plainServer is an HTTP server that tells what it was asked, by which protocol, and what it saw of the proxy's fields.
func plainServer(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s%s %q\n", r.Proto, r.Host, r.URL, r.Header.Get("Proxy-Authorization"))
	}))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// listenToo has the proxy listen on a further address, and returns it with the port.
func (p *testProxy) listenToo(address string, serve func(net.Listener) error) string {
	p.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		p.t.Skip(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	p.t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestCurlEachWayIn(t *testing.T) {
	plain := plainServer(t)
	secure := webServer(t, upstreamCA().issue(nil, "localhost", "127.0.0.1"))
	ca := caFile(t)
	auth := mustCredentials(t, "ann:s3:cret")
	for _, cfg := range []Config{{ClientTLS: true}, {ClientTLS: true, Auth: auth}} {
		for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(fmt.Sprintf("%s auth %v", at, cfg.Auth != nil), func(t *testing.T) {
				p := startProxy(t, cfg)
				addr := p.listenToo(at, p.p.Serve)
				_, port, _ := net.SplitHostPort(addr)
				for _, way := range [][]string{
					{"--proxy", "http://" + addr},
					{"--proxy", "https://localhost:" + port, "--proxy-cacert", ca}, // by name: curl 7.88 takes an IPv6 address of a proxy for a name
					{"--socks5-hostname", addr},
					{"--socks5", addr},
					{"--proxy", "http://" + addr, "--http1.0", "--no-alpn"}, // with ALPN it offers http/1.0 alone, which the server refuses
				} {
					if cfg.Auth != nil {
						way = append(way, "--proxy-user", "ann:s3:cret")
					}
					for url, want := range map[string]string{
						"http://localhost:" + plain + "/a":  "localhost:" + plain,
						"https://localhost:" + secure + "/": "localhost:" + secure,
					} {
						out, code := run(t, "", "curl", append([]string{"-sS", "--cacert", ca, url}, way...)...)
						if way[0] == "--socks5" { // it resolves names itself
							want = strings.Replace(want, "localhost", "", 1)
						}
						if code != 0 || !strings.Contains(out, want) || strings.Contains(out, "Basic") {
							t.Fatalf("curl %v %s: %d: %s", way, url, code, out)
						}
						s := p.next()
						if s.State != storage.Done || !strings.HasSuffix(s.Host, want) || s.Method != "GET" {
							t.Errorf("curl %v %s: session %+v", way, url, s)
						}
						for _, m := range s.Sides {
							if strings.Contains(string(m.Head)+string(m.Received), "YW5u") {
								t.Errorf("curl %v %s: the credentials were kept: %q %q", way, url, m.Head, m.Received)
							}
						}
					}
				}
			})
		}
	}
}

func mustCredentials(t *testing.T, s string) *Credentials {
	t.Helper()
	c, err := ParseCredentials(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCredentialsAreRequired(t *testing.T) {
	plain := plainServer(t)
	p := startProxy(t, Config{Auth: mustCredentials(t, "ann:secret"), ClientTLS: true})
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"HTTP without", []string{"-x", "http://" + p.addr, "-i"}, 0, "407 Proxy Authentication Required"},
		{"HTTP wrong password", []string{"-x", "http://" + p.addr, "-U", "ann:secre", "-i"}, 0, `Proxy-Authenticate: Basic realm="Millpond"`},
		{"HTTP wrong user", []string{"-x", "http://" + p.addr, "-U", "an:secret", "-i"}, 0, "407 "},
		{"HTTP asked twice", []string{"-x", "http://" + p.addr, "-U", "ann:secret", "--proxy-anyauth"}, 0, "HTTP/1.1 "},
		{"CONNECT without", []string{"-x", "http://" + p.addr, "-p"}, 56, "407"},
		{"CONNECT", []string{"-x", "http://" + p.addr, "-p", "-U", "ann:secret"}, 0, "HTTP/1.1 "},
		{"SOCKS5 without", []string{"--socks5-hostname", p.addr}, 97, ""},
		{"SOCKS5 wrong", []string{"--socks5-hostname", p.addr, "-U", "ann:wrong"}, 97, ""},
		{"SOCKS5", []string{"--socks5-hostname", p.addr, "-U", "ann:secret"}, 0, "HTTP/1.1 "},
	} {
		out, code := run(t, "", "curl", append([]string{"-sS", "http://127.0.0.1:" + plain + "/"}, test.args...)...)
		if code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%s: curl: %d: %s", test.name, code, out)
		}
	}
	// The set-up page is how a device comes to work at all.
	for _, args := range [][]string{
		{"http://" + p.addr + "/"},
		{"http://millpond.internal/", "-x", "http://" + p.addr},
		{"http://millpond.internal/", "-x", "http://" + p.addr, "-p"},
		{"https://millpond.internal/", "-x", "http://" + p.addr, "--cacert", caFile(t)},
	} {
		if out, code := run(t, "", "curl", append([]string{"-sS"}, args...)...); code != 0 || !strings.Contains(out, "This is Millpond") {
			t.Errorf("the set-up page %v: %d: %s", args, code, out)
		}
	}
	if n := p.sessions(); n != 3 {
		t.Errorf("%d sessions, want the 3 of clients that were let in", n)
	}
}

// What a client shows to the proxy stands in no record, also where its request was not understood.
func TestCredentialsAreNotKept(t *testing.T) {
	const secret = "dG9wOnNlY3JldA=="
	for name, request := range map[string]string{
		"a good request":      "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nproxy-authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"folded":              "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nProxy-Authorization: Basic\r\n " + secret + "\r\nX: y\r\n\r\n",
		"CONNECT":             "CONNECT 127.0.0.1:1 HTTP/1.1\r\nProxy-Authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"ambiguous":           "GET http://127.0.0.1:1/ HTTP/1.1\r\nProxy-Authorization : Basic " + secret + "\r\nX: y\r\n\r\n",
		"two lengths":         "GET http://127.0.0.1:1/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\nProxy-Authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"no request":          "what\r\nProxy-Authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"folded elsewhere":    "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 1\r\nX: y\r\nContent-Length: 2\r\nY:\r\n Proxy-Authorization: Basic\r\n " + secret + "\r\n\r\n",
		"control byte":        "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nProxy-Authorization\x0b: Basic " + secret + "\r\nX: y\r\n\r\n",
		"bare CR":             "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX: a\rproxy-authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"folded Host":         "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n Proxy-Authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"CONNECT userinfo":    "CONNECT top:" + secret + "@127.0.0.1:1 HTTP/1.1\r\nProxy-Authorization: Basic " + secret + "\r\nX: y\r\n\r\n",
		"CONNECT, both":       "CONNECT top:" + secret + "@127.0.0.1:1 HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\nX: Proxy-Authorization " + secret + "\r\nX: y\r\n\r\n",
		"larger than allowed": "GET http://127.0.0.1:1/ HTTP/1.1\r\nProxy-Authorization: Basic " + secret + "\r\nX: y\r\n" + strings.Repeat("Y: z\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, Config{Limits: Limits{Head: 2000}})
			c := p.dial()
			c.send(request)
			c.rest()
			s := p.next()
			kept := string(s.Sides[storage.Request].Head) + string(s.Sides[storage.Request].Received) + s.Host + s.Path + s.Error
			if strings.Contains(kept, secret) || !strings.Contains(kept, "uthorization") || !strings.Contains(kept, "X: y") {
				t.Errorf("kept: %q", kept)
			}
		})
	}
}

func TestSOCKSRefusals(t *testing.T) {
	p := startProxy(t, Config{})
	own := p.dial().RemoteAddr().(*net.TCPAddr)
	for _, test := range []struct {
		name, request string
		reply         byte
		why           string
	}{
		{"BIND", "\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", socksNoSuchCommand, "BIND"},
		{"UDP ASSOCIATE", "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", socksNoSuchCommand, "UDP ASSOCIATE"},
		{"an unknown command", "\x05\x09\x00\x01\x7f\x00\x00\x01\x00\x50", socksNoSuchCommand, "command 9"},
		{"an unknown address type", "\x05\x01\x00\x05abc", socksNoSuchAddressType, "unknown type"},
		{"another version", "\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50", socksFailure, "version 5"},
		{"no port", "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00", socksFailure, "not a host and a port"},
		{"the proxy itself", "\x05\x01\x00\x01\x7f\x00\x00\x01" + portBytes(own.Port), socksNotAllowed, "loop"},
		{"nothing listens", "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01" + portBytes(1), socksRefused, "refused"},
		{"an unknown host", "\x05\x01\x00\x03\x0cnone.invalid\x00\x50", socksHostUnreachable, "none.invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := p.dial()
			c.send("\x05\x02\x00\x02")
			c.expect("\x05\x00")
			c.send(test.request)
			got := make([]byte, 10)
			if _, err := io.ReadFull(c.r, got); err != nil {
				t.Fatal(err)
			}
			if got[0] != 5 || got[1] != test.reply || got[3] != socksIPv4 {
				t.Errorf("reply % x, want code %d", got, test.reply)
			}
			if s := p.next(); s.State != storage.Failed || !strings.Contains(s.Error, test.why) {
				t.Errorf("session %v %q, want one that says %q", s.State, s.Error, test.why)
			}
		})
	}
	t.Run("no method in common", func(t *testing.T) {
		c := p.dial()
		c.send("\x05\x01\x01") // GSSAPI
		c.expect("\x05\xff")
		c.expectEnd()
	})
	t.Run("any password where none is wanted", func(t *testing.T) {
		c := p.dial()
		c.send("\x05\x01\x02\x01\x01a\x01b")
		c.expect("\x05\x02\x01\x00")
	})
}

func portBytes(port int) string { return string([]byte{byte(port >> 8), byte(port)}) }

// A client that gives its bytes one by one is a slow one, not another.
func TestSOCKSByteByByte(t *testing.T) {
	origin := startOrigin(t)
	host, port, _ := net.SplitHostPort(origin.addr)
	var n int
	fmt.Sscan(port, &n)
	p := startProxy(t, Config{Auth: mustCredentials(t, "u:p")})
	c := p.dial()
	for _, b := range []byte("\x05\x02\x00\x02\x01\x01u\x01p\x05\x01\x00\x03" + string(rune(len(host))) + host + portBytes(n) + "GET /x HTTP/1.1\r\nHost: a\r\n\r\n") {
		c.send(string([]byte{b}))
	}
	c.expect("\x05\x02\x01\x00\x05\x00\x00\x01")
	o := origin.accept()
	if head := o.head(); !strings.HasPrefix(head, "GET /x") {
		t.Errorf("the origin got %q", head)
	}
	o.send("HTTP/1.1 204 No Content\r\n\r\n")
	if s := p.next(); s.Path != "/x" || s.Status != 204 {
		t.Errorf("session %+v", s)
	}
}

// A client of SOCKS4 is told at once, in its own words, and there is a row.
func TestSOCKS4(t *testing.T) {
	p := startProxy(t, Config{})
	out, code := run(t, "", "curl", "-sS", "--socks4a", p.addr, "http://a.example/")
	if code == 0 || !strings.Contains(out, "rejected") {
		t.Errorf("curl ended with %d: %s", code, out)
	}
	if s := p.next(); s.State != storage.Failed || s.Host != p.addr || !strings.Contains(s.Error, "use SOCKS5") {
		t.Errorf("session %+v", s)
	}
}

// A server that speaks first, as SSH's does, is heard through SOCKS5 as through CONNECT.
func TestSOCKSServerSpeaksFirst(t *testing.T) {
	const banner = "SSH-2.0-OpenSSH_9.2p1\r\n"
	addr := serveEach(t, func(c *peerConn) {
		c.send(banner)
		c.rest()
	})
	_, port, _ := net.SplitHostPort(addr)
	var n int
	fmt.Sscan(port, &n)
	p := startProxy(t, Config{})
	c := p.dial()
	c.send("\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + portBytes(n))
	c.expect("\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01")
	io.ReadFull(c.r, make([]byte, 2)) // our port to upstream
	c.expect(banner)
	c.Close()
	if s := p.next(); !s.HasFlag(storage.FlagTunnel) || p.body(s.ID, storage.Response) != banner {
		t.Errorf("session %v %q", s.Flags, s.Error)
	}
}

// A client that begins and falls silent is let go, whatever it began with. It has asked for nothing, and is no session.
func TestSilentBeginners(t *testing.T) {
	p := startProxy(t, Config{ClientTLS: true, Limits: Limits{HeadTime: 200 * time.Millisecond, IdleTime: time.Minute}})
	for _, begun := range []string{"\x05", "\x05\x03\x00", "\x05\x01\x00", "\x05\x01\x00\x05\x01\x00\x03\xffa"} {
		c := p.dial()
		c.send(begun)
		c.rest()
	}
	if n := p.sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	c := p.dial()
	c.send("\x16\x03\x01\x00\xff")
	c.rest()
	if s := p.next(); s.State != storage.Failed || !strings.Contains(s.Error, "did not finish the TLS handshake in time") {
		t.Errorf("session %v %q", s.State, s.Error)
	}
}

// HTTP/1.0 clients: without keep-alive the connection ends with the answer; with it, it serves another. No 1xx reaches either.
func TestHTTP10Clients(t *testing.T) {
	for _, keep := range []bool{false, true} {
		origin := startOrigin(t)
		p := startProxy(t, Config{})
		c := p.dial()
		field := ""
		if keep {
			field = "Connection: keep-alive\r\n"
		}
		const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		var o *peerConn
		for range 2 {
			c.send("GET http://" + origin.addr + "/ HTTP/1.0\r\n" + field + "\r\n")
			if o == nil {
				o = origin.accept()
			}
			o.expect("GET / HTTP/1.0\r\nHost: " + origin.addr + "\r\n" + field + "\r\n")
			o.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer)
			c.expect(answer)
			if s := p.next(); s.State != storage.Done || len(s.Sides[storage.Response].Informational) != 1 {
				t.Errorf("session %v %q", s.State, s.Error)
			}
			if !keep {
				c.expectEnd()
				break
			}
		}
	}
}

// FuzzSOCKS reads any bytes as a request: it takes no more than the longest there is, and what it returns can be dialled or is refused.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x03\x09localhost\x00\x50"))
	f.Add([]byte("\x05\x03\x00\x04" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, request []byte) {
		r := strings.NewReader(string(request))
		authority, err := readSOCKS(r)
		if read := len(request) - r.Len(); read > 4+1+255+2 {
			t.Errorf("it read %d bytes", read)
		}
		if _, _, split := net.SplitHostPort(authority); err == nil && split != nil && !strings.ContainsAny(authority[:len(authority)-1], "[]:") {
			t.Errorf("%q: %v", authority, split)
		}
	})
}

// A request whose head was cut off, by its client, by the time or by its size, keeps nothing of what may be a user's name and password before the host of CONNECT.
func TestCutOffConnectKeepsNoCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		limits Limits
		sent   string
		want   string
		leave  bool
	}{
		"before the @":            {sent: "CONNECT user:SECRET", want: "CONNECT (not kept)", leave: true},
		"within the user's name":  {sent: "CONNECT SECR", want: "CONNECT (not kept)", leave: true},
		"behind an @ in it":       {sent: "CONNECT user:SECRET@SECR", want: "CONNECT (not kept)", leave: true},
		"a space in it":           {sent: "CONNECT user:SECRET SECR", want: "CONNECT (not kept)", leave: true},
		"another spelling":        {sent: " connect\tuser:SECRET", want: " connect\t(not kept)", leave: true},
		"in the version":          {sent: "CONNECT user:SECRET@host:1 HTTP/1.", want: "CONNECT (not kept)@host:1 HTTP/1.", leave: true},
		"no credentials in sight": {sent: "CONNECT host:1 HT", want: "CONNECT host:1 HT", leave: true},
		"in a field":              {sent: "CONNECT host:1 HTTP/1.1\r\nHost: a", want: "CONNECT host:1 HTTP/1.1\r\nHost: a", leave: true},
		"in the field's value":    {sent: "CONNECT host:1 HTTP/1.1\r\nProxy-Authorization: Basic SECRET", want: "CONNECT host:1 HTTP/1.1\r\nProxy-Authorization: (not kept)", leave: true},
		"by the time":             {limits: Limits{HeadTime: 50 * time.Millisecond}, sent: "CONNECT user:SECRET", want: "CONNECT (not kept)"},
		"by its size":             {limits: Limits{Head: 1 << 10}, sent: "CONNECT user:" + strings.Repeat("SECRET", 1000), want: "CONNECT (not kept)"},
		"a method in lower case":  {sent: "connect user:SECRET@host:1 HTTP/1.1\r\n\r\n", want: "connect (not kept)@host:1 HTTP/1.1\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, Config{Limits: test.limits})
			c := p.dial()
			c.send(test.sent)
			if test.leave {
				closeWrite(c)
			}
			answer, _ := c.rest()
			s := p.next()
			if got := string(s.Sides[storage.Request].Head); got != test.want {
				t.Errorf("kept %q, want %q", got, test.want)
			}
			if strings.Contains(s.Path+s.Host+s.Error+answer, "SECR") {
				t.Errorf("path %q, host %q, error %q, answer %q", s.Path, s.Host, s.Error, answer)
			}
		})
	}
}

// FuzzHideCredentials: no value of the field stays, and heads without it stay as they are.
func FuzzHideCredentials(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nproxy-authorization: Basic SECRET\r\n SECRET\r\nX: y\r\n\r\n"))
	f.Add([]byte("Proxy-Authorization : SECRET"))
	f.Add([]byte("CONNECT a:SECRET@b:1 HTTP/1.1\r\nX: a\rPROXY-authorization SECRET\r\n SECRET\r\n\r\n"))
	f.Add([]byte(" connect\ta:SECRET@b HTTP/1"))
	f.Add([]byte("CONNECT a:SECRET"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := string(raw)
		out := string(hideCredentials(raw))
		switch {
		case string(raw) != before:
			t.Error("the head itself was changed")
		case !strings.Contains(strings.ToLower(before), "proxy-authorization") && out != before:
			t.Errorf("%q became %q", before, out)
		case string(hideMentions(hideMentions(raw))) != string(hideMentions(raw)):
			t.Errorf("%q hidden twice is another: %q", before, hideMentions(raw))
		case string(hideCredentials([]byte(out))) != out:
			t.Errorf("%q hidden twice is another", before)
		}
		h, err := parseRequestHead(raw)
		if err != nil {
			return
		}
		value, ok := h.value(credentialsField)
		if hidden, err := parseRequestHead([]byte(out)); ok && value != "" && err == nil {
			if now, _ := hidden.value(credentialsField); now != notKept {
				t.Errorf("%q: the field is %q", before, now)
			}
		}
	})
}

func TestTLSToAProxyThatDoesNotSpeakIt(t *testing.T) {
	p := startProxy(t, Config{})
	if out, code := run(t, "", "curl", "-sS", "-x", "https://"+p.addr, "--proxy-cacert", caFile(t), "http://127.0.0.1:1/"); code != 35 {
		t.Fatalf("curl: %d: %s", code, out)
	}
	if s := p.next(); s.State != storage.Failed || !strings.Contains(s.Error, "--proxy-tls") {
		t.Errorf("session %v %q", s.State, s.Error)
	}
}

// A client of the proxy's own TLS that does not trust us is a row, as one inside a tunnel is.
func TestClientRejectsTheProxysCertificate(t *testing.T) {
	p := startProxy(t, Config{ClientTLS: true})
	if out, code := run(t, "", "curl", "-sS", "-x", "https://"+p.addr, "http://127.0.0.1:1/"); code != 60 {
		t.Fatalf("curl: %d: %s", code, out)
	}
	if s := p.next(); s.State != storage.Failed || !strings.Contains(s.Error, "rejected Millpond's certificate") {
		t.Errorf("session %v %q", s.State, s.Error)
	}
}
