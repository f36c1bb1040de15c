package proxy

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millpond/settings"
	"millpond/storage"
)

// curl closes its socket when it has what it wants, and what a TLS server says as it parts (GOAWAY, close_notify) meets nobody.
func TestCurlThroughAPassedTunnelIsNoAbort(t *testing.T) {
	body := pattern(200_000)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, body)
	}))
	origin.EnableHTTP2 = true
	origin.TLS = &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "127.0.0.1")}}
	origin.StartTLS()
	defer origin.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstreamCA().cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range [][]string{{"--http1.1"}, {"--http2"}, {"--http1.1", "-H", "Connection: close"}} {
		t.Run(strings.Join(way, " "), func(t *testing.T) {
			p := startProxy(t, Config{Rules: rulesOf(t, settings.Out{Passthrough: []string{"127.0.0.1"}})})
			for range 20 {
				out, code := run(t, "", "curl", append(way, "-sS", "-x", "http://"+p.addr, "--cacert", ca, "-d", "asked", origin.URL)...)
				if code != 0 || out != body {
					t.Fatalf("curl: %d, %d bytes", code, len(out))
				}
			}
			for _, s := range p.all(20) {
				if s.State != storage.Done || s.Error != "" {
					t.Errorf("session %d is %v, %q", s.ID, s.State, s.Error)
				}
			}
		})
	}
}

// What TLS's end looks like from outside, and what is only much like it.
func TestEndOfTLSInATunnel(t *testing.T) {
	record := func(kind byte, n int) string { return string([]byte{kind, 3, 3, 0, byte(n)}) + strings.Repeat("x", n) }
	for _, test := range []struct {
		name, last string
		want       bool
	}{
		{"an alert of TLS 1.2", record(23, 30) + record(21, 26), true},
		{"an alert of TLS 1.3", record(23, 30) + record(23, 19), true},
		{"data as long as an alert and a byte", record(23, 20), false},
		{"an alert that is not the last", record(21, 26) + record(23, 30), false},
		{"half an alert", record(21, 26)[:20], false},
		{"text", "GET / HTTP/1.1", false},
		{"nothing", "", false},
	} {
		if got := endsTLS([]byte(test.last)); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// A client that closes while much is still to come has broken the tunnel; while a server's leave is, it has not.
func TestTunnelWhoseClientClosesFirst(t *testing.T) {
	for _, test := range []struct {
		name  string
		parts []int // what upstream sends once the client has ended, in writes
		want  storage.State
	}{
		{"nothing", nil, storage.Done},
		{"a farewell", []int{24, 24, 24}, storage.Done},
		{"much more", []int{600, 600, 100_000}, storage.ClientAborted},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p *testProxy
			wrote := make(chan struct{}) // the client's end answered it with a reset
			addr := upstream(t, func(c net.Conn) {
				io.ReadAll(c)
				for i, n := range test.parts {
					io.WriteString(c, pattern(n))
					if i == 0 {
						<-wrote
					}
				}
			})
			p = startProxy(t, Config{})
			c := p.tunnelTo(addr)
			io.WriteString(c, "\x00ask")
			c.Close()
			if test.parts != nil {
				p.await(1, func(s storage.Session) bool { return s.Sides[storage.Response].Body.Size > 0 })
			}
			close(wrote)
			if s := p.next(); s.State != test.want {
				t.Errorf("session is %v, %q", s.State, s.Error)
			}
		})
	}
}
