package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A new authority is in force for the connections that begin afterwards: no leaf and no session of the old one is left, and what stands goes on.
func TestRegenerateTakesEffectAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	h := startHarness(t, Config{CA: mustLoadCA(t, dir), UpstreamRoots: upstreamCA().pool()})
	p := &testProxy{harness: h}
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, func(c *tls.Conn) {
		r := bufio.NewReader(c)
		for {
			if _, err := readHead(r, 1<<10); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	ask := func(c *tls.Conn) {
		t.Helper()
		peer := newPeer(t, c)
		peer.send("GET / HTTP/1.1\r\n\r\n")
		if got := peer.head(); !strings.HasPrefix(got, "HTTP/1.1 204") {
			t.Fatalf("got %q", got)
		}
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		old := h.p.cfg.CA.Certificate()
		config := &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool(), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		config.RootCAs.AddCert(old)
		open := func() *tls.Conn {
			t.Helper()
			c := tls.Client(p.tunnelTo(addr), config)
			if err := c.Handshake(); err != nil {
				t.Fatalf("%s: %v", tls.VersionName(version), err)
			}
			ask(c) // which also takes the ticket
			return c
		}
		standing := open()
		if c := open(); !c.ConnectionState().DidResume {
			t.Fatalf("%s: nothing was resumed, so this shows nothing", tls.VersionName(version))
		}
		if !h.p.accepted.by("127.0.0.1:1") {
			t.Error("it is not known that the client trusts us")
		}

		kept, err := h.p.ReplaceCA()
		if err != nil {
			t.Fatal(err)
		}
		now := h.p.cfg.CA.Certificate()
		if now.Equal(old) {
			t.Fatal("the authority is the same")
		}
		if h.p.accepted.by("127.0.0.1:1") {
			t.Error("the new authority is held for accepted")
		}
		if err := tls.Client(p.tunnelTo(addr), config).Handshake(); err == nil {
			t.Fatalf("%s: a client that trusts the old authority alone was satisfied", tls.VersionName(version))
		}
		config.RootCAs.AddCert(now)
		if c := open(); c.ConnectionState().DidResume || !c.ConnectionState().PeerCertificates[1].Equal(now) {
			t.Errorf("%s: resumed %v, a certificate of %v", tls.VersionName(version), c.ConnectionState().DidResume, c.ConnectionState().PeerCertificates[1].SerialNumber)
		}
		ask(standing)

		if again := mustLoadCA(t, dir).Certificate(); !again.Equal(now) {
			t.Error("the directory does not hold the new authority")
		}
		if aside := mustLoadCA(t, kept).Certificate(); !aside.Equal(old) || filepath.Dir(kept) != dir {
			t.Errorf("%s does not hold the old authority", kept)
		}
	}
}

// An authority that cannot be loaded any more, or is not there, is replaced too.
func TestRegenerateWhatIsPastUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	if _, kept, err := RegenerateCA(dir); err != nil || kept != "" {
		t.Fatalf("where there was none: kept %q, %v", kept, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, kept, err := RegenerateCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	if torn, err := os.ReadFile(filepath.Join(kept, "cert.pem")); err != nil || string(torn) != "torn" {
		t.Errorf("the old certificate is not kept: %q, %v", torn, err)
	}
	if !mustLoadCA(t, dir).Certificate().Equal(ca.Certificate()) {
		t.Error("the directory does not hold the new authority")
	}
}

// Wherever a replacement is cut short, the next start finds an authority that works.
func TestRegenerateCutShort(t *testing.T) {
	for name, cut := range map[string]func(dir string) error{
		"the old certificate is gone": func(dir string) error { return os.Remove(filepath.Join(dir, "cert.pem")) },
		"and the new key is there": func(dir string) error {
			key, err := newKeyPEM()
			if err != nil {
				return err
			}
			if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "key.pem"), key, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustLoadCA(t, dir)
			if err := cut(dir); err != nil {
				t.Fatal(err)
			}
			mustLoadCA(t, dir)
		})
	}
}
