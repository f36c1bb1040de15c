package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"millpond/settings"
	"millpond/storage"
)

// rulesOf is Config.Rules for what does not change.
func rulesOf(t *testing.T, out settings.Out) func() *settings.Rules {
	t.Helper()
	r, err := settings.Compile(out)
	if err != nil {
		t.Fatal(err)
	}
	return func() *settings.Rules { return r }
}

func TestPassthrough(t *testing.T) {
	cert := upstreamCA().issue(nil, "passed.example", "127.0.0.1")
	up := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{cert}}, func(c *tls.Conn) { io.Copy(c, c) })
	_, port, _ := net.SplitHostPort(up)
	for pattern, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.0/8": true, "*:" + port: true,
		"passed.example": true, "*.example": true, "other.example": false, "*:1": false,
	} {
		t.Run(pattern, func(t *testing.T) {
			p := startProxy(t, Config{Rules: rulesOf(t, settings.Out{Passthrough: []string{pattern}})})
			c, res := p.connect(up)
			if res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
			tc := tls.Client(c, &tls.Config{ServerName: "passed.example", InsecureSkipVerify: true})
			if _, err := tc.Write([]byte("hello, upstream")); err != nil {
				t.Fatal(err)
			}
			echo := make([]byte, 15)
			if _, err := io.ReadFull(tc, echo); err != nil {
				t.Fatal(err)
			}
			if got := string(tc.ConnectionState().PeerCertificates[0].Raw) == string(cert.Certificate[0]); got != want {
				t.Errorf("the client got upstream's own certificate: %v, want %v", got, want)
			}
			tc.Close()
			s := p.next()
			if s.HasFlag(storage.FlagPassthrough) != want || !s.HasFlag(storage.FlagTunnel) {
				t.Errorf("session %v %v %q", s.State, s.Flags, s.Error)
			}
			if body := p.body(s.ID, storage.Request); strings.HasPrefix(body, "\x16\x03") != want {
				t.Errorf("the request's body begins %.10q", body)
			}
		})
	}
}

func TestInsecureHost(t *testing.T) {
	up := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{(*authorityPair)(nil).issue(nil, "self.example")}}, nil)
	for pattern, accepted := range map[string]bool{"self.example": true, "127.0.0.1": true, "other.example": false} {
		p := startProxy(t, Config{Rules: rulesOf(t, settings.Out{InsecureHosts: []string{pattern}})})
		tc, err := p.handshake(up, &tls.Config{ServerName: "self.example"})
		if err != nil {
			t.Fatal(err)
		}
		if !accepted {
			tc.Close()
			p.wantFailed("--insecure-host")
			continue
		}
		fmt.Fprintf(tc, "bytes that are no HTTP\n")
		tc.Close()
		if s := p.next(); !s.HasFlag(storage.FlagInsecure) || s.TLS == nil || s.TLS.UpstreamError != "it is self-signed" {
			t.Errorf("session %v %+v %q", s.Flags, s.TLS, s.Error)
		}
	}
}

// HTTP/2 keeps to the same rule (its streams say so, all of them).
func TestInsecureHostOverHTTP2(t *testing.T) {
	port := webServer(t, (*authorityPair)(nil).issue(nil, "localhost"))
	p := startProxy(t, Config{Rules: rulesOf(t, settings.Out{InsecureHosts: []string{"localhost:" + port}})})
	url := "https://localhost:" + port + "/"
	out, code := run(t, "", "curl", "-sS", "--http2", "-x", "http://"+p.addr, "--cacert", caFile(t), url, url)
	if code != 0 || strings.Count(out, "HTTP/2.0") != 2 {
		t.Fatalf("curl: %d: %s", code, out)
	}
	for _, s := range p.all(2) {
		if s.Protocol != "HTTP/2" || !s.HasFlag(storage.FlagInsecure) || s.TLS.UpstreamError == "" {
			t.Errorf("session %s %v %+v", s.Protocol, s.Flags, s.TLS)
		}
	}
}

// writePair writes a client certificate with its key into one file.
func writePair(t *testing.T, file string, cert tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	fresh := file + ".new"
	if err := os.WriteFile(fresh, both, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, file); err != nil {
		t.Fatal(err)
	}
}

// A server that wants a certificate gets the one of its host, also when the file is replaced while Millpond runs (weekly certificates do).
func TestClientCertificate(t *testing.T) {
	var got atomic.Value
	up := upstreamTLS(t, &tls.Config{
		Certificates: []tls.Certificate{upstreamCA().issue(nil, "mutual.example")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: upstreamCA().pool(),
		VerifyConnection: func(s tls.ConnectionState) error { got.Store(s.PeerCertificates[0].DNSNames[0]); return nil },
	}, nil)
	file := filepath.Join(t.TempDir(), "client.pem")
	forClients := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	writePair(t, file, upstreamCA().issue(forClients, "first.client"))
	p := startProxy(t, Config{Rules: rulesOf(t, settings.Out{ClientCerts: []settings.ClientCert{{Host: "*.example", CertFile: file}}})})
	for _, name := range []string{"first.client", "second.client"} {
		if name == "second.client" {
			writePair(t, file, upstreamCA().issue(forClients, name, "so-that-the-file-has-another-size"))
		}
		tc, err := p.handshake(up, &tls.Config{ServerName: "mutual.example"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(tc, "bytes that are no HTTP\n")
		tc.Close()
		if s := p.next(); s.State != storage.Done || got.Load() != name {
			t.Errorf("upstream saw %v, want %s; session %v %q", got.Load(), name, s.State, s.Error)
		}
	}
	without := startProxy(t, Config{})
	tc, err := without.handshake(up, &tls.Config{ServerName: "mutual.example"})
	if err != nil {
		t.Fatal(err)
	}
	without.await(1, func(storage.Session) bool { return true }) // upstream has said it
	tc.Close()
	without.wantFailed("--client-cert")
}

// An upstream and a client of the last century's TLS meet where their host is set to, and are told about the setting where it is not.
func TestMinimumTLS(t *testing.T) {
	for _, test := range []struct {
		upstream, client uint16 // the newest they know
		set              string
		ok               bool
	}{
		{tls.VersionTLS10, 0, "1.0", true},
		{tls.VersionTLS10, tls.VersionTLS10, "1.0", true},
		{tls.VersionTLS11, tls.VersionTLS12, "1.1", true},
		{tls.VersionTLS10, 0, "1.1", false},
		{tls.VersionTLS10, 0, "", false},
		{tls.VersionTLS12, 0, "1.3", false},
		{tls.VersionTLS12, 0, "1.2", true},
	} {
		t.Run(fmt.Sprintf("%x %x %s", test.upstream, test.client, test.set), func(t *testing.T) {
			config := &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "old.example")}, MinVersion: tls.VersionTLS10, MaxVersion: test.upstream}
			if test.upstream == tls.VersionTLS10 { // and of its ciphers: one that is not offered where none is set
				config.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA}
			}
			up := upstreamTLS(t, config, nil)
			var out settings.Out
			if test.set != "" {
				out.MinTLS = []settings.MinTLS{{Host: "old.example", Version: test.set}}
			}
			p := startProxy(t, Config{Rules: rulesOf(t, out)})
			tc, err := p.handshake(up, &tls.Config{ServerName: "old.example", MinVersion: tls.VersionTLS10, MaxVersion: test.client})
			if err != nil {
				t.Fatal(err)
			}
			if !test.ok {
				tc.Close()
				p.wantFailed("--min-tls")
				return
			}
			fmt.Fprintf(tc, "bytes that are no HTTP\n")
			tc.Close()
			if s := p.next(); s.State != storage.Done || s.TLS.UpstreamVersion != tls.VersionName(test.upstream) {
				t.Errorf("session %v %q %+v", s.State, s.Error, s.TLS)
			}
		})
	}
}

// Through another Millpond, which wants credentials: by each of its ways in. Loopback always goes direct, and so the target is 0.0.0.0, which leads there as well.
func TestUpstreamProxy(t *testing.T) {
	plain := plainServer(t)
	secure := webServer(t, upstreamCA().issue(nil, "0.0.0.0"))
	ca := caFile(t)
	roots := upstreamCA().pool()
	roots.AddCert(testCA().Certificate())
	for _, scheme := range []string{"http", "https", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			far := startProxy(t, Config{Auth: mustCredentials(t, "ann:s3:cret"), ClientTLS: true})
			near := startProxy(t, Config{UpstreamRoots: roots, Rules: rulesOf(t, settings.Out{UpstreamProxy: scheme + "://ann:s3%3Acret@" + far.addr})})
			for url, at := range map[string]string{"http://0.0.0.0:" + plain + "/a": plain, "https://0.0.0.0:" + secure + "/": secure} {
				for _, args := range [][]string{{}, {"-p"}} {
					out, code := run(t, "", "curl", append([]string{"-sS", "-k", "--cacert", ca, "-x", "http://" + near.addr, url, url}, args...)...)
					if code != 0 || strings.Count(out, "0.0.0.0:"+at) != 2 {
						t.Fatalf("curl %s: %d: %s", url, code, out)
					}
					for i, s := range near.all(2) {
						if s.State != storage.Done || s.Upstream != far.addr || !s.HasFlag(storage.FlagUpstreamProxy) || s.Host != "0.0.0.0:"+at || s.HasFlag(storage.FlagReused) != (i == 1) {
							t.Errorf("%s: near session %v %q %s %v", url, s.State, s.Error, s.Upstream, s.Flags)
						}
						if head := string(s.Sides[storage.Request].Head); strings.Contains(head, "Proxy") || strings.Contains(head, hopsField) {
							t.Errorf("%s: head %q", url, head)
						}
					}
					for _, s := range far.all(2) {
						if s.Host != "0.0.0.0:"+at || s.HasFlag(storage.FlagUpstreamProxy) || strings.Contains(string(s.Sides[storage.Request].Head), hopsField) {
							t.Errorf("%s: far session %v %q %v", url, s.State, s.Error, s.Flags)
						}
					}
				}
			}
			// What goes direct meets no far proxy.
			out, code := run(t, "", "curl", "-sS", "-x", "http://"+near.addr, "http://127.0.0.1:"+plain+"/", "http://localhost:"+plain+"/")
			if s := near.all(2); code != 0 || s[0].HasFlag(storage.FlagUpstreamProxy) || s[1].HasFlag(storage.FlagUpstreamProxy) {
				t.Errorf("curl: %d: %s %v", code, out, s[0].Flags)
			}
		})
	}
}

func TestUpstreamProxyRefusals(t *testing.T) {
	plain := plainServer(t)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refuses.Close)
	far := startProxy(t, Config{Auth: mustCredentials(t, "ann:secret")})
	closed := listenLocal(t)
	closed.Close()
	for _, test := range []struct {
		proxy  string
		status string
		why    string
	}{
		{"http://ann:wrong@" + far.addr, "502", "wants other credentials (407)"},
		{"socks5://ann:wrong@" + far.addr, "502", "username/password authentication failed"},
		{"http://" + closed.Addr().String(), "502", "the upstream proxy cannot be used: cannot connect to " + closed.Addr().String() + ": connection refused"},
		{"https://" + far.addr, "502", "the upstream proxy cannot be used: TLS with " + far.addr},
		{refuses.URL, "502", "gave no connection to 0.0.0.0:" + plain + ": it answers 403 Forbidden"},
	} {
		near := startProxy(t, Config{Rules: rulesOf(t, settings.Out{UpstreamProxy: test.proxy})})
		for _, args := range [][]string{{}, {"-p"}} {
			if test.proxy == refuses.URL && len(args) == 0 {
				continue // then the client gets that 403 itself
			}
			out, _ := run(t, "", "curl", append([]string{"-sS", "-i", "-x", "http://" + near.addr, "http://0.0.0.0:" + plain + "/"}, args...)...)
			if !strings.Contains(out, test.status) {
				t.Errorf("%s %v: %s", test.proxy, args, out)
			}
			if s := near.next(); s.State != storage.Failed || !strings.Contains(s.Error, test.why) || strings.Contains(s.Error, "wrong") {
				t.Errorf("%s %v: session %v %q, want %q", test.proxy, args, s.State, s.Error, test.why)
			}
		}
	}
}

// Two proxies, each the other's upstream proxy: the ring is seen when the request comes round.
func TestRingOfProxies(t *testing.T) {
	var rules [2]atomic.Pointer[settings.Rules]
	var ring [2]*testProxy
	for i := range ring {
		ring[i] = startProxy(t, Config{Rules: func() *settings.Rules { return rules[i].Load() }})
	}
	for i := range ring {
		rules[i].Store(rulesOf(t, settings.Out{UpstreamProxy: "http://" + ring[1-i].addr})())
	}
	for _, args := range [][]string{{"-i"}, {"-p", "-v"}} {
		out, _ := run(t, "", "curl", append([]string{"-sS", "-x", "http://" + ring[0].addr, "http://0.0.0.0:1/"}, args...)...)
		if !strings.Contains(out, "508") {
			t.Errorf("curl %v: %s", args, out)
		}
		both, back := ring[0].all(2), ring[1].next()
		first, last := both[0], both[1]
		if strings.Contains(first.Error, "leads to itself") { // they are in the order of their ends or beginnings
			first, last = last, first
		}
		if !strings.Contains(last.Error, "leads to itself") || back.Status != http.StatusLoopDetected || first.Status != http.StatusLoopDetected {
			t.Errorf("sessions %d %q, %d %q, %d %q", first.Status, first.Error, back.Status, back.Error, last.Status, last.Error)
		}
	}
	if n := ring[0].sessions() + ring[1].sessions(); n != 6 {
		t.Errorf("%d sessions, want three for each of two requests", n)
	}
}
