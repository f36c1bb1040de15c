package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// upstreamError says to people why upstream could not be used, with the status that a client gets for it.
type upstreamError struct {
	status int    // 400, 502, 504 or 508
	reason string // a clause, without a final full stop
	err    error
}

func (e *upstreamError) Error() string { return e.reason }
func (e *upstreamError) Unwrap() error { return e.err }

// explainDial turns an error of dialContext into an *upstreamError.
func explainDial(authority string, err error) *upstreamError {
	status, why := http.StatusBadGateway, ""
	var dns *net.DNSError
	var addr *net.AddrError
	switch {
	case errors.Is(err, errLoop):
		return &upstreamError{http.StatusLoopDetected, fmt.Sprintf("cannot connect to %s: the address is Millpond's own, and the connection would loop", authority), err}
	case errors.Is(err, context.Canceled):
		why = "the client left before the connection stood"
	case errors.As(err, &dns) && dns.IsNotFound:
		why = fmt.Sprintf("unknown host: no address is known for %s", dns.Name)
	case errors.As(err, &dns) && dns.IsTimeout:
		status, why = http.StatusGatewayTimeout, fmt.Sprintf("the name server did not answer for %s in time", dns.Name)
	case errors.As(err, &dns):
		why = fmt.Sprintf("the name server could not answer for %s: %s", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused: the host is there, but nothing listens on that port"
	case isTimeout(err):
		status, why = http.StatusGatewayTimeout, "timed out: nothing answers at that address"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		why = "there is no route to that address"
	case errors.Is(err, syscall.ECONNRESET):
		why = "the connection was reset"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		status, why = http.StatusServiceUnavailable, "this machine has too many open files"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		why = "this machine does not permit the connection"
	case !isOp(err) || errors.As(err, &addr):
		return &upstreamError{http.StatusBadRequest, fmt.Sprintf("%q is not a host and a port: %v", authority, err), err}
	default:
		why = innermost(err)
	}
	return &upstreamError{status, fmt.Sprintf("cannot connect to %s: %s", authority, why), err}
}

// explainTLS turns an error of the handshake with upstream into an *upstreamError.
func explainTLS(authority string, err error) *upstreamError {
	status, why := http.StatusBadGateway, ""
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch alert := alertOf(err); {
	case errors.Is(err, errWantsCertificate), alert == "certificate required":
		why = "it wants a certificate from the client, and Millpond has none to give: name one with --client-cert HOST=FILE"
	case errors.As(err, &cert):
		return &upstreamError{status, fmt.Sprintf("the certificate of %s is not valid: %s. Accept it for this host in the settings or with --insecure-host, or start Millpond with --upstream-ca if you trust who signed it",
			authority, explainCertificate(err)), err}
	case errors.As(err, &record):
		why = "it does not speak TLS on this port"
	case isTimeout(err):
		status, why = http.StatusGatewayTimeout, "it did not finish the handshake in time"
	case errors.Is(err, context.Canceled):
		why = "the client left before the handshake was done"
	case alert == "protocol version not supported", strings.Contains(err.Error(), "unsupported protocol version"):
		why = "no common version: Millpond speaks TLS 1.2 and 1.3; --min-tls HOST=1.0 speaks older ones too, for one host"
	case alert == "handshake failure", strings.Contains(err.Error(), "unconfigured cipher suite"):
		why = "no common version or cipher suite, or it knows no such name"
	case alert == "unrecognized name":
		why = "it has no certificate for the name that the client asked for"
	case alert == "no application protocol":
		why = "it speaks none of the protocols that the client offered (ALPN)"
	case alert != "":
		why = "it ended the handshake: " + alert
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		why = "it closed the connection during the handshake"
	default:
		why = innermost(err)
	}
	return &upstreamError{status, fmt.Sprintf("TLS with %s failed: %s", authority, why), err}
}

// explainCertificate says why a certificate does not verify.
func explainCertificate(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		roots   x509.SystemRootsError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if now := time.Now(); invalid.Cert != nil && now.Before(invalid.Cert.NotBefore) {
			return fmt.Sprintf("it is valid from %s only (this machine's clock says %s)", invalid.Cert.NotBefore.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
		}
		return fmt.Sprintf("it expired on %s", invalid.Cert.NotAfter.UTC().Format(time.DateOnly))
	case errors.As(err, &name):
		return fmt.Sprintf("it is for %s, not for %s", namesOf(name.Certificate), name.Host)
	case errors.As(err, &unknown) && unknown.Cert != nil && unknown.Cert.CheckSignatureFrom(unknown.Cert) == nil, isSelfSigned(err):
		return "it is self-signed"
	case errors.As(err, &unknown):
		return fmt.Sprintf("it is signed by an unknown authority (%s)", unknown.Cert.Issuer)
	case errors.As(err, &roots):
		return "the system's roots could not be read: " + roots.Error()
	}
	return innermost(err)
}

// isSelfSigned also knows a certificate that is no authority's and so did not sign itself by x509's rules.
func isSelfSigned(err error) bool {
	var v *tls.CertificateVerificationError
	if !errors.As(err, &v) || len(v.UnverifiedCertificates) == 0 {
		return false
	}
	c := v.UnverifiedCertificates[0]
	return string(c.RawSubject) == string(c.RawIssuer) && c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// namesOf lists the first few of what a certificate is for.
func namesOf(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// alertOf returns the text of a TLS alert that the peer sent, or "". crypto/tls has no type for it outside QUIC.
func alertOf(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return ""
	}
	return alertText(op.Err)
}

func alertText(alert error) string { return strings.TrimPrefix(alert.Error(), "tls: ") }

func isTimeout(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

func isOp(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// innermost returns the text of the error that the others wrap: the outer ones repeat addresses.
func innermost(err error) string {
	for {
		under := errors.Unwrap(err)
		if under == nil {
			return err.Error()
		}
		err = under
	}
}
