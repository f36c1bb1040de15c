package server

import (
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

//go:embed setup.html
var setupText string

var setupPage = template.Must(template.New("setup").Parse(setupText))

// Setup answers devices that ask the proxy itself for help: a page with the CA certificate and the steps to install it. It holds nothing of the
// dashboard, and the certificate is no secret, so it needs no token.
func Setup(ca *x509.Certificate) http.Handler {
	sum := sha256.Sum256(ca.Raw)
	fingerprint := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = setupPage.Execute(w, struct{ Name, Fingerprint string }{ca.Subject.CommonName, fingerprint})
	})
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) { writeCA(w, ca.Raw, false) })
	mux.HandleFunc("GET /ca.crt", func(w http.ResponseWriter, _ *http.Request) { writeCA(w, ca.Raw, true) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		mux.ServeHTTP(w, r)
	})
}
