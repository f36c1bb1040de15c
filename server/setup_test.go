package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// setupServer serves the page as the proxy does, and returns a function that asks it with curl and returns head and body.
func setupServer(t *testing.T, cfg SetupConfig) (addr string, get func(path string, args ...string) (head string, body []byte)) {
	t.Helper()
	server := httptest.NewServer(Setup(cfg))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), func(path string, args ...string) (string, []byte) {
		t.Helper()
		dir := t.TempDir()
		args = append([]string{"-sS", "--noproxy", "*", "-D", filepath.Join(dir, "head"), "-o", filepath.Join(dir, "body"), server.URL + path}, args...)
		if out, err := exec.Command("curl", args...).CombinedOutput(); err != nil {
			t.Fatalf("curl %v: %v: %s", args, err, out)
		}
		head, err := os.ReadFile(filepath.Join(dir, "head"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := os.ReadFile(filepath.Join(dir, "body")) // none for an empty one
		return string(head), body
	}
}

func setupConfig(t *testing.T) (SetupConfig, *x509.Certificate) {
	ca := testCA(t)
	return SetupConfig{CA: func() *x509.Certificate { return ca }, Proxy: netip.MustParseAddrPort("192.0.2.9:8080")}, ca
}

func TestSetupPage(t *testing.T) {
	cfg, ca := setupConfig(t)
	addr, get := setupServer(t, cfg)
	head, page := get("/")
	for _, want := range []string{"200 OK", "Content-Security-Policy: default-src 'none'", "Content-Type: text/html", "Cache-Control: no-store"} {
		if !strings.Contains(head, want) {
			t.Errorf("the head lacks %q: %s", want, head)
		}
	}
	for _, want := range []string{
		"Millpond test", fingerprint(ca), keyPin(ca), `--proxy &#34;http://` + addr + `&#34;`,
		`--proxy-bypass-list=&#39;&lt;-loopback&gt;&#39;`, `network.proxy.allow_hijacking_localhost`, // else localhost is asked directly
		`curl -fsS --noproxy &#34;*&#34; -o millpond-ca.pem &#34;http://` + addr + `/ca.pem&#34;`,
	} {
		if want = strings.ReplaceAll(want, "+", "&#43;"); !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, id := range []string{"ios", "android", "macos", "windows", "linux", "firefox", "chrome", "curl", "git", "node", "python", "java", "go", "docker"} {
		if !bytes.Contains(page, []byte(`<details id="`+id+`"`)) {
			t.Errorf("the page has no steps for %s", id)
		}
	}
	if len(page) > 32<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, path := range []string{"/api/sessions", "/api/status", "/metrics", "/healthz", "/assets/", "/page.html"} { // nothing of the dashboard
		if head, _ := get(path); !strings.Contains(head, "404 Not Found") {
			t.Errorf("%s: got %s", path, head)
		}
	}
	for _, path := range []string{"/setup.js", "/setup.css", "/yes.svg"} {
		head, body := get(path)
		if !strings.Contains(head, "200 OK") || len(body) == 0 || strings.Contains(head, "Policy: cross-origin") != (path == "/yes.svg") {
			t.Errorf("%s: got %s", path, head)
		}
	}
}

// Each device finds its own steps open.
func TestSetupPageOpensTheStepsOfTheDevice(t *testing.T) {
	cfg, _ := setupConfig(t)
	_, get := setupServer(t, cfg)
	for agent, want := range map[string]string{
		"Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) AppleWebKit/605.1.15 Version/19.1 Mobile/15E148 Safari/604.1": "ios",
		"Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/156.0.0.0 Mobile Safari/537.36":                            "android",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/19.1 Safari/605.1.15":                   "macos",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:150.0) Gecko/20100101 Firefox/150.0":                                    "windows firefox",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0 Safari/537.36":                                   "linux",
		"curl/8.14.1": "",
	} {
		_, page := get("/", "-A", agent)
		if got := bytes.Count(page, []byte(" open>")); got != len(strings.Fields(want)) {
			t.Errorf("%s: %d steps are open", agent, got)
		}
		for _, id := range strings.Fields(want) {
			if !bytes.Contains(page, []byte(`<details id="`+id+`" open>`)) {
				t.Errorf("%s: the steps for %s are not open", agent, id)
			}
		}
	}
}

// The commands name the proxy by the address that the device used, whatever it asked for; a Host that could mean something to a shell is not repeated.
func TestSetupPageNamesTheAddressInUse(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 4), Port: 8080}
	listener := netip.MustParseAddrPort("0.0.0.0:8080")
	for host, want := range map[string]string{
		"192.0.2.7:8080":                "192.0.2.7:8080",
		"proxy.example":                 "proxy.example:80",
		"PROXY.example:8080":            "proxy.example:8080",
		"[2001:db8::7]:8080":            "[2001:db8::7]:8080",
		"millpond.internal":             "192.0.2.4:8080",
		"Millpond.internal:80":          "192.0.2.4:8080",
		"check.millpond.internal":       "192.0.2.4:8080",
		"$(reboot):8080":                "192.0.2.4:8080",
		"a\"b:8080":                     "192.0.2.4:8080",
		"-x:8080":                       "192.0.2.4:8080",
		"[fe80::1%25$(reboot)]:8080":    "192.0.2.4:8080",
		"proxy.example:80;reboot":       "192.0.2.4:8080",
		"":                              "192.0.2.4:8080",
		strings.Repeat("a.", 200) + "b": "192.0.2.4:8080",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		if got := reachedAt(r, listener); got != want {
			t.Errorf("Host %q: the page names %s, want %s", host, got, want)
		}
	}
	cfg, _ := setupConfig(t)
	cfg.Auth = true
	_, get := setupServer(t, cfg)
	if _, page := get("/", "-H", "Host: 192.0.2.7:8080"); !bytes.Contains(page, []byte("http://USER:PASSWORD@192.0.2.7:8080")) || bytes.Contains(page, []byte("only this one machine")) {
		t.Error("the commands leave no room for the credentials that the proxy wants")
	}
}

func TestSetupForms(t *testing.T) {
	cfg, ca := setupConfig(t)
	_, get := setupServer(t, cfg)
	for _, test := range []struct{ path, mediaType, disposition string }{
		{"/ca.pem", "application/x-pem-file", `attachment; filename="millpond-ca.pem"`},
		{"/ca.crt", "application/x-x509-ca-cert", `attachment; filename="millpond-ca.crt"`},
		{"/ca.cer", "application/x-x509-ca-cert", `inline; filename="millpond-ca.cer"`},
		{"/ca.mobileconfig", "application/x-apple-aspen-config", `inline; filename="millpond-ca.mobileconfig"`},
	} {
		head, body := get(test.path)
		if !strings.Contains(head, "Content-Type: "+test.mediaType+"\r\n") || !strings.Contains(head, "Content-Disposition: "+test.disposition+"\r\n") {
			t.Errorf("%s: got %s", test.path, head)
		}
		switch test.path {
		case "/ca.pem":
			if block, rest := pem.Decode(body); block == nil || !bytes.Equal(block.Bytes, ca.Raw) || len(rest) > 0 {
				t.Errorf("%s: got %s", test.path, body)
			}
		case "/ca.mobileconfig":
			wantProfile(t, body, ca)
		default:
			if !bytes.Equal(body, ca.Raw) {
				t.Errorf("%s: got %d bytes", test.path, len(body))
			}
		}
	}
}

// wantProfile reads a profile with a parser of property lists that is not ours.
func wantProfile(t *testing.T, profile []byte, ca *x509.Certificate) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(python, "-c", `
import json, plistlib, sys
print(json.dumps(plistlib.loads(sys.stdin.buffer.read()), default=list))`)
	cmd.Stdin = bytes.NewReader(profile)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the profile does not parse: %v: %s", err, profile)
	}
	type payload struct {
		PayloadType, PayloadUUID, PayloadIdentifier, PayloadDisplayName string
		PayloadVersion                                                  int
		PayloadContent                                                  json.RawMessage
	}
	var outer payload
	var inner []payload
	var der []int
	for _, err := range []error{json.Unmarshal(out, &outer), json.Unmarshal(outer.PayloadContent, &inner), json.Unmarshal(inner[0].PayloadContent, &der)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root := inner[0]
	if outer.PayloadType != "Configuration" || root.PayloadType != "com.apple.security.root" || outer.PayloadVersion != 1 || root.PayloadVersion != 1 ||
		outer.PayloadUUID == root.PayloadUUID || len(root.PayloadUUID) != 36 || root.PayloadIdentifier == outer.PayloadIdentifier || root.PayloadDisplayName != ca.Subject.CommonName {
		t.Errorf("got %s", out)
	}
	got := make([]byte, len(der))
	for i, b := range der {
		got[i] = byte(b)
	}
	if !bytes.Equal(got, ca.Raw) {
		t.Errorf("the profile holds %d bytes, want the certificate's %d", len(got), len(ca.Raw))
	}
}

// A name from a machine's host name may hold anything.
func TestProfileEscapesTheName(t *testing.T) {
	ca := *testCA(t)
	ca.Subject.CommonName = `Millpond CA (<a> & "b")`
	wantProfile(t, profileOf(&ca), &ca)
}
