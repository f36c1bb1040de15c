// Package settings holds what can be set about the ways out to upstream, and about how much is kept: by flags and a file at the start, and by the API while Millpond runs.
package settings

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"millpond/storage"
)

// MaxEntries bounds each list: every connection to upstream looks through them.
const MaxEntries = 1000

// Out is what is set about the ways out, and Keep, in the form in which it is written down. Its zero value sets nothing.
type Out struct {
	UpstreamProxy string       `json:"upstream_proxy,omitempty"` // its URL, with credentials
	NoProxy       []string     `json:"no_proxy,omitempty"`
	Passthrough   []string     `json:"passthrough,omitempty"`
	InsecureHosts []string     `json:"insecure_hosts,omitempty"`
	MinTLS        []MinTLS     `json:"min_tls,omitempty"`
	ClientCerts   []ClientCert `json:"client_certs,omitempty"`
	Keep
}

// MinTLS lets hosts speak an older version of TLS than 1.2, or keeps them to a newer one.
type MinTLS struct {
	Host    string `json:"host" doc:"A host pattern."`
	Version string `json:"version" enum:"1.0,1.1,1.2,1.3" doc:"The oldest version that is spoken with it."`
}

// ParseMinTLS reads HOST=VERSION.
func ParseMinTLS(text string) (MinTLS, error) {
	host, version, ok := strings.Cut(text, "=")
	if !ok {
		return MinTLS{}, fmt.Errorf("%q is not HOST=VERSION, as old.example=1.0", text)
	}
	m := MinTLS{Host: host, Version: version}
	_, err := compileMinTLS([]MinTLS{m})
	return m, err
}

// ClientCert is the certificate that hosts are given that ask for one: in files, which are read again when they change, or as PEM.
type ClientCert struct {
	Host     string `json:"host"`
	CertFile string `json:"-"`
	KeyFile  string `json:"-"`             // empty: the key is in CertFile
	PEM      string `json:"pem,omitempty"` // certificate, further ones of its chain, and key
}

// ParseClientCert reads HOST=FILE, or HOST=CERT+KEY for two files.
func ParseClientCert(text string) (ClientCert, error) {
	host, files, ok := strings.Cut(text, "=")
	if !ok || files == "" {
		return ClientCert{}, fmt.Errorf("%q is not HOST=FILE, as api.example=client.pem", text)
	}
	c := ClientCert{Host: host}
	c.CertFile, c.KeyFile, _ = strings.Cut(files, "+")
	_, err := compileClientCerts([]ClientCert{c})
	return c, err
}

// Rules is what Out means, ready to be asked for each connection. It is not changed once made.
type Rules struct {
	proxy       *UpstreamProxy
	passthrough []Pattern
	insecure    []Pattern
	minTLS      []hostVersion
	certs       []*hostCert
	limits      storage.Limits
}

type hostVersion struct {
	Pattern
	version uint16
}

// Compile makes the rules of several Outs; what the first says of a host counts before what later ones do. Errors say which value is wrong, and why.
func Compile(outs ...Out) (*Rules, error) {
	var all Out
	for _, o := range outs {
		if all.UpstreamProxy == "" {
			all.UpstreamProxy = o.UpstreamProxy
		}
		all.Keep = all.Keep.under(o.Keep)
		all.NoProxy = append(all.NoProxy, o.NoProxy...)
		all.Passthrough = append(all.Passthrough, o.Passthrough...)
		all.InsecureHosts = append(all.InsecureHosts, o.InsecureHosts...)
		all.MinTLS = append(all.MinTLS, o.MinTLS...)
		all.ClientCerts = append(all.ClientCerts, o.ClientCerts...)
	}
	r := &Rules{}
	var err error
	if r.limits, err = all.Keep.limits(); err != nil {
		return nil, fmt.Errorf("how much is kept: %w", err)
	}
	if r.passthrough, err = parsePatterns(all.Passthrough); err != nil {
		return nil, fmt.Errorf("passthrough: %w", err)
	}
	if r.insecure, err = parsePatterns(all.InsecureHosts); err != nil {
		return nil, fmt.Errorf("insecure hosts: %w", err)
	}
	if r.minTLS, err = compileMinTLS(all.MinTLS); err != nil {
		return nil, fmt.Errorf("minimum TLS: %w", err)
	}
	if r.certs, err = compileClientCerts(all.ClientCerts); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	if all.UpstreamProxy != "" {
		if r.proxy, err = ParseUpstreamProxy(all.UpstreamProxy, all.NoProxy); err != nil {
			return nil, fmt.Errorf("upstream proxy: %w", err)
		}
	} else if _, err := parseNoProxy(all.NoProxy); err != nil {
		return nil, err
	}
	return r, nil
}

var versions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func compileMinTLS(list []MinTLS) ([]hostVersion, error) {
	if len(list) > MaxEntries {
		return nil, fmt.Errorf("%d hosts; %d are the most", len(list), MaxEntries)
	}
	out := make([]hostVersion, len(list))
	for i, m := range list {
		p, err := ParsePattern(m.Host)
		if err != nil {
			return nil, err
		}
		v, ok := versions[m.Version]
		if !ok {
			return nil, fmt.Errorf("%q is not a version of TLS: want 1.0, 1.1, 1.2 or 1.3", m.Version)
		}
		out[i] = hostVersion{p, v}
	}
	return out, nil
}

// Passthrough reports whether what goes to a host passes unread.
func (r *Rules) Passthrough(host, port string) bool { return matchAny(r.passthrough, host, port) }

// AnyPassthrough reports whether there is a host whose traffic passes unread.
func (r *Rules) AnyPassthrough() bool { return len(r.passthrough) > 0 }

// Insecure reports whether a host's certificate is accepted though it does not verify.
func (r *Rules) Insecure(host, port string) bool { return matchAny(r.insecure, host, port) }

// MinTLS returns the oldest version of TLS that is spoken with a host; 0 where none is set.
func (r *Rules) MinTLS(host, port string) uint16 {
	for _, m := range r.minTLS {
		if m.Match(host, port) {
			return m.version
		}
	}
	return 0
}

// ClientCert returns the certificate to give to a host that asks for one; nil for none.
func (r *Rules) ClientCert(host, port string) *tls.Certificate {
	for _, c := range r.certs {
		if c.Match(host, port) {
			cert, _ := c.current() // it was read once, and so there is one
			return cert
		}
	}
	return nil
}

// UpstreamProxy returns the proxy through which an authority, host:port, is reached; nil for none.
func (r *Rules) UpstreamProxy(authority string) *UpstreamProxy {
	if r.proxy == nil || !r.proxy.serves(authority) {
		return nil
	}
	return r.proxy
}

// errNoKey is a PEM file or text that lacks what is needed.
var errNoKey = errors.New("want a certificate and its private key, both PEM")
