package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millpond/settings"
)

func TestSettings(t *testing.T) {
	var live *settings.Live
	r := newRig(t, func(c *Config) {
		var err error
		live, err = settings.Load(c.Store, settings.Out{
			Passthrough: []string{"flag.example"}, MinTLS: []settings.MinTLS{{Host: "old.example", Version: "1.0"}},
		}, map[string]string{"passthrough": "--passthrough", "min_tls": "millpond.toml:3"})
		if err != nil {
			t.Fatal(err)
		}
		c.Settings = live
	})
	var got Settings
	r.json(r.call("GET", "/api/settings", ""), 200, &got)
	if want := []HostSetting{{"flag.example", "--passthrough"}}; !slices.Equal(got.Passthrough, want) || got.MinTLS[0].From != "millpond.toml:3" || got.UpstreamProxy != nil {
		t.Errorf("at first: %+v", got)
	}

	r.json(r.call("PATCH", "/api/settings", `{"passthrough":["*.app.example"],"upstream_proxy":"http://ann:s3cret@proxy.example:3128","no_proxy":["corp.example"]}`), 200, &got)
	if want := []HostSetting{{"flag.example", "--passthrough"}, {"*.app.example", "dashboard"}}; !slices.Equal(got.Passthrough, want) {
		t.Errorf("passthrough: %v", got.Passthrough)
	}
	if p := got.UpstreamProxy; p == nil || *p != (UpstreamProxySetting{"http://ann@proxy.example:3128", true, "dashboard"}) {
		t.Errorf("upstream proxy: %+v", p)
	}
	if rules := live.Rules(); !rules.Passthrough("x.app.example", "443") || rules.UpstreamProxy("a.example:80") == nil || rules.UpstreamProxy("corp.example:80") != nil {
		t.Error("what was set does not hold")
	}

	// What is absent stays, and an empty list empties.
	r.json(r.call("PATCH", "/api/settings", `{"passthrough":[]}`), 200, &got)
	if len(got.Passthrough) != 1 || got.UpstreamProxy == nil || len(got.NoProxy) != 1 {
		t.Errorf("after emptying one list: %+v", got)
	}
	got = Settings{}
	r.json(r.call("PATCH", "/api/settings", `{"upstream_proxy":""}`), 200, &got)
	if got.UpstreamProxy != nil || live.Rules().UpstreamProxy("a.example:80") != nil {
		t.Errorf("after taking the proxy away: %+v", got.UpstreamProxy)
	}

	for body, want := range map[string]string{
		`{"passthrough":["a b"]}`:                              "That cannot be set: passthrough: host pattern \\\"a b\\\"",
		`{"min_tls":[{"host":"a.example","version":"1.7"}]}`:   "validation failed",
		`{"upstream_proxy":"ftp://ann:s3cret@proxy.example"}`:  "scheme \\\"ftp\\\"",
		`{"client_certs":[{"host":"a.example"}]}`:              "No certificate is set for a.example",
		`{"client_certs":[{"host":"a.example","pem":"K3Y"}]}`:  "want a certificate and its private key",
		`{"passthrough":["` + strings.Repeat("a", 300) + `"]}`: "That cannot be set",
		`{"no_such":1}`: "unexpected property",
	} {
		res := r.call("PATCH", "/api/settings", body)
		if text := r.text(res); res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(text, want) || strings.Contains(text, "s3cret") || strings.Contains(text, "K3Y") {
			t.Errorf("%.60s: %s: %s", body, res.Status, text)
		}
	}
}

// A secret goes in and does not come out: it is kept where the certificate's host is named again without it.
func TestSettingsKeepSecrets(t *testing.T) {
	r := newRig(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a client"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	both := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	change, err := json.Marshal(map[string]any{"client_certs": []any{map[string]string{"host": "mutual.example", "pem": both}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{string(change), `{"client_certs":[{"host":"mutual.example"}]}`} {
		text := r.text(r.call("PATCH", "/api/settings", body))
		if !strings.Contains(text, "a client") || strings.Contains(text, "PRIVATE") || strings.Contains(text, "BEGIN") {
			t.Errorf("the answer: %s", text)
		}
		if r.server.cfg.Settings.Rules().ClientCert("mutual.example", "443") == nil {
			t.Error("the certificate is not used")
		}
	}
}

func TestTheStartsUpstreamProxyStays(t *testing.T) {
	r := newRig(t, func(c *Config) {
		live, err := settings.Load(c.Store, settings.Out{UpstreamProxy: "proxy.example"}, map[string]string{"upstream_proxy": "--upstream-proxy"})
		if err != nil {
			t.Fatal(err)
		}
		c.Settings = live
	})
	res := r.call("PATCH", "/api/settings", `{"upstream_proxy":"other.example"}`)
	if text := r.text(res); res.StatusCode != http.StatusConflict || !strings.Contains(text, "--upstream-proxy") {
		t.Errorf("%s: %s", res.Status, text)
	}
}

// Limits can be set where the start set none, hold at once, and spare what is shared.
func TestLimitsAreSet(t *testing.T) {
	r := newRig(t, func(c *Config) {
		live, err := settings.Load(c.Store, settings.Out{Keep: settings.Keep{MaxAge: "7d"}}, map[string]string{"max_age": "--max-age"})
		if err != nil {
			t.Fatal(err)
		}
		c.Settings = live
	})
	var got Settings
	r.json(r.call("GET", "/api/settings", ""), 200, &got)
	if got.MaxBytes != (LimitSetting{"20GiB", "default"}) || got.MaxAge != (LimitSetting{"7d", "--max-age"}) || got.MaxSessions != (LimitSetting{"none", "default"}) {
		t.Errorf("at first: %+v", got)
	}
	var first, second uint64
	for i, id := range []*uint64{&first, &second} {
		*id = r.record(exchange{url: fmt.Sprint("http://a.example/", i)})
	}
	for range 3 {
		r.record(exchange{url: "http://a.example/"})
	}
	r.json(r.call("POST", "/api/shares", fmt.Sprintf(`{"session":%d}`, first)), 200, nil)
	r.json(r.call("PATCH", "/api/settings", `{"max_sessions":"3","max_bytes":"none"}`), 200, &got)
	if got.MaxSessions != (LimitSetting{"3", "dashboard"}) || got.MaxBytes != (LimitSetting{"none", "dashboard"}) {
		t.Errorf("after the change: %+v", got)
	}
	var status Status
	eventually(t, "three are left", func() bool {
		r.json(r.call("GET", "/api/status", ""), 200, &status)
		return status.Store.Sessions == 3
	})
	if _, err := r.store.Row(first); err != nil {
		t.Errorf("a shared session is gone: %v", err)
	}
	if _, err := r.store.Row(second); err == nil {
		t.Error("the oldest session that is not shared is there")
	}
	if k := status.Store.Retention; k.MaxSessions != 3 || k.MaxBytes != 0 || k.MaxAge != 7*24*3600 {
		t.Errorf("status: %+v", k)
	}
	for change, want := range map[string]string{`{"max_age":"1d"}`: "set at the start, by --max-age", `{"max_bytes":"1kB"}`: "too little", `{"max_sessions":"0"}`: "write none"} {
		if text := r.text(r.call("PATCH", "/api/settings", change)); !strings.Contains(text, want) {
			t.Errorf("%s: %s", change, text)
		}
	}
}
