package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// testCA is one authority for every test that only needs some: each makes an RSA key for its leaves, which is slow.
var testCA = sync.OnceValue(func() *CA {
	dir, err := os.MkdirTemp("", "millpond-ca")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ca, err := LoadCA(dir)
	if err != nil {
		panic(err)
	}
	return ca
})

func mustLoadCA(t testing.TB, dir string) *CA {
	t.Helper()
	ca, err := LoadCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCAIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	made := mustLoadCA(t, dir).Certificate()
	if again := mustLoadCA(t, dir).Certificate(); !again.Equal(made) {
		t.Error("the second LoadCA made another certificate")
	}

	if key, ok := made.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("key is %T, want ECDSA P-256", made.PublicKey)
	}
	if !made.IsCA || !made.MaxPathLenZero || made.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("CA %v, path length zero %v, key usage %b: want an authority that signs leaves only", made.IsCA, made.MaxPathLenZero, made.KeyUsage)
	}
	if len(made.SubjectKeyId) == 0 {
		t.Error("no subject key identifier")
	}
	if left := time.Until(made.NotAfter); left < 9*365*24*time.Hour {
		t.Errorf("valid for %v more, want ten years", left)
	}
	if name := made.Subject.CommonName; !strings.HasPrefix(name, "Millpond CA") || len(name) > 64 {
		t.Errorf("name %q", name)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("directory holds %v, want cert.pem and key.pem", entries)
	}
}

func TestCAKeyIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	dir := t.TempDir()
	mustLoadCA(t, dir)
	key := filepath.Join(dir, "key.pem")
	for _, before := range []os.FileMode{0o600, 0o644, 0o666} {
		if err := os.Chmod(key, before); err != nil {
			t.Fatal(err)
		}
		mustLoadCA(t, dir)
		info, err := os.Stat(key)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("key of mode %o has mode %o after loading, want 600", before, got)
		}
	}
}

func TestCAMadeByManyAtOnceIsOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var certs [8]*x509.Certificate
	var wg sync.WaitGroup
	for i := range certs {
		wg.Go(func() {
			ca, err := LoadCA(dir)
			if err != nil {
				t.Error(err)
				return
			}
			certs[i] = ca.Certificate()
		})
	}
	wg.Wait()
	for _, c := range certs[1:] {
		if c == nil || !c.Equal(certs[0]) {
			t.Fatal("creations at the same time ended with different authorities")
		}
	}
}

func TestCAWhoseCreationWasCutShortIsFinished(t *testing.T) {
	dir := t.TempDir()
	first := mustLoadCA(t, dir)
	if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	second := mustLoadCA(t, dir)
	if !second.Certificate().PublicKey.(*ecdsa.PublicKey).Equal(first.Certificate().PublicKey) {
		t.Error("the key that was there is not the new certificate's")
	}
}

func TestCAThatCannotBeUsedSaysWhy(t *testing.T) {
	spoil := func(name string, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(*testing.T, string)
		want  string
	}{
		{"no key", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "key.pem")) }, "put the key back"},
		{"a torn key", spoil("key.pem", "-----BEGIN PRIVATE"), "open the authority"},
		{"a torn certificate", spoil("cert.pem", ""), "open the authority"},
		{"another key", func(t *testing.T, dir string) {
			other, err := newKeyPEM()
			if err != nil {
				t.Fatal(err)
			}
			spoil("key.pem", string(other))(t, dir)
		}, "does not match"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			mustLoadCA(t, dir)
			test.spoil(t, dir)
			if _, err := LoadCA(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
}
