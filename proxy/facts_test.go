package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// moments names the moments of a timing that came, in the order of time.
func moments(t storage.Timing) string {
	made := t.Connection()
	all := []struct {
		name string
		at   time.Time
	}{ // in the order of an exchange on a fresh connection, in which equal times stay
		{"connect", made.Connect},
		{"resolved", made.Resolved},
		{"connected", made.Connected},
		{"hello", made.ClientHello},
		{"secured", made.Secured},
		{"client secured", made.ClientSecured},
		{"started", t.Started},
		{"sent", t.RequestSent},
		{"first byte", t.FirstByte},
		{"head", t.ResponseHead},
		{"ended", t.Ended},
	}
	slices.SortStableFunc(all, func(a, b struct {
		name string
		at   time.Time
	},
	) int {
		return a.at.Compare(b.at)
	})
	var came []string
	for _, m := range all {
		if !m.at.IsZero() {
			came = append(came, m.name)
		}
	}
	return strings.Join(came, ", ")
}

// factsRig is a proxy before an origin, and a client that keeps one connection.
func factsRig(t *testing.T, secure, http2 bool) (h *harness, client *http.Client, origin *url.URL, chain []byte) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { io.Copy(w, req.Body) }))
	server.EnableHTTP2 = http2
	cfg := Config{UpstreamRoots: upstreamCA().pool()}
	if secure {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "localhost", "127.0.0.1")}}
		chain = server.TLS.Certificates[0].Certificate[0]
		server.StartTLS()
	} else {
		server.Start()
	}
	h = startHarness(t, cfg)
	t.Cleanup(server.Close)
	origin, _ = url.Parse(server.URL)
	_, port, _ := net.SplitHostPort(origin.Host)
	origin.Host = net.JoinHostPort("localhost", port) // a name, so that it is looked up
	return h, h.client(http2), origin, chain
}

func TestTimingsAndConnectionFacts(t *testing.T) {
	const tunnel = "connect, resolved, connected, hello, secured, client secured, "
	for _, test := range []struct {
		name          string
		secure, http2 bool
		fresh, reused string
	}{
		{"HTTP", false, false, "started, connect, resolved, connected, sent, first byte, head, ended", "started, sent, first byte, head, ended"},
		{"HTTPS/1.1", true, false, tunnel + "started, sent, first byte, head, ended", "started, sent, first byte, head, ended"},
		{"HTTP/2", true, true, tunnel + "started, sent, head, ended", "started, sent, head, ended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, client, origin, chain := factsRig(t, test.secure, test.http2)
			for n, want := range []string{test.fresh, test.reused} {
				res, err := client.Get(origin.String())
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				s := h.session(uint64(n + 1))
				if got := moments(s.Timing); got != want {
					t.Errorf("request %d: got  %s\nwant %s", n+1, got, want)
				}
				if s.HasFlag(storage.FlagReused) != (n > 0) || s.Client == "" || s.Upstream == "" {
					t.Errorf("request %d: flags %q, client %q, upstream %q", n+1, s.Flags, s.Client, s.Upstream)
				}
				if !test.secure {
					if s.TLS != nil {
						t.Errorf("request %d has TLS: %+v", n+1, s.TLS)
					}
					continue
				}
				der, err := h.store.Certificates(s.ID)
				if err != nil || !bytes.Equal(der, chain) {
					t.Errorf("request %d: got %d bytes of certificates, %v", n+1, len(der), err)
				}
				tl := s.TLS
				alpn, fingerprint := "", "t13d" // Go's client sends the name
				if test.http2 {
					alpn = "h2"
				}
				if tl.ServerName != "localhost" || tl.ALPN != alpn && alpn != "" || tl.ClientVersion != "TLS 1.3" || tl.UpstreamVersion != "TLS 1.3" ||
					tl.ClientCipher == "" || tl.UpstreamCipher == "" || !strings.HasPrefix(tl.JA4, fingerprint) || len(tl.JA4) != len("t13d1516h2_8daaf6152771_e5627efa2ab1") {
					t.Errorf("request %d: %+v", n+1, tl)
				}
			}
		})
	}
}

// The certificate of a server that cannot be trusted is what one wants to look at.
func TestCertificatesOfARefusedServer(t *testing.T) {
	p := startProxy(t, Config{})
	cert := (*authorityPair)(nil).issue(nil, "self.test")
	authority := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{cert}}, nil)
	c, err := p.handshake(authority, &tls.Config{ServerName: "self.test", InsecureSkipVerify: true})
	if err == nil {
		c.Close()
	}
	s := p.next()
	der, err := p.store.Certificates(s.ID)
	if err != nil || !bytes.Equal(der, cert.Certificate[0]) {
		t.Errorf("got %d bytes, %v, of %v %s", len(der), err, s.State, s.Error)
	}
	if s.TLS == nil || !strings.HasPrefix(s.TLS.JA4, "t13d") || s.Timing.Connection().ClientHello.IsZero() {
		t.Errorf("got %+v, %+v", s.TLS, s.Timing)
	}
}
