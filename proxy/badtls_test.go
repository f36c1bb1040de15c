package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

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
					s := p.wantFailed(test.want)
					if s.Status != http.StatusBadGateway || s.Method != http.MethodPost || s.Path != "/" || !strings.Contains(string(s.Sides[storage.Response].Head), "502") {
						t.Errorf("session %+v, want a POST with the 502 that the client got", s)
					}
					p.expectBody(s, storage.Response, string(body))
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
	c, err := p.handshake(addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if s := p.wantFailed("the client sent no server name"); s.Method != http.MethodConnect || s.Status != http.StatusOK { // all that this client got
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
	p.await(1, func(storage.Session) bool { return true }) // upstream has said it
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || !strings.Contains(string(got), "it wants a certificate") {
		t.Errorf("the client got %q, %v", got, err)
	}
	p.wantFailed("it wants a certificate from the client")
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
		if m := s.Timing.Connection(); m.Connect.IsZero() || m.Connected.Before(m.Connect) || m.Secured.Before(m.Connected) {
			t.Errorf("timings are not in order: %+v", m)
		}
	}
}
