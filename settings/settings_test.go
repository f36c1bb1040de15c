package settings

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		pattern, host, port string
		want                bool
	}{
		{"*", "a.example", "443", true},
		{"*:443", "a.example", "443", true},
		{"*:443", "a.example", "8443", false},
		{"a.example", "a.example", "443", true},
		{"A.Example", "a.example", "443", true},
		{"a.example", "A.EXAMPLE.", "443", true},
		{"a.example", "b.a.example", "443", false},
		{"a.example:8443", "a.example", "443", false},
		{"*.example", "a.example", "443", true},
		{"*.example", "b.a.example", "443", true},
		{"*.example", "example", "443", false},
		{"*.example", "anexample", "443", false},
		{".example", "example", "443", true},
		{".example", "a.example", "443", true},
		{".example:1", "a.example", "1", true},
		{"münchen.example", "xn--mnchen-3ya.example", "443", true},
		{"192.0.2.7", "192.0.2.7", "1", true},
		{"192.0.2.7", "::ffff:192.0.2.7", "1", true},
		{"192.0.2.0/24", "192.0.2.200", "1", true},
		{"192.0.2.0/24", "192.0.3.1", "1", false},
		{"192.0.2.0/24", "a.example", "1", false},
		{"2001:db8::1", "2001:db8:0::1", "1", true},
		{"[2001:db8::1]:8443", "2001:db8::1", "8443", true},
		{"[2001:db8::1]:8443", "2001:db8::1", "443", false},
		{"fe80::1", "fe80::1%eth0", "1", true},
		{"[2001:db8::1]", "2001:db8::1", "443", true},
		{"my_service", "my_service", "80", true},
		{"R3---sn.example", "r3---sn.example", "443", true},
	} {
		p, err := ParsePattern(test.pattern)
		if err != nil {
			t.Errorf("%s: %v", test.pattern, err)
			continue
		}
		if got := p.Match(test.host, test.port); got != test.want {
			t.Errorf("%s means %s:%s: %v, want %v", test.pattern, test.host, test.port, got, test.want)
		}
	}
	for _, wrong := range []string{"", ":443", "https://a.example", "a.example/path", "a.example:0", "a.example:x", "a.*.example", "*example", "a b", "a@b", "a..b", "[a.example]", "a.example]", "[2001:db8::1", "2001:db8::1]", "[192.0.2.7]:80", strings.Repeat("a.", 127) + "example"} {
		if p, err := ParsePattern(wrong); err == nil {
			t.Errorf("%q was taken for a pattern: %+v", wrong, p)
		}
	}
	for pattern, why := range map[string]string{"": "it is empty", "[": "brackets stand around an IPv6 address", "[]": "brackets", "[]:80": "a port and no host", ":443": "a port and no host"} {
		if _, err := ParsePattern(pattern); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", pattern, err, why)
		}
	}
	for _, url := range []string{"https://bad host/", "http://a.example:80/x"} {
		if _, err := ParsePattern(url); err == nil || !strings.Contains(err.Error(), "not a URL") {
			t.Errorf("%q: %v, want that it is a URL", url, err)
		}
	}
}

func TestUpstreamProxy(t *testing.T) {
	for text, want := range map[string]string{
		"http://proxy.example":              "http://proxy.example:80",
		"proxy.example:3128":                "http://proxy.example:3128",
		"https://u:p@proxy.example":         "https://u@proxy.example:443",
		"socks5://proxy.example":            "socks5://proxy.example:1080",
		"socks5h://u:secret@[::1]:1081/":    "socks5://u@[::1]:1081",
		"ftp://proxy.example":               "",
		"http://":                           "",
		"http://proxy.example/x":            "",
		"http://proxy.example:0":            "",
		"http://u:secret@proxy.example:bad": "",
		"javascript:1":                      "",
		"HTTP:3128":                         "",
		"socks5:1080":                       "",
		"proxy:3128":                        "http://proxy:3128",
		"http://" + strings.Repeat("u", 256) + ":secret@proxy.example": "",
	} {
		p, err := ParseUpstreamProxy(text, nil)
		switch {
		case err != nil && (want != "" || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", text, err)
		case err == nil && p.Redacted() != want:
			t.Errorf("%s is %s, want %q", text, p.Redacted(), want)
		}
	}
	r, err := Compile(Out{UpstreamProxy: "proxy.example:3128", NoProxy: []string{
		"corp.example", "10.0.0.0/8", "b.example:8443", ".below.example", "*.star.example", "192.0.2.0/24:8080", "[2001:db8::1]", "*:9999", "münchen.example", "dot.example.",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]bool{
		"a.example:443": true, "corp.example:443": false, "x.corp.example:80": false, "10.1.2.3:80": false, "11.1.2.3:80": true,
		"b.example:8443": false, "b.example:443": true, "below.example:80": true, "x.below.example:80": false, "star.example:80": true, "x.star.example:80": false,
		"192.0.2.1:8080": false, "192.0.2.1:80": true, "[2001:db8::1]:80": false, "a.example:9999": false, "xn--mnchen-3ya.example:80": false, "x.dot.example:80": false,
		"[::ffff:127.0.0.1]:80": false, "notlocalhost:80": true, "localhost:80": false, "LOCALHOST.:80": false, "app.Localhost:80": false, "CORP.example.:80": false, "127.0.0.1:80": false, "[::1]:80": false,
	} {
		if got := r.UpstreamProxy(authority) != nil; got != want {
			t.Errorf("%s goes through the proxy: %v, want %v", authority, got, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	many := make([]string, MaxEntries+1)
	for i := range many {
		many[i] = "a.example"
	}
	for want, out := range map[string]Out{
		"passthrough: host pattern \"a b\"":              {Passthrough: []string{"a b"}},
		"passthrough: 1001 host patterns; 1000 are":      {Passthrough: many},
		"insecure hosts: host pattern":                   {InsecureHosts: []string{""}},
		"\"1.4\" is not a version of TLS":                {MinTLS: []MinTLS{{"a.example", "1.4"}}},
		"no proxy for: host pattern":                     {NoProxy: []string{"a b"}},
		"upstream proxy: the scheme \"ftp\"":             {UpstreamProxy: "ftp://a"},
		"client certificate: for a.example: want a cert": {ClientCerts: []ClientCert{{Host: "a.example", PEM: "SECRET"}}},
		"no such file": {ClientCerts: []ClientCert{{Host: "a.example", CertFile: filepath.Join(t.TempDir(), "none")}}},
	} {
		if _, err := Compile(out); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Compile(Out{Passthrough: many[1:]}); err != nil {
		t.Errorf("%d patterns: %v", MaxEntries, err)
	}
}

func pair(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// Of two files one is replaced first. Until the other has followed, and also where both are gone, the certificate that was read last is the one.
func TestClientCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write := func(name string, content []byte, at int) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if when := time.Unix(int64(at), 0); os.Chtimes(name, when, when) != nil {
			t.Fatal("chtimes")
		}
	}
	cert1, key1 := pair(t)
	cert2, key2 := pair(t)
	write(certFile, cert1, 1)
	write(keyFile, key1, 1)
	c, err := ParseClientCert("a.example=" + certFile + "+" + keyFile)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Compile(Out{ClientCerts: []ClientCert{c}})
	if err != nil {
		t.Fatal(err)
	}
	is := func(want []byte) bool {
		t.Helper()
		block, _ := pem.Decode(want)
		got := r.ClientCert("a.example", "443")
		return got != nil && string(got.Certificate[0]) == string(block.Bytes)
	}
	if !is(cert1) {
		t.Error("not the first certificate")
	}
	if write(certFile, cert2, 2); !is(cert1) {
		t.Error("not the first certificate, with half of a new pair there")
	}
	if write(keyFile, key2, 2); !is(cert2) {
		t.Error("not the second certificate")
	}
	if os.Remove(certFile); !is(cert2) {
		t.Error("not the second certificate, with its file gone")
	}
	if r.ClientCert("b.example", "443") != nil {
		t.Error("a certificate for a host that has none")
	}
	write(certFile, make([]byte, maxPEM+1), 3)
	if _, err := Compile(Out{ClientCerts: []ClientCert{c}}); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("a file of more than %d bytes: %v", maxPEM, err)
	}
}

func TestLive(t *testing.T) {
	dir := t.TempDir()
	open := func() *storage.Store {
		store, err := storage.OpenStore(storage.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	start := Out{Passthrough: []string{"flag.example"}, UpstreamProxy: "http://flag.example"}
	live, err := Load(store, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := pair(t)
	err = live.Change(func(o *Out) error {
		o.Passthrough = []string{"app.example"}
		o.UpstreamProxy = "http://app.example" // the start's counts
		o.MinTLS = []MinTLS{{"old.example", "1.0"}}
		o.ClientCerts = []ClientCert{{Host: "mutual.example", PEM: string(cert) + string(key)}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = live.Change(func(o *Out) error { o.Passthrough = []string{"a b"}; return nil })
	if _, invalid := err.(*InvalidError); !invalid {
		t.Errorf("a wrong pattern: %v", err)
	}
	check := func(live *Live) {
		t.Helper()
		r := live.Rules()
		if !r.Passthrough("flag.example", "443") || !r.Passthrough("app.example", "443") || r.Passthrough("a b", "443") {
			t.Error("not what was set passes unread")
		}
		if r.MinTLS("old.example", "443") != tls.VersionTLS10 || r.ClientCert("mutual.example", "443") == nil {
			t.Error("what was set of TLS does not hold")
		}
		if via := r.UpstreamProxy("x.example:80"); via == nil || via.Authority != "flag.example:80" {
			t.Errorf("the upstream proxy is %v", via)
		}
	}
	check(live)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = open()
	t.Cleanup(func() { store.Close() })
	if live, err = Load(store, start, nil); err != nil {
		t.Fatal(err)
	}
	check(live)

	// What cannot be used is not taken for what was never set.
	if err := Check(dir); err != nil {
		t.Errorf("sound settings: %v", err)
	}
	for _, kept := range []string{"", "{", `{"passthrough":["a b"]}`, `{"max_bytes":"none","passthro`, `{"max_bytfs":"none"}`, `{}x`} {
		if err := store.PutSetting(record, []byte(kept)); err != nil {
			t.Fatal(err)
		}
		live, err := Load(store, start, nil)
		for _, err := range []error{err, Check(dir)} {
			if err == nil || live != nil || !strings.Contains(err.Error(), filepath.Join(dir, "settings", "out.")) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("kept settings %s: %v, %v", kept, live, err)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]uint64{
		"none": 0, "None": 0, "20GiB": 20 << 30, "1.5 gib": 3 << 29, "500MB": 500e6, "500mb": 500e6, "209715200": 200 << 20, "1TiB": 1 << 40,
	} {
		if got, err := ParseMaxBytes(text); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"none": 0, "7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "1w1d12h": 204 * time.Hour, "36h": 36 * time.Hour, "90m": 90 * time.Minute,
	} {
		if got, err := ParseMaxAge(text); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	if got, err := ParseMaxSessions("100000"); got != 100_000 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

// What the start says of a limit counts before what the dashboard does, and that before the default. A change holds for the store at once.
func TestLimitsOfStartAndDashboard(t *testing.T) {
	store, err := storage.OpenStore(storage.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	start := Out{Keep: Keep{MaxAge: "7d"}}
	live, err := Load(store, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := live.Rules().Limits(), (storage.Limits{Bytes: 20 << 30, Age: 7 * 24 * time.Hour}); got != want {
		t.Errorf("at first: %+v, want %+v", got, want)
	}
	if err := live.Change(func(o *Out) error { o.Keep = Keep{MaxBytes: "none", MaxAge: "1d", MaxSessions: "5000"}; return nil }); err != nil {
		t.Fatal(err)
	}
	want := storage.Limits{Age: 7 * 24 * time.Hour, Sessions: 5000}
	if got := store.Status().Retention.Limits; got != want {
		t.Errorf("after the change: %+v, want %+v", got, want)
	}
	if err := live.Change(func(o *Out) error { o.MaxBytes = "1MB"; return nil }); err == nil {
		t.Error("too low a limit was taken")
	}
	if err := store.PutSetting(record, []byte(`{"max_bytes":"0","max_sessions":"5000"}`)); err != nil { // 0 was taken for none once
		t.Fatal(err)
	}
	again, err := Load(store, start, nil)
	if err != nil || again.Rules().Limits() != want {
		t.Errorf("after a restart: %+v, %v", again.Rules().Limits(), err)
	}
}
