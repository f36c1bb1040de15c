package proxy

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// These tests use clients that are not Go's, each with its own idea of TLS.

// run runs a program, or skips the test where there is none, and returns what it printed and its exit code.
func run(t *testing.T, stdin string, program string, args ...string) (out string, code int) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "no_proxy=", "NO_PROXY=")
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// caFile writes the test authority where programs can read it.
func caFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: testCA().Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// webServer is an HTTPS server, for HTTP/2 and HTTP/1.1, whose certificate is for the names. It returns its port.
func webServer(t *testing.T, cert tls.Certificate) (port string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Proto, r.Host)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func TestCurl(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "localhost", "127.0.0.1"))
	ca := caFile(t)
	for _, test := range []struct{ host, flag, protocol string }{
		{"localhost", "--http2", "HTTP/2"},
		{"localhost", "--http1.1", "HTTP/1.1"},
		{"localhost", "--no-alpn", "HTTP/1.1"},
		{"127.0.0.1", "--http2", "HTTP/2"},
	} {
		t.Run(test.host+test.flag, func(t *testing.T) {
			p := startProxy(t, Config{})
			url := "https://" + test.host + ":" + port + "/"
			out, code := run(t, "", "curl", "-sS", "-x", "http://"+p.addr, "--cacert", ca, test.flag, url, url)
			if want := strings.TrimSuffix(test.protocol, "/2"); code != 0 || strings.Count(out, want) != 2 {
				t.Fatalf("curl: %d: %s", code, out)
			}
			for i, s := range p.all(2) {
				if s.State != storage.Done || s.Method != http.MethodGet || s.Scheme != "https" || s.Host != test.host+":"+port || s.Protocol != test.protocol {
					t.Errorf("session %+v", s)
				}
				if s.TLS == nil || s.TLS.ClientVersion == "" || s.TLS.UpstreamVersion == "" {
					t.Errorf("session without TLS: %+v", s.TLS)
				}
				if s.HasFlag(storage.FlagReused) != (i == 1) || s.Timing.Connection().Secured.IsZero() != (i == 1) {
					t.Errorf("session %d: flags %v, secured %v", i, s.Flags, s.Timing.Connection().Secured)
				}
			}
		})
	}
}

// A tunnel may hold plain HTTP, and HTTP/2 whose client knows that the server speaks it.
func TestCurlThroughATunnelWithoutTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	for flag, protocol := range map[string]string{"--http1.1": "HTTP/1.1", "--http2-prior-knowledge": "HTTP/2"} {
		t.Run(flag, func(t *testing.T) {
			p := startProxy(t, Config{})
			out, code := run(t, "", "curl", "-sS", "-p", "-x", "http://"+p.addr, flag, s.URL+"/")
			if code != 0 || !strings.HasPrefix(out, protocol) {
				t.Fatalf("curl: %d: %s", code, out)
			}
			if s := p.next(); s.State != storage.Done || s.Scheme != "http" || s.Protocol != protocol || s.TLS != nil {
				t.Errorf("session %+v", s)
			}
		})
	}
}

func TestCurlThatDoesNotTrustUs(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "localhost"))
	p := startProxy(t, Config{})
	if out, code := run(t, "", "curl", "-sS", "-x", "http://"+p.addr, "https://localhost:"+port+"/"); code != 60 {
		t.Errorf("curl: %d: %s; want 60, an untrusted certificate", code, out)
	}
	p.wantFailed("the client rejected Millpond's certificate")
}

func TestCurlIsToldOfABadUpstreamCertificate(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "example.org"))
	p := startProxy(t, Config{})
	for _, flag := range []string{"--http2", "--http1.1", "--no-alpn"} {
		t.Run(flag, func(t *testing.T) {
			out, code := run(t, "", "curl", "-sS", "-w", "%{http_code}", "-x", "http://"+p.addr, "--cacert", caFile(t), flag, "https://localhost:"+port+"/asked?for=it")
			if code != 0 || !strings.Contains(out, "it is for example.org, not for localhost") || !strings.HasSuffix(out, "502") {
				t.Errorf("curl: %d: %s", code, out)
			}
			s := p.wantFailed("it is for example.org, not for localhost")
			if s.Method != "GET" || s.Scheme != "https" || s.Host != "localhost:"+port || s.Path != "/asked?for=it" || s.Status != 502 || s.TLS == nil || s.Upstream == "" {
				t.Errorf("session %+v", s)
			}
			if head := string(s.Sides[storage.Request].Head); !strings.HasPrefix(head, "GET /asked?for=it HTTP/1.1\r\n") {
				t.Errorf("the request's head is %q", head)
			}
			if head := string(s.Sides[storage.Response].Head); !strings.HasPrefix(head, "HTTP/1.1 502 Bad Gateway\r\n") {
				t.Errorf("the response's head is %q", head)
			}
			p.expectBody(s, storage.Response, strings.TrimSuffix(out, "502"))
		})
	}
}

func TestCurlOverAnInsecureUpstream(t *testing.T) {
	port := webServer(t, (*authorityPair)(nil).issue(nil, "localhost"))
	p := startProxy(t, Config{InsecureUpstream: true})
	if out, code := run(t, "", "curl", "-sS", "-x", "http://"+p.addr, "--cacert", caFile(t), "https://localhost:"+port+"/"); code != 0 {
		t.Fatalf("curl: %d: %s", code, out)
	}
	if s := p.next(); !s.HasFlag(storage.FlagInsecure) || s.TLS == nil || s.TLS.UpstreamError != "it is self-signed" {
		t.Errorf("session does not say that the certificate is bad: flags %v, TLS %+v", s.Flags, s.TLS)
	}
}

func TestOpenSSLWithoutAName(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "localhost", "127.0.0.1"))
	for _, host := range []string{"localhost", "127.0.0.1"} {
		for _, version := range []string{"-tls1_2", "-tls1_3"} {
			t.Run(host+version, func(t *testing.T) {
				p := startProxy(t, Config{})
				verify := []string{"-verify_hostname", host}
				if host == "127.0.0.1" {
					verify = []string{"-verify_ip", host}
				}
				args := append([]string{
					"s_client", "-proxy", p.addr, "-connect", host + ":" + port, "-noservername", version, "-verify_return_error", "-quiet", "-CAfile", caFile(t),
				}, verify...)
				out, code := run(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "openssl", args...)
				if code != 0 || !strings.Contains(out, "200 OK") {
					t.Errorf("openssl: %d: %s", code, out)
				}
				if s := p.next(); s.State != storage.Done || s.TLS == nil || s.TLS.ServerName != "" {
					t.Errorf("session %+v", s)
				}
			})
		}
	}
}

func TestOpenSSLThatDoesNotTrustUs(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "localhost"))
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		t.Run(version, func(t *testing.T) {
			p := startProxy(t, Config{})
			run(t, "", "openssl", "s_client", "-proxy", p.addr, "-connect", "localhost:"+port, version, "-verify_return_error", "-quiet")
			p.wantFailed("the client rejected Millpond's certificate")
		})
	}
}
