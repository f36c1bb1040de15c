package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"millpond/storage"
)

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
