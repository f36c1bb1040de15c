package proxy

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/martian/v3/mitm"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/net/idna"
	"golang.org/x/sync/singleflight"
)

const (
	// leafValidity is how far a leaf's validity reaches on each side of now, which is how mitm counts it: 196 days in all. Browsers refuse leaves of
	// more than 200 days (CA/Browser Forum ballot SC-081, from March 2026), and the past half serves devices whose clock is behind.
	leafValidity = 98 * 24 * time.Hour

	// leafLimit bounds the leaves kept, 6 KB each. A day's browsing meets some hundreds of names; one made again costs 0.4 ms.
	leafLimit = 1000
)

func init() {
	// mitm draws serial numbers below this. Its own default yields 21 octets half of the time, where RFC 5280, section 4.1.2.2, allows 20.
	mitm.MaxSerialNumber = new(big.Int).SetBytes(bytes.Repeat([]byte{0xff}, 19))
}

// leaves issues the certificates that clients get, one for each name, and keeps the last used.
//
// The authority is martian's mitm.Config. Its leaves share an RSA key, with which a handshake takes 2.4 ms of CPU instead of 1.0 ms, and which it does not let
// one choose. So each of its leaves is signed once more, as it is but for an ECDSA key; mitm's own remains for clients that speak RSA alone.
type leaves struct {
	ca     *x509.Certificate
	caKey  crypto.Signer
	key    *ecdsa.PrivateKey // of every ECDSA leaf, for this process's life
	kept   *lru.Cache[string, []tls.Certificate]
	flight singleflight.Group // one issue at a time for each name

	mu        sync.Mutex
	authority *mitm.Config
	issued    int // by this authority
}

func newLeaves(ca *x509.Certificate, caKey crypto.Signer) (*leaves, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of leaves: %w", err)
	}
	kept, err := lru.New[string, []tls.Certificate](leafLimit)
	if err != nil {
		return nil, fmt.Errorf("make the cache of leaves: %w", err)
	}
	return &leaves{ca: ca, caKey: caKey, key: key, kept: kept}, nil
}

// get returns the leaves for a DNS name or an IP address, the preferred first, as tls.Config.Certificates takes them.
func (l *leaves) get(name string) ([]tls.Certificate, error) {
	name, err := asciiHost(name)
	if err != nil {
		return nil, err
	}
	if leaf, ok := l.kept.Get(name); ok && time.Now().Before(leaf[0].Leaf.NotAfter) {
		return leaf, nil
	}
	made, err, _ := l.flight.Do(name, func() (any, error) {
		leaf, err := l.issue(name)
		if err != nil {
			return nil, fmt.Errorf("issue a certificate for %s: %w", name, err)
		}
		l.kept.Add(name, leaf)
		return leaf, nil
	})
	if err != nil {
		return nil, err
	}
	return made.([]tls.Certificate), nil
}

func (l *leaves) issue(name string) ([]tls.Certificate, error) {
	authority, err := l.currentAuthority()
	if err != nil {
		return nil, err
	}
	ofRSA, err := authority.TLSForHost(name).GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return nil, err
	}
	template := *ofRSA.Leaf
	template.SubjectKeyId = nil                       // names the RSA key
	template.KeyUsage = x509.KeyUsageDigitalSignature // ECDSA encrypts no keys
	if len(template.Subject.CommonName) > 64 {        // RFC 5280, appendix A.1; the name is in the SAN
		template.Subject.CommonName = ""
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, l.ca, l.key.Public(), l.caKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	ofECDSA := tls.Certificate{Certificate: [][]byte{der, l.ca.Raw}, PrivateKey: l.key, Leaf: leaf}
	return []tls.Certificate{ofECDSA, *ofRSA}, nil
}

// currentAuthority returns the authority for one more leaf. It keeps every leaf it ever issued, so another takes its place after leafLimit of them
// (0.2 s, for its RSA key).
func (l *leaves) currentAuthority() (*mitm.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.authority == nil || l.issued >= leafLimit {
		authority, err := mitm.NewConfig(l.ca, l.caKey)
		if err != nil {
			return nil, fmt.Errorf("make an authority: %w", err)
		}
		authority.SetOrganization("Millpond")
		authority.SetValidity(leafValidity)
		l.authority, l.issued = authority, 0
	}
	l.issued++
	return l.authority, nil
}

// asciiHost returns a DNS name in lower case and as it goes on the wire (RFC 5891), without the root's dot; an IP address without brackets and zone.
func asciiHost(host string) (string, error) {
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.WithZone("").Unmap().String(), nil
	}
	ascii := true
	for i := range len(host) {
		if host[i] <= ' ' || host[i] == 0x7f {
			return "", fmt.Errorf("host name %q holds a space or control character", host)
		}
		ascii = ascii && host[i] < 0x80
	}
	if !ascii {
		if !utf8.ValidString(host) {
			return "", fmt.Errorf("host name %q is not UTF-8", host)
		}
		wire, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", fmt.Errorf("host name %q: %w", host, err)
		}
		host = wire
	}
	switch {
	case host == "":
		return "", errors.New("the host name is empty")
	case len(host) > 253:
		return "", fmt.Errorf("host name of %d characters; DNS allows 253", len(host))
	}
	return strings.ToLower(host), nil
}
