package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"millpond/storage"
)

const (
	// acceptedLimit bounds what is known of clients that accepted our certificate, some 100 bytes each. A forgotten one costs a less precise sentence.
	acceptedLimit = 4000

	// leavesAtOnce is how soon after the TLS handshake a client that does not like the certificate is gone: some look at it only then, without another
	// round trip. GnuTLS programs (wget, git on Debian), Node over TLS 1.2 and Android's OkHttp with pins do so. Browsers keep surplus connections for longer.
	leavesAtOnce = 2 * time.Second

	// acceptedSoon is how long a client that left without a word may show by another connection that it takes our certificate for that host after all:
	// browsers open two, use the first that stands, and drop the other.
	acceptedSoon = 250 * time.Millisecond
)

// accepted knows which clients have sent something inside TLS with our certificate, which they do only once they took it: by their address, as
// programs on one device share its authorities, and by address and host. A program that checks no certificates counts too.
type accepted struct {
	seen *lru.Cache[string, struct{}]
}

func newAccepted() (accepted, error) {
	seen, err := lru.New[string, struct{}](acceptedLimit)
	if err != nil {
		return accepted{}, fmt.Errorf("make the list of clients that trust us: %w", err)
	}
	return accepted{seen}, nil
}

// note remembers that a client, host:port, took our certificate for a host.
func (a accepted) note(client, host string) {
	ip := withoutClientPort(client)
	a.seen.Add(ip, struct{}{})
	a.seen.Add(ip+" "+host, struct{}{})
}

// by reports whether some program at the client's address took a certificate of ours.
func (a accepted) by(client string) bool {
	_, ok := a.seen.Get(withoutClientPort(client))
	return ok
}

// of reports whether some program at the client's address took our certificate for the host.
func (a accepted) of(client, host string) bool {
	_, ok := a.seen.Get(withoutClientPort(client) + " " + host)
	return ok
}

// forget is for a new authority, which nobody has accepted.
func (a accepted) forget() { a.seen.Purge() }

func withoutClientPort(client string) string {
	ip, _, err := net.SplitHostPort(client)
	if err != nil {
		return client // not from a network
	}
	return ip
}

// alertMeanings tells what a client means by an alert in the handshake, or in place of its first bytes: RFC 8446, section 6.2, and what clients in use mean by it.
// The keys are crypto/tls's texts.
var alertMeanings = map[string]struct {
	name     string // as RFC 8446 and other programs write it
	rejects  bool   // it is about our certificate, and the authority may be missing
	stranger string // what it means from an address where nobody has taken our certificate
	known    string // and from one where somebody has; empty: the same
}{
	"unknown certificate authority": {
		name: "unknown_ca", rejects: true,
		stranger: "it does not know Millpond's certificate authority",
		known:    "it does not know Millpond's certificate authority, which another program at that address trusts: it brings a list of authorities of its own, as Firefox, Java, Node, Python and most containers do",
	},
	"unknown certificate": {
		name: "certificate_unknown", rejects: true,
		stranger: "the authority is most likely not installed (browsers, Java and Android say it so)",
		known:    "another program at that address trusts Millpond's authority: this one most likely accepts only certificates it knows (pinning), brings a list of authorities of its own, or is an Android app that does not trust what its user installed",
	},
	"bad certificate": {
		name: "bad_certificate", rejects: true,
		stranger: "the authority is most likely not installed (programs in Go say it so), or the program accepts only certificates it knows (pinning)",
		known:    "another program at that address trusts Millpond's authority: this one most likely accepts only certificates it knows (pinning)",
	},
	"certificate unobtainable":        {name: "certificate_unobtainable", rejects: true, stranger: "the authority is most likely not installed"},
	"bad certificate status response": {name: "bad_certificate_status_response", rejects: true, stranger: "it wants proof that the certificate was not revoked (OCSP stapling), and most likely accepts only certificates it knows (pinning)"},
	"bad certificate hash value":      {name: "bad_certificate_hash_value", rejects: true, stranger: "it accepts only certificates it knows (pinning)"},
	"access denied":                   {name: "access_denied", rejects: true, stranger: "a rule of its own forbids it, most likely that only certificates it knows are accepted (pinning)"},
	"unsupported certificate":         {name: "unsupported_certificate", stranger: "it does not support certificates of that kind"},
	"revoked certificate":             {name: "certificate_revoked", stranger: "it holds the certificate for revoked"},
	"expired certificate":             {name: "certificate_expired", stranger: "it holds the certificate for expired: the clock of the client or of this machine is wrong"},
	"error decrypting message":        {name: "decrypt_error", stranger: "a signature did not verify: it most likely has an older certificate authority of Millpond's under the same name; remove that one, and install the present one"},
}

// install is what to do about a client that does not trust us.
const install = "http://" + setupHost + "/, opened on the device, has the steps and tells whether it trusts the authority"

// explainAlert says what the client at that address, host:port, means by an alert.
func (p *Proxy) explainAlert(client, alert string) string {
	if m, ok := alertMeanings[alert]; ok {
		why := m.stranger
		if m.known != "" && p.accepted.by(client) {
			why = m.known
		}
		text := fmt.Sprintf("the client rejected Millpond's certificate (%s): %s", m.name, why)
		if m.rejects {
			text += "; " + install
		}
		return text
	}
	switch alert {
	case "protocol version not supported":
		return "the client ended the TLS handshake (protocol_version): it speaks no version that Millpond does, TLS 1.2 and 1.3"
	case "handshake failure", "insufficient security level":
		return "the client ended the TLS handshake (" + strings.ReplaceAll(strings.TrimSuffix(alert, " level"), " ", "_") + "): it accepts none of the ciphers, curves or signatures that Millpond offers"
	case "no application protocol":
		return "the client ended the TLS handshake (no_application_protocol): it does not accept the protocol that upstream chose"
	case "internal error":
		return "the client ended the TLS handshake (internal_error): an error of its own, perhaps while it checked Millpond's certificate; " + install
	case "user canceled", "close notify":
		return "the client gave up the TLS handshake (" + strings.ReplaceAll(alert, " ", "_") + ")"
	}
	return "the client ended the TLS handshake: " + alert
}

// takes reports whether some program at the client's address takes our certificate for the host, or shows so soon.
func (p *Proxy) takes(ctx context.Context, client, host string) bool {
	tick := time.NewTicker(acceptedSoon / 25)
	defer tick.Stop()
	for until := time.Now().Add(p.acceptedSoon); ; {
		if p.accepted.of(client, host) {
			return true
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return false
		}
		<-tick.C
	}
}

// explainLeft says why a client closed its connection without a word when it had our certificate, which it never took for that host.
func (p *Proxy) explainLeft(client string) string {
	const closed = "the client closed the connection when it had Millpond's certificate, without saying why: "
	if p.accepted.by(client) {
		return closed + "another program at that address trusts Millpond's authority, so this one most likely accepts only certificates it knows (pinning), or brings a list of authorities of its own, as Node does; " + install
	}
	return closed + "it most likely does not trust it (wget, git and Node end so), or accepts only certificates it knows (pinning); " + install
}

// explainClient says why the handshake with the client, about a host, failed, what to do about it, and which state that is for the session.
func (p *Proxy) explainClient(ctx context.Context, client, host string, m *mirror, err error) (storage.State, string) {
	if left(err) && m.hello && m.plainAlert() == "" && p.takes(ctx, client, host) {
		return storage.ClientAborted, "the client closed the connection in the TLS handshake; it takes Millpond's certificate for this host, so it most likely did not need the connection any more"
	}
	return storage.Failed, p.explainHandshake(client, m, err)
}

// left reports whether an error means that the other end closed the connection.
func left(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (p *Proxy) explainHandshake(client string, m *mirror, err error) string {
	var record tls.RecordHeaderError
	alert := alertOf(err)
	if alert == "" {
		alert = m.plainAlert()
	}
	if alert != "" {
		return p.explainAlert(client, alert)
	}
	switch {
	case isTimeout(err):
		return "the client did not finish the TLS handshake in time"
	case left(err):
		if m.hello {
			return p.explainLeft(client)
		}
		return "the client closed the connection during its TLS hello"
	case errors.As(err, &record):
		return "the client sent something that begins like TLS and is not"
	case strings.Contains(err.Error(), "unsupported versions"):
		return "no common version: Millpond speaks TLS 1.2 and 1.3, and the client only older ones; --min-tls HOST=1.0 speaks those too, for one host"
	case strings.Contains(err.Error(), "no cipher suite"), strings.Contains(err.Error(), "no supported elliptic curves"):
		return "no common cipher suite: the client offers none that is safe"
	}
	return "the TLS handshake with the client failed: " + innermost(err)
}
