package server

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"testing"

	"millpond/storage"
)

// shown records a session whose upstream showed the certificates.
func (r *rig) shown(certificates ...[]byte) uint64 {
	rec := r.begin(exchange{url: "https://a/"})
	rec.Change(func(s *storage.Session) { s.TLS = &storage.TLS{ServerName: "a", Chain: r.store.Chain(certificates)} })
	rec.End(storage.Done, "")
	return rec.ID()
}

func TestCertificates(t *testing.T) {
	r := newRig(t)
	one, two := testCA(t), testCA(t)
	id, none, garbage := r.shown(one.Raw, two.Raw), r.shown(), r.shown([]byte("no certificate"))
	_, g := r.share(id, 3600)
	for name, res := range map[string]*http.Response{
		"the dashboard": r.call("GET", fmt.Sprintf("/api/sessions/%d/certificates", id), ""),
		"a share":       g.get(fmt.Sprintf("/sessions/%d/certificates", id)),
	} {
		var list CertificateList
		r.json(res, http.StatusOK, &list)
		if len(list.Certificates) != 2 {
			t.Fatalf("%s: got %+v", name, list)
		}
		for i, want := range []*x509.Certificate{one, two} {
			got := list.Certificates[i]
			block, rest := pem.Decode([]byte(got.PEM))
			if block == nil || len(rest) > 0 || !bytes.Equal(block.Bytes, want.Raw) {
				t.Errorf("%s: certificate %d: got %s", name, i, got.PEM)
			}
			if got.Subject != "CN=Millpond test" || got.Issuer != got.Subject || !got.NotAfter.Equal(want.NotAfter) || len(got.SHA256) != 64 || got.Names == nil {
				t.Errorf("%s: certificate %d: got %+v", name, i, got)
			}
		}
	}
	for _, test := range []struct {
		name   string
		res    *http.Response
		status int
	}{
		{"a session without any", r.call("GET", fmt.Sprintf("/api/sessions/%d/certificates", none), ""), http.StatusOK},
		{"what is no certificate", r.call("GET", fmt.Sprintf("/api/sessions/%d/certificates", garbage), ""), http.StatusUnprocessableEntity},
		{"a session that is not there", r.call("GET", "/api/sessions/999/certificates", ""), http.StatusNotFound},
		{"another session than the shared one", g.get(fmt.Sprintf("/sessions/%d/certificates", none)), http.StatusNotFound},
	} {
		if test.res.StatusCode != test.status {
			t.Errorf("%s: got %s, want %d", test.name, test.res.Status, test.status)
		}
	}
	for id, want := range map[uint64]bool{id: true, none: false} {
		var s Session
		r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", id), ""), http.StatusOK, &s)
		if s.TLS == nil || s.TLS.Certificates != want {
			t.Errorf("session %d: got %+v", id, s.TLS)
		}
	}
}
