package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Authority is the certificate authority that devices install.
type Authority struct {
	Name        string    `json:"name" doc:"As devices list it."`
	Fingerprint string    `json:"fingerprint" doc:"The SHA-256 of the certificate, in hex with colons."`
	Expires     time.Time `json:"expires"`
	File        string    `json:"file" doc:"The path of its cert.pem, on the machine that Millpond runs on."`
	Kept        string    `json:"kept,omitempty" doc:"Where the authority that it replaced is kept."`
}

func (s *Server) authority() Authority {
	ca := s.cfg.CA()
	return Authority{Name: ca.Subject.CommonName, Fingerprint: fingerprint(ca), Expires: ca.NotAfter, File: s.cfg.CAFile}
}

// fingerprint is the SHA-256 of a certificate as people compare it: AB:CD:….
func fingerprint(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// keyPin is the SHA-256 of a certificate's key, in base64, as browsers and curl take it.
func keyPin(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

type replaceCAInput struct {
	Body struct {
		Replaces string `json:"replaces" doc:"The fingerprint of the present authority, as a confirmation that it is the one to go."`
	}
}

func (s *Server) replaceCA(_ context.Context, in *replaceCAInput) (*answer[Authority], error) {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if now := fingerprint(s.cfg.CA()); !strings.EqualFold(in.Body.Replaces, now) {
		return nil, problem(http.StatusConflict, "That is not the present authority's fingerprint, which is %s: another may have been made in the meantime. Nothing was changed.", now)
	}
	if s.cfg.ReplaceCA == nil {
		return nil, problem(http.StatusNotImplemented, "This Millpond cannot replace its authority while it runs. Stop it, and run millpond ca --regenerate.")
	}
	kept, err := s.cfg.ReplaceCA()
	if err != nil {
		return nil, problem(http.StatusInternalServerError, "The authority was not replaced: %v.", err)
	}
	made := s.authority()
	made.Kept = kept
	s.log.Info("a new certificate authority is in force", "fingerprint", made.Fingerprint, "kept", kept)
	return answerWith(made, nil)
}

// caForm is one form of the certificate: what a platform takes.
type caForm struct {
	name        string // as ?form= has it
	ending      string // of the file
	mediaType   string
	disposition string
	write       func(*x509.Certificate) []byte
}

// caForms lists them; the first is what a caller gets who asks for none.
var caForms = []caForm{
	{"pem", "pem", "application/x-pem-file", "attachment", pemOf},
	{"der", "crt", "application/x-x509-ca-cert", "attachment", derOf}, // for Android, which installs from a file, and Windows
	{"cer", "cer", "application/x-x509-ca-cert", "inline", derOf},     // for Firefox, which offers to import what it does not keep as a file
	// iOS takes a profile that it is shown, and puts a download among the files.
	{"mobileconfig", "mobileconfig", "application/x-apple-aspen-config", "inline", profileOf},
}

func caFormNamed(name string) (caForm, bool) {
	if name == "" {
		return caForms[0], true
	}
	i := slices.IndexFunc(caForms, func(f caForm) bool { return f.name == name })
	if i < 0 {
		return caForm{}, false
	}
	return caForms[i], true
}

func (f caForm) serve(w http.ResponseWriter, ca *x509.Certificate) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Disposition", fmt.Sprintf(`%s; filename="millpond-ca.%s"`, f.disposition, f.ending))
	_, _ = w.Write(f.write(ca))
}

func (s *Server) serveCA(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("form")
	form, ok := caFormNamed(name)
	if !ok {
		writeProblem(w, problem(http.StatusBadRequest, "There is no form %q. Ask for pem, der, cer or mobileconfig.", name))
		return
	}
	form.serve(w, s.cfg.CA())
}

func derOf(ca *x509.Certificate) []byte { return ca.Raw }

func pemOf(ca *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
}

// profileOf returns an Apple configuration profile that installs the certificate: the payload com.apple.security.root of Apple's device management reference.
// Its identifiers are made of the certificate, so that installing it again replaces it.
func profileOf(ca *x509.Certificate) []byte {
	sum := sha256.Sum256(ca.Raw)
	var out bytes.Buffer
	_ = profile.Execute(&out, struct{ Name, Content, ID, Profile, Root string }{
		ca.Subject.CommonName, base64.StdEncoding.EncodeToString(ca.Raw), fmt.Sprintf("%x", sum[:8]), uuidOf(sum[:16]), uuidOf(sum[16:]),
	}) // writing to memory does not fail
	return out.Bytes()
}

// uuidOf returns the 16 bytes as a UUID of version 8, whose content is its maker's affair. RFC 9562, section 5.8.
func uuidOf(b []byte) string {
	u := [16]byte(b)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%X-%X-%X-%X-%X", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

var profile = template.Must(template.New("profile").Funcs(template.FuncMap{"xml": escapeXML}).Parse(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>PayloadContent</key>
	<array>
		<dict>
			<key>PayloadCertificateFileName</key>
			<string>millpond-ca.cer</string>
			<key>PayloadContent</key>
			<data>{{.Content}}</data>
			<key>PayloadDescription</key>
			<string>The authority with which Millpond reads the HTTPS traffic of this device while its proxy is set.</string>
			<key>PayloadDisplayName</key>
			<string>{{xml .Name}}</string>
			<key>PayloadIdentifier</key>
			<string>internal.millpond.ca.{{.ID}}.root</string>
			<key>PayloadType</key>
			<string>com.apple.security.root</string>
			<key>PayloadUUID</key>
			<string>{{.Root}}</string>
			<key>PayloadVersion</key>
			<integer>1</integer>
		</dict>
	</array>
	<key>PayloadDisplayName</key>
	<string>{{xml .Name}}</string>
	<key>PayloadIdentifier</key>
	<string>internal.millpond.ca.{{.ID}}</string>
	<key>PayloadOrganization</key>
	<string>Millpond</string>
	<key>PayloadRemovalDisallowed</key>
	<false/>
	<key>PayloadType</key>
	<string>Configuration</string>
	<key>PayloadUUID</key>
	<string>{{.Profile}}</string>
	<key>PayloadVersion</key>
	<integer>1</integer>
</dict>
</plist>
`))

func escapeXML(s string) (string, error) {
	var out bytes.Buffer
	err := xml.EscapeText(&out, []byte(s))
	return out.String(), err
}
