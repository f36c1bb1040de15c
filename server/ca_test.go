package server

import (
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

func TestReplaceCA(t *testing.T) {
	var now atomic.Pointer[x509.Certificate]
	now.Store(testCA(t))
	var fails error
	r := newRig(t, func(c *Config) {
		c.CA, c.CAFile = now.Load, "/data/ca/cert.pem"
		c.ReplaceCA = func() (string, error) {
			if fails != nil {
				return "", fails
			}
			now.Store(testCA(t))
			return "/data/ca/replaced", nil
		}
	})
	var status Status
	r.json(r.call("GET", "/api/status", ""), 200, &status)
	present := status.Authority
	if present.Fingerprint != fingerprint(now.Load()) || present.Name != "Millpond test" || present.File != "/data/ca/cert.pem" || present.Kept != "" {
		t.Errorf("got %+v", present)
	}
	for _, body := range []string{`{"replaces":""}`, `{"replaces":"AB:CD"}`} {
		if res := r.call("POST", "/api/ca", body); res.StatusCode != 409 || !strings.Contains(r.text(res), present.Fingerprint) {
			t.Errorf("%s: got %s", body, res.Status)
		}
	}
	if res := r.call("POST", "/api/ca", `{}`); res.StatusCode != 422 {
		t.Errorf("without a confirmation: got %s", res.Status)
	}
	if res := r.call("POST", "/api/ca", `{"replaces":"`+present.Fingerprint+`"}`, "Origin", "https://other.example"); res.StatusCode != 403 {
		t.Errorf("from another site's page: got %s", res.Status)
	}
	if fingerprint(now.Load()) != present.Fingerprint {
		t.Fatal("it was replaced without a confirmation")
	}
	fails = errors.New("the disk is full")
	if res := r.call("POST", "/api/ca", `{"replaces":"`+present.Fingerprint+`"}`); res.StatusCode != 500 || !strings.Contains(r.text(res), "the disk is full") {
		t.Errorf("got %s", res.Status)
	}
	fails = nil
	var made Authority
	r.json(r.call("POST", "/api/ca", `{"replaces":"`+strings.ToLower(present.Fingerprint)+`"}`), 200, &made)
	if made.Fingerprint != fingerprint(now.Load()) || made.Fingerprint == present.Fingerprint || made.Kept != "/data/ca/replaced" {
		t.Errorf("got %+v", made)
	}
	if der := r.text(r.call("GET", "/api/ca?form=der", "")); der != string(now.Load().Raw) {
		t.Error("the dashboard gives the old certificate")
	}
	// A second click, or another dashboard, confirms one that is gone.
	if res := r.call("POST", "/api/ca", `{"replaces":"`+present.Fingerprint+`"}`); res.StatusCode != 409 {
		t.Errorf("got %s", res.Status)
	}
}
