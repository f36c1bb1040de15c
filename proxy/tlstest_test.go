package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
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
	if s.Method == "" || s.Host == "" || s.Client == "" {
		p.t.Errorf("session lacks method, host or client: %+v", s)
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
