package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"millpond/settings"
	"millpond/storage"
)

// resumeLimit bounds the TLS sessions with upstream servers that are kept for resumption, a few KB each with their certificates.
const resumeLimit = 256

// errLoop is the reason for a dial that would have reached this process itself.
var errLoop = errors.New("the address is Millpond's own")

// errWantsCertificate is the reason for a handshake that upstream ended after it asked for a client certificate and got none.
var errWantsCertificate = errors.New("upstream wants a client certificate")

// dial connects to an authority, host:port, with TLS where the scheme is https; then one of the protocols is negotiated (ALPN).
// Its errors are *upstreamError.
func (p *Proxy) dial(ctx context.Context, scheme, authority string, protocols ...string) (*upstreamConn, error) {
	times := storage.Setup{Connect: time.Now()}
	ctx = noteLookUp(ctx, &times)
	via := p.rules().UpstreamProxy(authority)
	nc, err := p.reach(ctx, via, authority)
	if err != nil {
		var explained *upstreamError
		if errors.As(err, &explained) {
			return nil, explained
		}
		return nil, explainDial(authority, err)
	}
	times.Connected = time.Now()
	up := newUpstream(nc, nc.RemoteAddr().String(), times, nil)
	up.asked, up.via = authority, via
	if scheme != "https" {
		return up, nil
	}
	host, _, _ := splitAuthority(authority) // dialContext took it
	secured, err := p.secure(ctx, up, host, host, protocols)
	if err != nil {
		up.Close()
		return nil, explainTLS(authority, err)
	}
	return secured, nil
}

// noteLookUp returns a context for a dial that notes when the name was looked up.
func noteLookUp(ctx context.Context, times *storage.Setup) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSDone: func(httptrace.DNSDoneInfo) { times.Resolved = time.Now() },
	})
}

// dialContext connects over TCP, but never to ourselves. It has the shape that http.Transport wants.
// Keepalive finds a peer that has vanished: the dialer's default, a probe after 15 s of silence and nine until it is given up.
func (p *Proxy) dialContext(ctx context.Context, network, authority string) (net.Conn, error) {
	host, port, err := splitAuthority(authority)
	if err != nil {
		return nil, err
	}
	looped := false
	d := net.Dialer{
		Timeout: p.cfg.Limits.DialTime,
		// Control sees each address that a name resolved to, just before it is connected to. Nothing earlier can be trusted:
		// a name may resolve differently the next time.
		Control: func(_, address string, _ syscall.RawConn) error {
			if p.isOwn(address) {
				looped = true
				return errLoop
			}
			return nil
		},
	}
	for _, address := range addressesOf(host) {
		c, failed := d.DialContext(ctx, network, net.JoinHostPort(address, port))
		if failed == nil {
			return c, nil
		}
		if err == nil {
			err = failed
		}
	}
	if looped { // the dialer reports its first error, which may be another address's
		return nil, fmt.Errorf("dial %s: %w", authority, errLoop)
	}
	return nil, err
}

// addressesOf returns what to dial for a host: the host itself, which the dialer looks up; but names below localhost are this machine's, and no resolver
// need know them. RFC 6761, section 6.3.
func addressesOf(host string) []string {
	if settings.InLocalhost(host) {
		return []string{"127.0.0.1", "::1"}
	}
	return []string{host}
}

func (p *Proxy) isOwn(address string) bool {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	return p.ownListener(target) || p.cfg.Own != nil && p.cfg.Own(target)
}

// splitAuthority returns the host, as it goes on the wire and without brackets, and the port of host:port.
func splitAuthority(authority string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(authority)
	if err != nil {
		return "", "", err
	}
	zone := ""
	if ip, err := netip.ParseAddr(host); err == nil {
		zone = ip.Zone()
	}
	if host, err = asciiHost(host); err != nil {
		return "", "", err
	}
	if zone != "" {
		host += "%" + zone
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return host, port, nil
}

// secure does the TLS handshake with upstream on a connection that is as yet plain, and returns the connection over it. sni is the name to ask for, empty for none;
// an IP address is not sent (RFC 6066, section 3). The certificate must be for name. An error leaves the connection unusable.
func (p *Proxy) secure(ctx context.Context, up *upstreamConn, sni, name string, protocols []string) (*upstreamConn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.DialTime)
	defer cancel()
	info := &storage.TLS{ServerName: sni}
	asked := false
	ahead := up.r
	if ahead.Buffered() == 0 { // TLS brings a buffer of its own: this one would be held for nothing as long as the connection
		ahead = bufio.NewReaderSize(up.Conn, 0)
	}
	rules := p.rules()
	ours := anyOf(rules.ClientCert, name, up.asked)
	config := &tls.Config{
		ServerName:         sni,
		NextProtos:         protocols,
		ClientSessionCache: p.resume,
		// Verification is VerifyConnection's, where its failure can be noted instead. It also sees resumed sessions.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			err := p.verifyUpstream(name, state)
			if err != nil && (p.cfg.InsecureUpstream || anyOf(rules.Insecure, name, up.asked)) {
				info.UpstreamError = explainCertificate(err)
				return nil
			}
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			if ours == nil {
				return new(tls.Certificate), nil // none; many servers only ask
			}
			return ours, nil
		},
	}
	if ours != nil {
		config.ClientSessionCache = nil // a resumed session is that of the certificate it began with, which may have been replaced
	}
	oldest := anyOf(rules.MinTLS, name, up.asked)
	if oldest != 0 {
		speakOld(config, oldest)
	}
	if ours != nil || oldest != 0 { // servers that ask for it are old, or ask for a certificate late. Each handshake is verified like the first
		config.Renegotiation = tls.RenegotiateFreelyAsClient
	}
	tc := tls.Client(&bufferedConn{Conn: up.Conn, r: ahead}, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		if asked && ours == nil && alertOf(err) != "" {
			err = fmt.Errorf("%w: %w", errWantsCertificate, err)
		}
		return nil, err
	}
	state := tc.ConnectionState()
	info.ALPN = state.NegotiatedProtocol
	info.Chain = p.chain(state.PeerCertificates)
	info.UpstreamVersion, info.UpstreamCipher = tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite)
	times := up.dialed
	times.Secured = time.Now()
	secured := newUpstream(tc, up.addr, times, info)
	secured.asked, secured.via = up.asked, up.via
	return secured, nil
}

// speakOld has a handshake use every version from oldest on. What is older than TLS 1.2 also wants cipher suites that are not safe.
func speakOld(c *tls.Config, oldest uint16) {
	c.MinVersion = oldest
	if oldest >= tls.VersionTLS12 {
		return
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		c.CipherSuites = append(c.CipherSuites, suite.ID)
	}
}

// chain keeps certificates for sessions.
func (p *Proxy) chain(certificates []*x509.Certificate) *storage.Chain {
	der := make([][]byte, len(certificates))
	for i, c := range certificates {
		der[i] = c.Raw
	}
	return p.cfg.Store.Chain(der)
}

func (p *Proxy) verifyUpstream(name string, state tls.ConnectionState) error {
	options := x509.VerifyOptions{DNSName: name, Roots: p.cfg.UpstreamRoots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}
