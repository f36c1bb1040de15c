package wire

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"

	"millpond/e2e/harness"
)

var urlCases = []wireCase{
	wireCase{
		slug: "raw-path", sources: "mitmproxy/mitmproxy#724",
		elsewhere: "A path with raw UTF-8, or with a broken escape, is a bad request.",
		here:      "It passes as it is.",
		http2:     by(rawPath2),
	}.http1(rawPath),
	{
		slug: "idn", sources: "mitmproxy/mitmproxy#4622",
		elsewhere: "A host name beyond ASCII ends a WebSocket's handshake with an exception.",
		here:      "The name is in Punycode on the wire, and its certificate is for that; the session shows it in Unicode beside. In the clear a name in UTF-8 passes as it was typed, a WebSocket's too.",
		http:      by(idnTyped), https: by(idn), http2: by(idn),
	},
	wireCase{
		slug: "ipv6", sources: "httptoolkit/mockttp#201 mitmproxy/mitmproxy#8326",
		elsewhere: "The brackets of an IPv6 address are lost, and the request is refused.",
		here:      "Brackets stand wherever the address is a host.",
	}.each(by(ipv6)),
}

func rawPath(r *run) {
	for i, path := range []string{"/测试", "/%zz?q=%", "/a|b\"c<>`{}^", "/\xff\xfe", "/a//b/../c;d?e?f", "/caf\xe9?\\"} {
		part := &run{T: r.T, world: r.world, protocol: r.protocol, path: fmt.Sprintf("%s-%d%s", r.path, i, path)}
		var addr string
		addr = r.listen(func(c *conn) error {
			if err := c.expect("GET " + part.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"); err != nil {
				return err
			}
			c.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			return nil
		})
		c := r.dial(addr)
		c.send("GET " + r.target(addr, part.path) + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
		r.must(c.expect("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
		r.expectPath(i, part.path)
	}
}

func rawPath2(r *run) {
	for i, path := range []string{"/测试", "/%zz?q=%", "/a|b\"c<>`{}^", "/\xff\xfe", "/a//b/../c;d?e?f"} {
		part := &run{T: r.T, world: r.world, protocol: r.protocol, path: fmt.Sprintf("%s-%d%s", r.path, i, path)}
		var addr string
		addr = r.listen2(func(p *peer2) error {
			m, err := p.message()
			if err != nil {
				return err
			}
			p.send(m.stream, []string{":status", "204"}, "", nil)
			_, _ = p.message()
			return m.is(pseudo("GET", addr, part.path), "", nil)
		})
		c := r.dial2(addr)
		c.send(1, pseudo("GET", addr, part.path), "", nil)
		m, err := c.message()
		r.must(err)
		r.must(m.is([]string{":status", "204"}, "", nil))
		_ = c.Close()
		r.expectPath(i, part.path)
	}
}

// expectPath checks the session of a path whose beginning is found, by its number.
func (r *run) expectPath(i int, path string) {
	r.Helper()
	s := r.program.Await(r, fmt.Sprintf("%s-%d/", r.path, i), harness.Ended)
	if s.Status != 204 || !strings.Contains(s.Request.Head, latin1(path)) {
		r.Errorf("%q: session with status %d, path %q, head %q", path, s.Status, s.Path, s.Request.Head)
	}
}

// idn asks for a name that only an upstream proxy can resolve, which is the test's.
func idn(r *run) {
	const name = "xn--mnchen-3ya.example" // münchen.example, by RFC 5891
	hello, asked := make(chan string, 2), make(chan string, 2)
	cert, err := r.origin.Authority.Server(name)
	r.must(err)
	addr := r.tlsOrigin(&tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		hello <- h.ServerName
		return &cert, nil
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.accept(l, func(c *conn) error {
		head, err := c.head()
		if err != nil {
			return err
		}
		asked <- strings.SplitN(head, " ", 3)[1]
		up, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer up.Close()
		c.send(harness.Connected)
		go func() { _, _ = io.Copy(up, c.r) }()
		_, _ = io.Copy(c, up)
		return nil
	})
	p := harness.Start(r, "", append(r.origin.Trusted(r), "--upstream-proxy", "http://"+l.Addr().String())...)
	roots, err := harness.ReadPool(p.CA)
	r.must(err)
	c, err := harness.DialTLS(p.Proxy, name+":443", &tls.Config{RootCAs: roots, NextProtos: []string{r.alpn()}})
	r.must(err)
	defer c.Close()
	if leaf := c.ConnectionState().PeerCertificates[0]; leaf.VerifyHostname(name) != nil {
		r.Errorf("the certificate is for %q", leaf.DNSNames)
	}
	r.must(r.ask(c, name))
	_ = c.Close()
	if sni, authority := <-hello, <-asked; sni != name || authority != name+":443" {
		r.Errorf("on the wire the name is %q and %q, want %q", sni, authority, name)
	}
	s := p.Await(r, r.path, harness.Ended)
	r.expectDone(s, 204)
	var told struct {
		Unicode string `json:"host_unicode"`
	}
	p.Get(r, fmt.Sprintf("/api/sessions/%d", s.ID), &told)
	if s.Host != name || told.Unicode != "münchen.example" {
		r.Errorf("session tells %q and %q", s.Host, told.Unicode)
	}
}

// idnTyped asks in the clear for a name in UTF-8, by a request and by a WebSocket.
func idnTyped(r *run) {
	const name = "münchen.localhost"
	var addr string
	addr = hostNamed(name, r.listen(func(c *conn) error {
		if err := c.expect("GET " + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"); err != nil {
			return err
		}
		c.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		return nil
	}))
	c := r.dial(addr)
	c.send("GET http://" + addr + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
	r.must(c.expect("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
	s := r.session()
	r.expectDone(s, 204)
	if s.Host != addr {
		r.Errorf("session tells %q, want %q", s.Host, addr)
	}

	part := *r
	part.path += "/socket"
	w := part.socket(opening{name: name}, func(s *socket) error {
		if err := s.expect(final|text, "grüß"); err != nil {
			return err
		}
		return s.goodbye()
	})
	w.send(final|text, "grüß")
	part.close(w)
	if s := part.session(); s.Status != 101 || !strings.HasPrefix(s.Host, name+":") {
		part.Errorf("session with status %d, host %q", s.Status, s.Host)
	}
}

// hostNamed returns the address with another name for its host; the address itself for none.
func hostNamed(name, addr string) string {
	if name == "" {
		return addr
	}
	return name + addr[strings.LastIndexByte(addr, ':'):]
}

func ipv6(r *run) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		r.Skip(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	if r.protocol == harness.HTTP2 {
		addr = r.listenAt(addr, func(c *conn) error { return serveOne2(c, r.path) })
		c := r.dial2(addr)
		c.send(1, pseudo("GET", addr, r.path), "", nil)
		m, err := c.message()
		r.must(err)
		r.must(m.is([]string{":status", "204"}, "", nil))
		_ = c.Close()
	} else {
		const answer = "HTTP/1.1 204 No Content\r\n\r\n"
		addr = r.listenAt(addr, func(c *conn) error {
			if err := c.expect("GET " + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"); err != nil {
				return err
			}
			c.send(answer)
			return c.expectEnd()
		})
		c := r.dial(addr)
		c.send("GET " + r.target(addr, r.path) + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
		r.must(c.expect(answer))
	}
	s := r.session()
	r.expectDone(s, 204)
	if s.Host != addr || s.Upstream != addr || !strings.HasPrefix(addr, "[::1]:") {
		r.Errorf("session tells host %q, upstream %q; want %q", s.Host, s.Upstream, addr)
	}
}
