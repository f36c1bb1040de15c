package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http"
)

func (s *Server) getCertificates(_ context.Context, in *idInput) (*answer[CertificateList], error) {
	list, err := s.certificates(in.ID)
	return answerWith(list, err)
}

func (s *Server) getSharedCertificates(ctx context.Context, in *sharedSessionInput) (*answer[CertificateList], error) {
	share := shareOf(ctx)
	if id, err := parseID(in.ID); err != nil || id != share.Session {
		return nil, noShare()
	}
	list, err := s.certificates(share.Session)
	return answerWith(list, err)
}

// certificates returns what a session's upstream server showed, an empty list where that was nothing, or a Problem.
func (s *Server) certificates(id uint64) (CertificateList, error) {
	list := CertificateList{Certificates: []Certificate{}}
	if _, err := s.store.Row(id); err != nil {
		return list, s.failed("read the session", err)
	}
	der, err := s.store.Certificates(id)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return list, s.failed("read the certificates", err)
	}
	parsed, err := x509.ParseCertificates(der)
	if err != nil {
		return list, problem(http.StatusUnprocessableEntity, "The certificates cannot be read: %v.", err)
	}
	for _, c := range parsed {
		list.Certificates = append(list.Certificates, certificateOf(c))
	}
	return list, nil
}

func certificateOf(c *x509.Certificate) Certificate {
	sum := sha256.Sum256(c.Raw)
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, c.EmailAddresses...)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return Certificate{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		Names: names, SHA256: hex.EncodeToString(sum[:]),
		PEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})),
	}
}
