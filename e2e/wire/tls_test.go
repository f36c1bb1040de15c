package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"millpond/e2e/harness"
)

const noTLS = "There is no TLS."

var tlsCases = []wireCase{
	{
		slug: "address-without-name", sources: "mitmproxy/mitmproxy#1846 mitmproxy/mitmproxy#745 mitmproxy/mitmproxy#4480 lqqyt2423/go-mitmproxy#64",
		elsewhere: "A client without SNI fails, and so does an address as host; upstream is sent an address as SNI.",
		here:      "The certificate is for the address that CONNECT named, and upstream gets no SNI that the client did not send.",
		http:      not(noTLS), https: by(addressWithoutName), http2: by(addressWithoutName),
	},
	{
		slug: "name-without-sni", sources: "mitmproxy/mitmproxy#1846",
		elsewhere: "A client without SNI fails.",
		here:      "The certificate is for the host that CONNECT named.",
		http:      not(noTLS), https: shown("proxy", "TestOpenSSLWithoutAName"), http2: shown("proxy", "TestServerName"),
	},
	{
		slug: "old-tls", sources: "httptoolkit/httptoolkit#928 httptoolkit/httptoolkit#290 httptoolkit/httptoolkit#132 mitmproxy/mitmproxy#5422 mitmproxy/mitmproxy#6166",
		elsewhere: "An upstream or a client with old TLS fails without a word on why.",
		here:      "The row names the cause.",
		http:      not(noTLS), https: shown("proxy", "TestUpstreamWithBadTLS"),
		http2: not("HTTP/2 needs TLS 1.2 or newer (RFC 9113, section 9.2)."),
	},
	{
		slug: "old-tls-client", sources: "httptoolkit/httptoolkit#928",
		elsewhere: "A client with old TLS fails without a word on why.",
		here:      "The row names the cause.",
		http:      not(noTLS), https: shown("proxy", "TestClientWithoutCommonVersionIsARow"),
		http2: not("HTTP/2 needs TLS 1.2 or newer (RFC 9113, section 9.2)."),
	},
	{
		slug: "old-tls-allowed", sources: "httptoolkit/httptoolkit#928 httptoolkit/httptoolkit#132",
		elsewhere: "A host that has old TLS alone cannot be looked at.",
		here:      "It is allowed for that host (`--min-tls`), upstream and for its clients.",
		http:      not(noTLS), https: shown("proxy", "TestMinimumTLS"),
		http2: not("HTTP/2 needs TLS 1.2 or newer (RFC 9113, section 9.2)."),
	},
	{
		slug: "client-certificate", sources: "ProxymanApp/Proxyman#1994",
		elsewhere: "A client certificate cannot be replaced in place.",
		here:      "Its files are read again when they change.",
		http:      not(noTLS), https: shown("proxy", "TestClientCertificate"), http2: not("The certificate is shown in the TLS handshake, before the protocol begins: `https` shows it."),
	},
	{
		slug: "renegotiation", sources: "",
		elsewhere: "An upstream that negotiates anew, as older ones do before they ask for a certificate, ends the exchange.",
		here:      "For a host with `--min-tls` it works; without a rule the client gets a 502 that names the cause, and so does the row.",
		http:      not(noTLS), https: shown("proxy", "TestRenegotiation"), http2: not("HTTP/2 forbids renegotiation (RFC 9113, section 9.2.1)."),
	},
	{
		slug: "ech", sources: "saucesteals/utlsproxy#9",
		elsewhere: "With a server that speaks ECH the handshake ends with `server sent ECH retry configs`.",
		here:      "The handshake with such a server works. A client that offers ECH to us is told, by the protocol's own means, to do without (RFC 9849, section 6.1.6), and then is served.",
		http:      not(noTLS), https: by(ech), http2: by(ech),
	},
	{
		slug: "bad-certificate", sources: "ProxymanApp/proxyman-windows-linux#372 saucelabs/forwarder#333",
		elsewhere: "There is no way on past a self-signed certificate, or HTTP/2 does not take it.",
		here:      "Without leave the client gets a 502 that names the cause; with leave, for all hosts or for this one, it is accepted over either protocol, and the session says so.",
		http:      not(noTLS), https: by(badCertificate), http2: by(badCertificate),
	},
	{
		slug: "leaf-validity", sources: "ProxymanApp/Proxyman#914 mitmproxy/mitmproxy#4610 mitmproxy/mitmproxy#8142 mitmproxy/mitmproxy#8203",
		elsewhere: "A certificate that is valid for too long is refused.",
		here:      "From begin to end it is at most 197 days.",
		http:      not(noTLS), https: by(leafValidity), http2: by(leafValidity),
	},
	{
		slug: "server-first", sources: "labstack/tunnel-client#5",
		elsewhere: "SSH through CONNECT does not work: the proxy waits for the client, or answers in HTTP.",
		here:      "Who speaks first decides. A server that does has a raw tunnel at once.",
		http:      by(serverFirst),
		https:     not("A tunnel whose server speaks first holds no TLS."),
		http2:     not("A tunnel whose server speaks first holds no TLS."),
	},
	{
		slug: "client-rejects", sources: "httptoolkit/httptoolkit#34",
		elsewhere: "A client that does not trust the authority leaves nothing to see.",
		here:      "It is a row that says so.",
		http:      not(noTLS), https: by(clientRejects), http2: by(clientRejects),
	},
	{
		slug: "http2-only", sources: "elazarl/goproxy#755",
		elsewhere: "A client of HTTP/1 gets `HTTP/2.0 200` from a server that speaks HTTP/2 alone.",
		here:      "No message is translated between versions: the exchange fails, as it does without a proxy. There the handshake ends with no_application_protocol; here the client gets a 502 in HTTP/1.1 that names the cause, and so does the row.",
		http:      not("Without TLS nothing is negotiated."), https: by(http2Only),
		http2: not("A client of HTTP/2 has such a server as its peer."),
	},
}

// tlsOrigin serves handshakes by the configuration, and then nothing but reading.
func (r *run) tlsOrigin(config *tls.Config) (addr string) {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	if config.NextProtos == nil {
		config.NextProtos = []string{r.alpn()}
	}
	r.accept(tls.NewListener(l, config), func(c *conn) error {
		if r.protocol == harness.HTTP2 {
			return serveOne2(c, r.path)
		}
		if _, err := c.head(); err != nil {
			return nil
		}
		c.send("HTTP/1.1 204 No Content\r\n\r\n")
		_, _ = io.Copy(io.Discard, c.r)
		return nil
	})
	return l.Addr().String()
}

// ask sends one request on a connection that stands, and wants a 204.
func (r *run) ask(c *tls.Conn, addr string) error {
	if r.protocol != harness.HTTP2 {
		p := newConn(c)
		p.send("GET " + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
		return p.expect("HTTP/1.1 204 No Content\r\n\r\n")
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return err
	}
	p := newPeer2(http2.NewFramer(c, newConn(c).r), c)
	if err := p.WriteSettings(); err != nil {
		return err
	}
	p.send(1, pseudo("GET", addr, r.path), "", nil)
	m, err := p.message()
	if err != nil {
		return err
	}
	return m.is([]string{":status", "204"}, "", nil)
}

// tlsFacts are what a session tells of its TLS.
type tlsFacts struct {
	ServerName    string `json:"server_name"`
	ALPN          string `json:"alpn"`
	UpstreamError string `json:"upstream_error"`
}

func (r *run) tlsOf(p *harness.Program, id uint64) tlsFacts {
	r.Helper()
	var s struct{ TLS tlsFacts }
	p.Get(r, fmt.Sprintf("/api/sessions/%d", id), &s)
	return s.TLS
}

func addressWithoutName(r *run) {
	names := make(chan string, 4)
	addr := r.tlsOrigin(&tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		names <- h.ServerName
		return &r.cert, nil
	}})
	// Go sends no SNI for an address (RFC 6066, section 3), and checks the certificate's IP addresses.
	c, err := harness.DialTLS(r.program.Proxy, addr, &tls.Config{RootCAs: r.roots, NextProtos: []string{r.alpn()}})
	r.must(err)
	defer c.Close()
	if got := <-names; got != "" {
		r.Errorf("upstream was sent the name %q", got)
	}
	if leaf := c.ConnectionState().PeerCertificates[0]; len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1)) || len(leaf.DNSNames) > 0 {
		r.Errorf("the certificate is for %v %q", leaf.IPAddresses, leaf.DNSNames)
	}
	r.must(r.ask(c, addr))
	_ = c.Close()
	s := r.session()
	r.expectDone(s, 204)
	if got := r.tlsOf(r.program, s.ID); got.ServerName != "" || got.ALPN != r.alpn() {
		r.Errorf("session tells %+v", got)
	}
}

// certificate is one that nobody vouches for.
func (r *run) selfSigned() tls.Certificate {
	r.Helper()
	other, err := harness.NewAuthority()
	r.must(err)
	cert, err := other.Server()
	r.must(err)
	return cert
}

func badCertificate(r *run) {
	addr := r.tlsOrigin(&tls.Config{Certificates: []tls.Certificate{r.selfSigned()}})
	c, err := harness.DialTLS(r.program.Proxy, addr, &tls.Config{RootCAs: r.roots, NextProtos: []string{r.alpn()}})
	r.must(err) // so that a client can be told
	if err := r.ask(c, addr); err == nil || !strings.Contains(err.Error(), "502") {
		r.Errorf("without leave: %v, want a 502", err)
	}
	_ = c.Close()
	if s := r.program.Await(r, addr, harness.Ended); s.State != "failed" || !strings.Contains(s.Error, "certificate") {
		r.Errorf("without leave the session is %s (%s)", s.State, s.Error)
	}

	for _, leave := range []string{"--insecure-upstream", "--insecure-host=127.0.0.1"} {
		r.expectAccepted(addr, leave)
	}
}

// expectAccepted asks an origin with a bad certificate through a program that has leave to accept it.
func (r *run) expectAccepted(addr, leave string) {
	r.Helper()
	p := harness.Start(r, "", leave)
	roots, err := harness.ReadPool(p.CA)
	r.must(err)
	c, err := harness.DialTLS(p.Proxy, addr, &tls.Config{RootCAs: roots, NextProtos: []string{r.alpn()}})
	r.must(err)
	r.must(r.ask(c, addr))
	_ = c.Close()
	s := p.Await(r, r.path, harness.Ended)
	r.expectDone(s, 204)
	if got := r.tlsOf(p, s.ID); got.UpstreamError == "" || !slices.Contains(s.Flags, "insecure_upstream") {
		r.Errorf("%s: session tells %+v, flags %q", leave, got, s.Flags)
	}
}

func leafValidity(r *run) {
	addr := r.tlsOrigin(&tls.Config{Certificates: []tls.Certificate{r.cert}})
	c, err := harness.DialTLS(r.program.Proxy, addr, &tls.Config{RootCAs: r.roots, NextProtos: []string{r.alpn()}})
	r.must(err)
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	if total := leaf.NotAfter.Sub(leaf.NotBefore); total > 197*24*time.Hour || time.Now().Before(leaf.NotBefore) {
		r.Errorf("valid from %v to %v", leaf.NotBefore, leaf.NotAfter)
	}
}

func serverFirst(r *run) {
	const banner, reply = "SSH-2.0-test\r\n", "SSH-2.0-client\r\n"
	addr := r.listen(func(c *conn) error {
		c.send(banner)
		if err := c.expect(reply); err != nil {
			return err
		}
		c.send("\x00\x01\x02\xff")
		return nil
	})
	nc, err := harness.Dial(r.program.Proxy, addr)
	r.must(err)
	defer nc.Close()
	c := newConn(nc)
	r.must(c.expect(banner))
	c.send(reply)
	r.must(c.expect("\x00\x01\x02\xff"))
	r.must(c.expectEnd())
	_ = c.Close()
	s := r.program.Await(r, addr, harness.Ended)
	r.expectFlag(s, "tunnel", true)
	if s.Method != "CONNECT" || s.State != "done" {
		r.Errorf("session is %s of %s (%s)", s.State, s.Method, s.Error)
	}
	r.expectBody(s, "request", reply)
	r.expectBody(s, "response", banner+"\x00\x01\x02\xff")
}

func clientRejects(r *run) {
	addr := r.tlsOrigin(&tls.Config{Certificates: []tls.Certificate{r.cert}})
	_, err := harness.DialTLS(r.program.Proxy, addr, &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{r.alpn()}})
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		r.Fatalf("the client got %v, want an unknown authority", err)
	}
	if s := r.program.Await(r, addr, harness.Ended); s.State != "failed" || s.Host != addr || !strings.Contains(s.Error, "certificate") {
		r.Errorf("session is %s of %s (%s)", s.State, s.Host, s.Error)
	}
}

func http2Only(r *run) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.accept(l, func(c *conn) error {
		// A server of HTTP/2 alone: to a ClientHello without h2 it says the fatal alert no_application_protocol (RFC 7301, section 3.2).
		head, err := c.r.Peek(5)
		if err != nil {
			return err
		}
		if _, err := c.r.Discard(5 + int(head[3])<<8 + int(head[4])); err != nil {
			return err
		}
		c.send("\x15\x03\x03\x00\x02\x02\x78")
		_, _ = io.Copy(io.Discard, c.r)
		return nil
	})
	addr := l.Addr().String()
	config := &tls.Config{RootCAs: r.roots, NextProtos: []string{"http/1.1"}}
	_, without := tls.Dial("tcp", addr, config)
	if without == nil || !strings.Contains(without.Error(), "no application protocol") {
		r.Errorf("without a proxy: %v, want the alert no_application_protocol", without)
	}
	c, err := harness.DialTLS(r.program.Proxy, addr, config)
	r.must(err)
	defer c.Close()
	p := newConn(c)
	p.send("GET " + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
	if head, err := p.head(); err != nil || !strings.HasPrefix(head, "HTTP/1.1 502 ") {
		r.Errorf("through it: %q, %v, want a 502", head, err)
	}
	if s := r.program.Await(r, addr, harness.Ended); s.State != "failed" || !strings.Contains(s.Error, "protocol") {
		r.Errorf("session is %s (%s)", s.State, s.Error)
	}
}
