package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millpond/storage"
)

// upstreamCA signs the certificates of the tests' upstream servers.
var upstreamCA = sync.OnceValue(func() *authorityPair { return newAuthority() })

type authorityPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() *authorityPair {
	keyPEM, err := newKeyPEM()
	if err != nil {
		panic(err)
	}
	certPEM, err := newCertPEM(keyPEM)
	if err != nil {
		panic(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		panic(err)
	}
	return &authorityPair{pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)}
}

func (a *authorityPair) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue returns a certificate for the names, valid now unless change says otherwise. A nil authority signs itself.
func (a *authorityPair) issue(change func(*x509.Certificate), names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// testProxy is a harness whose proxy trusts upstreamCA and issues from testCA.
type testProxy struct {
	*harness
	seen int // sessions that the test has asked for
}

func startProxy(t *testing.T, cfg Config) *testProxy {
	t.Helper()
	cfg.CA = testCA()
	if cfg.UpstreamRoots == nil {
		cfg.UpstreamRoots = upstreamCA().pool()
	}
	h := startHarness(t, cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what a test left open is not waited for
		h.p.Shutdown(ctx)
	})
	return &testProxy{harness: h}
}

// upstream serves each connection to a listener of its own with fn, and returns the listener's address. At the test's end the connections are closed.
func upstream(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	l := listenLocal(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				fn(c)
			})
		}
	})
	return l.Addr().String()
}

// upstreamTLS is an upstream that does TLS handshakes and then calls fn, which may be nil: then the connection is held until the client ends it.
func upstreamTLS(t *testing.T, config *tls.Config, fn func(*tls.Conn)) string {
	t.Helper()
	return upstream(t, func(c net.Conn) {
		tc := tls.Server(c, config)
		if tc.Handshake() != nil {
			return
		}
		defer tc.Close()
		if fn != nil {
			fn(tc)
			return
		}
		io.Copy(io.Discard, tc)
	})
}

// connect asks the proxy for a tunnel and returns the answer. A good one leaves the connection open.
func (p *testProxy) connect(authority string) (net.Conn, *http.Response) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second)) // of the whole test
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		p.t.Fatalf("CONNECT %s: %v", authority, err)
	}
	return &bufferedConn{Conn: c, r: r}, res
}

// tunnelTo is connect where a tunnel is expected.
func (p *testProxy) tunnelTo(authority string) net.Conn {
	p.t.Helper()
	c, res := p.connect(authority)
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		p.t.Fatalf("CONNECT %s: %s: %s", authority, res.Status, body)
	}
	if len(res.Header) != 0 {
		p.t.Errorf("the answer to CONNECT has fields %v, want none", res.Header)
	}
	return c
}

// handshake does TLS through the proxy, trusting its authority.
func (p *testProxy) handshake(authority string, config *tls.Config) (*tls.Conn, error) {
	p.t.Helper()
	config = config.Clone()
	if config.RootCAs == nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AddCert(testCA().Certificate())
	}
	tc := tls.Client(p.tunnelTo(authority), config)
	return tc, tc.Handshake()
}

// next waits until the session after the one last asked for has ended, and returns it. There must be none beyond it.
func (p *testProxy) next() storage.Session {
	p.t.Helper()
	return p.all(1)[0]
}

// all is next for n sessions.
func (p *testProxy) all(n int) []storage.Session {
	p.t.Helper()
	var sessions []storage.Session
	for range n {
		p.seen++
		sessions = append(sessions, p.session(uint64(p.seen)))
	}
	if got := p.sessions(); got != p.seen {
		p.t.Errorf("%d sessions, want %d", got, p.seen)
	}
	return sessions
}

func (p *testProxy) wantFailed(why string) storage.Session {
	p.t.Helper()
	s := p.next()
	if s.State != storage.Failed || !strings.Contains(s.Error, why) {
		p.t.Errorf("session is %v, %q; want failed, with %q", s.State, s.Error, why)
	}
	if s.Method != http.MethodConnect || s.Host == "" || s.Client == "" {
		p.t.Errorf("session lacks method, host or client: %+v", s)
	}
	return s
}

func TestProtocolIsMirrored(t *testing.T) {
	p := startProxy(t, Config{})
	for _, test := range []struct{ upstream, client []string }{
		{[]string{"h2", "http/1.1"}, []string{"h2", "http/1.1"}},
		{[]string{"http/1.1"}, []string{"h2", "http/1.1"}},
		{[]string{"h2"}, []string{"h2", "http/1.1"}},
		{[]string{"h2", "http/1.1"}, []string{"http/1.1"}},
		{[]string{"h2", "http/1.1"}, nil},
		{nil, []string{"h2", "http/1.1"}},
		{nil, nil},
		{[]string{"dot", "x"}, []string{"x", "dot"}},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprintf("%v,%v,%s", test.upstream, test.client, tls.VersionName(version)), func(t *testing.T) {
				chosen := make(chan string, 1)
				addr := upstreamTLS(t, &tls.Config{
					Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, NextProtos: test.upstream,
				}, func(c *tls.Conn) {
					chosen <- c.ConnectionState().NegotiatedProtocol
					io.Copy(io.Discard, c)
				})
				c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: test.client, MaxVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				if got, want := c.ConnectionState().NegotiatedProtocol, <-chosen; got != want {
					t.Errorf("the client got protocol %q, upstream chose %q", got, want)
				}
			})
		}
	}
}

func TestUnknownProtocolIsADecryptedTunnel(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{
		Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, NextProtos: []string{"shout/1"},
	}, func(c *tls.Conn) {
		asked, _ := io.ReadAll(c)
		c.Write(bytes.ToUpper(asked))
	})
	p := startProxy(t, Config{})
	c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: []string{"shout/1"}})
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello")
	c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "HELLO" {
		t.Fatalf("got %q, %v", got, err)
	}
	s := p.next()
	if s.State != storage.Done || !s.HasFlag(storage.FlagTunnel) || s.Protocol != "TLS" || s.TLS == nil || s.TLS.ALPN != "shout/1" {
		t.Errorf("session %+v", s)
	}
	p.expectBody(s, storage.Request, "hello")
	p.expectBody(s, storage.Response, "HELLO")
}

// An end of TLS without close_notify may be a cut: the client gets it as it was.
func TestDecryptedTunnelPassesAMissingNotify(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("close_notify %v", clean), func(t *testing.T) {
			addr := upstreamTLS(t, &tls.Config{
				Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, NextProtos: []string{"talk"},
			}, func(c *tls.Conn) {
				io.WriteString(c, "hello")
				if clean {
					c.CloseWrite()
				} else {
					closeWrite(bottom(c))
				}
				io.Copy(io.Discard, c)
			})
			p := startProxy(t, Config{})
			below := &bufferedConn{Conn: p.tunnelTo(addr), r: bufio.NewReader(strings.NewReader(""))}
			c := tls.Client(below, &tls.Config{ServerName: "example.com", NextProtos: []string{"talk"}, InsecureSkipVerify: true})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); string(got) != "hello" || err != nil || below.eof == clean {
				t.Errorf("got %q, %v, close_notify %v, want %v", got, err, !below.eof, clean)
			}
			c.Close()
			if s := p.next(); s.Sides[storage.Response].Body.Complete != clean {
				t.Errorf("the body is complete: %v, want %v", !clean, clean)
			}
		})
	}
}

func TestServerName(t *testing.T) {
	p := startProxy(t, Config{})
	for _, test := range []struct {
		name      string
		sni       string // the client's
		skip      bool   // it verifies nothing, as a client without a name must
		authority string // the host that is asked for; the port is upstream's
		wantSNI   string // upstream's
		wantName  string // of the certificate that the client gets
	}{
		{name: "name", sni: "example.com", authority: "127.0.0.1", wantSNI: "example.com", wantName: "example.com"},
		{name: "no name", skip: true, authority: "127.0.0.1", wantName: "127.0.0.1"},
		{name: "no name, asked by name", skip: true, authority: "localhost", wantName: "localhost"},
		{name: "address", sni: "127.0.0.1", authority: "127.0.0.1", wantName: "127.0.0.1"},
		{name: "name in capitals", sni: "EXAMPLE.com", authority: "127.0.0.1", wantSNI: "EXAMPLE.com", wantName: "example.com"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sni := make(chan string, 1)
			addr := upstreamTLS(t, &tls.Config{
				Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com", "localhost", "127.0.0.1")},
			}, func(c *tls.Conn) {
				sni <- c.ConnectionState().ServerName
				io.Copy(io.Discard, c)
			})
			_, port, _ := net.SplitHostPort(addr)
			c, err := p.handshake(net.JoinHostPort(test.authority, port), &tls.Config{ServerName: test.sni, InsecureSkipVerify: test.skip})
			if err != nil {
				t.Fatal(err)
			}
			if got := <-sni; got != test.wantSNI {
				t.Errorf("upstream was asked for %q, want %q", got, test.wantSNI)
			}
			if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(test.wantName); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTicketsResume(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			var mu sync.Mutex
			var resumed []bool
			addr := upstreamTLS(t, &tls.Config{
				Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, NextProtos: []string{"talk"},
			}, func(c *tls.Conn) {
				mu.Lock()
				resumed = append(resumed, c.ConnectionState().DidResume)
				mu.Unlock()
				io.WriteString(c, "x") // a client takes tickets as it reads
				io.Copy(io.Discard, c)
			})
			p := startProxy(t, Config{})
			config := &tls.Config{
				ServerName: "example.com", NextProtos: []string{"talk"}, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
				RootCAs: x509.NewCertPool(),
			}
			config.RootCAs.AddCert(testCA().Certificate())
			for i := range 3 {
				c, err := p.handshake(addr, config)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if got := c.ConnectionState().DidResume; got != (i > 0) {
					t.Errorf("connection %d: the client resumed: %v", i, got)
				}
				c.Close()
			}
			p.all(3)
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(resumed, []bool{false, true, true}) {
				t.Errorf("upstream resumed: %v", resumed)
			}
		})
	}
}

func TestClientThatRejectsTheCertificateIsARow(t *testing.T) {
	p := startProxy(t, Config{})
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			if _, err := p.handshake(addr, &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool(), MaxVersion: version}); err == nil {
				t.Fatal("the client accepted the certificate")
			}
			s := p.wantFailed("the client rejected Millpond's certificate")
			if s.TLS == nil || s.TLS.ServerName != "example.com" || s.Upstream != addr {
				t.Errorf("session lacks the name or upstream: %+v", s)
			}
		})
		t.Run("silently, "+tls.VersionName(version), func(t *testing.T) {
			tunnel := p.tunnelTo(addr)
			tls.Client(tunnel, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true, MaxVersion: version, VerifyConnection: func(tls.ConnectionState) error {
				tunnel.Close()
				return errors.New("closed")
			}}).Handshake()
			p.wantFailed("the client closed the connection when it had Millpond's certificate")
		})
	}
}

func TestClientWithoutCommonVersionIsARow(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, nil)
	p := startProxy(t, Config{})
	if _, err := p.handshake(addr, &tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Fatal("TLS 1.1 was accepted")
	}
	p.wantFailed("no common version")
}

func TestUpstreamWithBadTLS(t *testing.T) {
	p := startProxy(t, Config{})
	other := newAuthority()
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	early := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }
	withCert := func(c tls.Certificate) func(*testing.T) string {
		return func(t *testing.T) string {
			return upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"h2", "http/1.1"}}, nil)
		}
	}
	for _, test := range []struct {
		name     string
		upstream func(*testing.T) string
		want     string
	}{
		{"expired", withCert(upstreamCA().issue(expired, "example.com")), "it expired on"},
		{"not yet valid", withCert(upstreamCA().issue(early, "example.com")), "it is valid from"},
		{"self-signed", withCert((*authorityPair)(nil).issue(nil, "example.com")), "it is self-signed"},
		{"unknown authority", withCert(other.issue(nil, "example.com")), "it is signed by an unknown authority"},
		{"wrong name", withCert(upstreamCA().issue(nil, "example.org", "example.net")), "it is for example.org, example.net, not for example.com"},
		{"old TLS", func(t *testing.T) string {
			return upstreamTLS(t, &tls.Config{
				Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
			}, nil)
		}, "no common version"},
		{"wants a client certificate, TLS 1.2", func(t *testing.T) string {
			return upstreamTLS(t, &tls.Config{
				Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12,
			}, nil)
		}, "it wants a certificate from the client"},
		{"no TLS", func(t *testing.T) string {
			return upstream(t, func(c net.Conn) {
				c.Read(make([]byte, 1))
				io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			})
		}, "it does not speak TLS on this port"},
		{"closes", func(t *testing.T) string {
			return upstream(t, func(c net.Conn) { c.Read(make([]byte, 4096)) })
		}, "it closed the connection during the handshake"},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := test.upstream(t)
			for _, protocols := range [][]string{nil, {"http/1.1"}, {"h2", "http/1.1"}, {"h2"}} {
				t.Run(fmt.Sprint(protocols), func(t *testing.T) {
					c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: protocols})
					if err != nil {
						t.Fatalf("the client cannot be told why: %v", err)
					}
					// net/http speaks either protocol over the connection that stands.
					transport := &http.Transport{
						DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return c, nil },
						ForceAttemptHTTP2: true,
					}
					defer transport.CloseIdleConnections()
					res, err := transport.RoundTrip(must(http.NewRequest(http.MethodPost, "https://example.com/", strings.NewReader(strings.Repeat("x", 100_000)))))
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					body, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatal(err)
					}
					if res.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), test.want) {
						t.Errorf("the client got %s %q, want 502 with %q", res.Status, body, test.want)
					}
					if s := p.wantFailed(test.want); s.Status != http.StatusBadGateway {
						t.Errorf("session has status %d, want 502", s.Status)
					}
				})
			}
		})
	}
}

// A client that would not understand an HTTP answer gets no handshake; the row says why.
func TestBadUpstreamForAClientThatSpeaksNoHTTP(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.org")}, NextProtos: []string{"dot"}}, nil)
	p := startProxy(t, Config{})
	if _, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: []string{"dot"}}); err == nil {
		t.Error("the handshake succeeded")
	}
	p.wantFailed("it is for example.org, not for example.com")
}

func TestMissingNameIsNamedAsTheCause(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "default.example")}}, nil)
	p := startProxy(t, Config{})
	if _, err := p.handshake(addr, &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Fatal(err)
	}
	p.wantFailed("the client sent no server name")
}

func TestUpstreamOnIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "::1")}, NextProtos: []string{"talk"}})
				io.Copy(tc, tc)
				tc.Close()
			}()
		}
	}()
	p := startProxy(t, Config{})
	c, err := p.handshake(l.Addr().String(), &tls.Config{ServerName: "::1", NextProtos: []string{"talk"}})
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello")
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	if s := p.next(); s.State != storage.Done || s.Upstream != l.Addr().String() {
		t.Errorf("session %+v", s)
	}
}

// In TLS 1.3 upstream says after the handshake that it wanted a certificate.
func TestUpstreamThatWantsAClientCertificateLate(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}, ClientAuth: tls.RequireAnyClientCert}, nil)
	p := startProxy(t, Config{})
	c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.wantFailed("it wants a certificate from the client")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || !strings.Contains(string(got), "it wants a certificate") {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// An upstream that accepts and then stays silent does not keep us once the client has left.
func TestClientThatLeavesDuringTheUpstreamHandshake(t *testing.T) {
	ended := make(chan error, 1)
	addr := upstream(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 100)) // of our hello
		ended <- nil
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	p := startProxy(t, Config{})
	c := p.tunnelTo(addr)
	go tls.Client(c, &tls.Config{ServerName: "example.com"}).Handshake()
	<-ended
	c.Close()
	<-ended
	if s := p.next(); s.State != storage.ClientAborted || s.Error == "" {
		t.Errorf("session is %v, %q", s.State, s.Error)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestInsecureUpstreamIsAcceptedAndRecorded(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{
		Certificates: []tls.Certificate{(*authorityPair)(nil).issue(nil, "example.org")}, NextProtos: []string{"talk"},
	}, nil)
	p := startProxy(t, Config{InsecureUpstream: true})
	for range 2 { // the second may resume, and must say the same
		c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", NextProtos: []string{"talk"}})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for _, s := range p.all(2) {
		if !s.HasFlag(storage.FlagInsecure) || s.TLS == nil || s.TLS.UpstreamError == "" {
			t.Errorf("session does not say that the certificate is bad: flags %v, TLS %+v", s.Flags, s.TLS)
		}
		if s.TLS.ClientVersion != "TLS 1.3" || s.TLS.UpstreamVersion != "TLS 1.3" || s.TLS.ClientCipher == "" || s.TLS.UpstreamCipher == "" {
			t.Errorf("session lacks versions or cipher suites: %+v", s.TLS)
		}
		if m := s.Timing; m.Connect.IsZero() || m.Connected.Before(m.Connect) || m.Secured.Before(m.Connected) {
			t.Errorf("timings are not in order: %+v", m)
		}
	}
}

func TestOwnAddressIsRefused(t *testing.T) {
	dashboard := listenLocal(t)
	dashboardPort := dashboard.Addr().(*net.TCPAddr).Port
	p := startProxy(t, Config{Own: Owns(dashboard.Addr())})
	proxyPort := int(netip.MustParseAddrPort(p.addr).Port())
	hosts := []string{"127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]"}
	n := 0
	for _, port := range []int{proxyPort, dashboardPort} {
		for _, host := range hosts {
			n++
			_, res := p.connect(fmt.Sprintf("%s:%d", host, port))
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusLoopDetected || !strings.Contains(string(body), "Millpond's own") {
				t.Errorf("CONNECT %s:%d: %s %q, want 508", host, port, res.Status, body)
			}
		}
	}
	// Other addresses of this machine, where nothing of ours listens, are refused by the system.
	_, res := p.connect(fmt.Sprintf("127.0.0.2:%d", proxyPort))
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("CONNECT 127.0.0.2: %s, want 502", res.Status)
	}
	for _, s := range p.all(n + 1) {
		if s.State != storage.Failed || s.Status == 0 || s.Error == "" || len(s.Sides[storage.Response].Head) == 0 {
			t.Errorf("session %+v, want failed, with the answer", s)
		}
	}
}
