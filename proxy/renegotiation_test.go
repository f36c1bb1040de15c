package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/settings"
	"millpond/storage"
)

// An upstream that negotiates TLS anew in the middle of a request, as older servers do before they ask for a certificate: for a host that has a rule it works, else
// the row names the cause.
func TestRenegotiation(t *testing.T) {
	for _, test := range []struct {
		name string
		out  settings.Out
		want string // of the session's error
	}{
		{"with a rule", settings.Out{MinTLS: []settings.MinTLS{{Host: "old.example", Version: "1.2"}}}, ""},
		{"without", settings.Out{}, "asked to negotiate TLS anew"},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := renegotiatingServer(t)
			p := startProxy(t, Config{Rules: rulesOf(t, test.out)})
			tc, err := p.handshake(up, &tls.Config{ServerName: "old.example"})
			if err != nil {
				t.Fatal(err)
			}
			tc.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(tc, "GET /here HTTP/1.1\r\nHost: old.example\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(tc), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			s := p.next()
			if test.want == "" && (res.StatusCode != 200 || string(body) != "anew" || err != nil || s.State != storage.Done) {
				t.Errorf("got %s %q, %v; session %v %q", res.Status, body, err, s.State, s.Error)
			}
			if test.want != "" && (res.StatusCode != 502 || !strings.Contains(s.Error, test.want)) {
				t.Errorf("got %s; session %v %q, want %q", res.Status, s.State, s.Error, test.want)
			}
		})
	}
}

// renegotiatingServer is OpenSSL's, for one connection: after a request it negotiates anew and then answers.
func renegotiatingServer(t *testing.T) (addr string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	pair := upstreamCA().issue(nil, "old.example")
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "server.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(name, both, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "openssl", "s_server", "-tls1_2", "-accept", "127.0.0.1:0", "-naccept", "1", "-cert", name)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "ACCEPT "); ok {
			addr = rest
		}
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		t.Fatalf("openssl listens on %q: %v", addr, err)
	}
	go func() {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "GET /here ") { // its command r negotiates anew; other lines are sent
				fmt.Fprint(in, "r\n")
				time.Sleep(300 * time.Millisecond) // it reads a command only from the beginning of what it reads
				fmt.Fprint(in, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nanew")
				break
			}
		}
		io.Copy(io.Discard, out)
	}()
	return addr
}
