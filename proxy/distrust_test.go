package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// Each program has its own way to say that it does not trust us, some none. The row names the host and the likely cause, which is another once some
// program at that address was seen to trust us.
func TestProgramsThatDoNotTrustUs(t *testing.T) {
	port := webServer(t, upstreamCA().issue(nil, "localhost"))
	url := "https://localhost:" + port + "/"
	node := func(version string) func(addr string) []string {
		return func(addr string) []string {
			return []string{"node", "-e", fmt.Sprintf(`
				const at = new URL("http://%s");
				require("http").request({ host: at.hostname, port: at.port, method: "CONNECT", path: "localhost:%s" }).on("connect", (_, socket) => {
					require("tls").connect({ socket, servername: "localhost", minVersion: "%[3]s", maxVersion: "%[3]s" }).on("error", () => process.exit(7));
				}).end();`, addr, port, version)}
		}
	}
	openssl := func(args ...string) func(addr string) []string {
		return func(addr string) []string {
			return append([]string{"openssl", "s_client", "-proxy", addr, "-connect", "localhost:" + port, "-quiet"}, args...)
		}
	}
	curl := func(args ...string) func(addr string) []string {
		return func(addr string) []string {
			return append([]string{"curl", "-sS", "-x", "http://" + addr, url}, args...)
		}
	}
	const stranger, known = "does not know Millpond's certificate authority", "which another program at that address trusts"
	const left, pinned = "most likely does not trust it", "trusts Millpond's authority, so this one most likely accepts only certificates it knows"
	for _, test := range []struct {
		name            string
		command         func(addr string) []string
		stranger, known string
	}{
		{"curl", curl(), "(unknown_ca): it " + stranger, known},
		{"curl, TLS 1.2", curl("--tls-max", "1.2"), "(unknown_ca): it " + stranger, known},
		{"curl, pinned", curl("-k", "--pinnedpubkey", "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), left, pinned},
		{"openssl", openssl("-tls1_3", "-verify_return_error"), "(unknown_ca): it " + stranger, known},
		{"openssl, TLS 1.2", openssl("-tls1_2", "-verify_return_error"), "(unknown_ca): it " + stranger, known},
		{"openssl, TLS 1.1", openssl("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"), "no common version", "the client only older ones"},
		{"node", node("TLSv1.3"), left, pinned},
		{"node, TLS 1.2", node("TLSv1.2"), left, pinned},
		{"wget", func(addr string) []string {
			return []string{"wget", "-qO-", "-t1", "-e", "https_proxy=http://" + addr, url}
		}, left, pinned},
		{"git", func(addr string) []string {
			return []string{"git", "-c", "http.proxy=http://" + addr, "ls-remote", url}
		}, left, pinned},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startProxy(t, Config{})
			for _, want := range []string{test.stranger, test.known} {
				command := test.command(p.addr)
				if _, err := exec.LookPath(command[0]); err != nil {
					t.Skip(err)
				}
				if out, code := run(t, "", command[0], command[1:]...); code == 0 {
					t.Fatalf("%v trusts us: %s", command, out)
				}
				if s := p.wantFailed(want); s.Host != "localhost:"+port {
					t.Errorf("the row names host %q", s.Host)
				}
				p.p.accepted.note("127.0.0.1:1", "another.example:443")
			}
		})
	}
}

func TestGoProgramsThatDoNotTrustUs(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		p := startProxy(t, Config{})
		for _, want := range []string{"(bad_certificate): the authority is most likely not installed", "(bad_certificate): another program at that address trusts"} {
			if _, err := p.handshake(addr, &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool(), MaxVersion: version}); err == nil {
				t.Fatal("the client accepted the certificate")
			}
			p.wantFailed(want)
			p.p.accepted.note("127.0.0.1:1", "another.example:443")
		}
	}
}

// A browser opens two connections, uses the one that stands first, and drops the other, in the handshake or after it. That is no rejection, although
// the drop may be seen before the first request.
func TestSurplusConnectionIsNoRejection(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, func(c *tls.Conn) {
		readHead(bufio.NewReader(c), 1<<10)
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	for _, inHandshake := range []bool{false, true} {
		p := startProxy(t, Config{})
		p.p.acceptedSoon = patience
		used, err := p.handshake(addr, &tls.Config{ServerName: "example.com"})
		if err != nil {
			t.Fatal(err)
		}
		tunnel := p.tunnelTo(addr)
		surplus := tls.Client(tunnel, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error {
			if inHandshake {
				tunnel.Close()
			}
			return nil
		}})
		if err := surplus.Handshake(); (err != nil) != inHandshake {
			t.Fatal(err)
		}
		surplus.Close()
		waits := func() bool { // the proxy has seen it go
			for _, stack := range goroutines() {
				if strings.Contains(stack, "(*Proxy).takes(") {
					return true
				}
			}
			return p.sessions() > 0 // and has made up its mind
		}
		for deadline := time.Now().Add(patience); !waits() && time.Now().Before(deadline); {
			time.Sleep(2 * time.Millisecond)
		}
		peer := newPeer(t, used)
		peer.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
		peer.head()
		peer.rest()
		sessions := 1
		if inHandshake {
			sessions = 2
		}
		var told bool
		for _, s := range p.all(sessions) {
			if s.State == storage.Failed {
				t.Errorf("session %v %q", s.State, s.Error)
			}
			told = told || s.State == storage.ClientAborted && strings.Contains(s.Error, "did not need the connection any more")
		}
		if told != inHandshake {
			t.Errorf("in the handshake %v: a row for the surplus connection: %v", inHandshake, told)
		}
	}
}

// Every alert of RFC 8446 that is about a certificate has a meaning, by the text that crypto/tls has for it.
func TestAlertMeanings(t *testing.T) {
	p := startProxy(t, Config{})
	for code, want := range map[uint8]string{
		40: "(handshake_failure): it accepts none of the ciphers", 42: "(bad_certificate)", 43: "(unsupported_certificate)", 44: "(certificate_revoked)",
		45: "the clock of the client or of this machine is wrong", 46: "(certificate_unknown)", 48: "(unknown_ca)", 49: "(access_denied)",
		51: "(decrypt_error): a signature did not verify", 70: "(protocol_version)", 71: "(insufficient_security)", 80: "(internal_error)", 90: "(user_canceled)",
		111: "(certificate_unobtainable)", 113: "OCSP", 114: "pinning", 120: "(no_application_protocol)", 200: "alert(200)",
	} {
		if got := p.p.explainAlert("192.0.2.1:5", alertText(tls.AlertError(code))); !strings.Contains(got, want) {
			t.Errorf("alert %d is explained as %q, want %q", code, got, want)
		}
	}
}

// What is known of clients is bounded, and the latest is what stays.
func TestAcceptedIsBounded(t *testing.T) {
	a, err := newAccepted()
	if err != nil {
		t.Fatal(err)
	}
	for i := range acceptedLimit {
		a.note(fmt.Sprintf("[2001:db8::%x]:443", i), "example.com:443")
	}
	if n := a.seen.Len(); n != acceptedLimit {
		t.Errorf("%d are kept, want %d", n, acceptedLimit)
	}
	if latest := fmt.Sprintf("[2001:db8::%x]:1", acceptedLimit-1); a.by("[2001:db8::0]:1") || !a.by(latest) || !a.of(latest, "example.com:443") {
		t.Error("the oldest is kept, or the latest is not")
	}
}
