package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"millpond/storage"
)

// newServerTLS returns the configuration of every handshake with a client inside a tunnel, for one authority. It is shared because the keys of session
// tickets belong to it: what differs by connection is in the mirror.
func newServerTLS() *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return hello.Conn.(*mirror).configFor(hello)
		},
	}
}

// mirror is a client's connection during its handshake. Between the client's hello and our answer it does the handshake with upstream,
// asking for what the client asked, so that the client is offered what upstream chose and nothing else.
type mirror struct {
	bufferedConn
	p         *Proxy
	issuer    *issuer
	authority string // the CONNECT target
	sni       string // the name that the client sent; empty for none
	ja4       string // of the client's hello
	hello     bool   // the client's hello was read
	up        *upstreamConn
	refused   *upstreamError // why there is no TLS with upstream
	done      bool           // the handshake is over
	last      []byte         // the last bytes read in it

	to *client // of a handshake with the proxy itself

	mayPass bool   // there are hosts that pass unread
	unread  []byte // with mayPass, what was read of the client's hello
	passing bool   // upstream is one of those: nothing is answered
}

// plainAlertLen is the length of a TLS record that holds an alert which is not encrypted: its type, version, length, level and description. RFC 8446, sections 5.1 and 6.
const plainAlertLen = 7

// Read keeps the last bytes of the handshake, for plainAlert.
func (m *mirror) Read(p []byte) (int, error) {
	n, err := m.bufferedConn.Read(p)
	if !m.done {
		m.last = append(m.last, p[max(0, n-plainAlertLen):n]...)
		m.last = m.last[max(0, len(m.last)-plainAlertLen):]
	}
	if m.mayPass && !m.hello {
		m.unread = append(m.unread, p[:n]...) // crypto/tls takes no hello beyond 64 KiB
	}
	return n, err
}

// Write drops what crypto/tls would say to a client that is none of its.
func (m *mirror) Write(p []byte) (int, error) {
	if m.passing {
		return len(p), nil
	}
	return m.bufferedConn.Write(p)
}

// errPasses ends a handshake whose hello names a host that passes unread.
var errPasses = errors.New("passes unread")

// passed is the client's connection, unread again.
func (m *mirror) passed(c *conn) *conn {
	ahead, _ := c.r.Peek(c.r.Buffered())
	all := slices.Concat(m.unread, ahead)
	r := bufio.NewReaderSize(bytes.NewReader(all), len(all))
	r.Peek(len(all))
	return c.over(&bufferedConn{Conn: c.Conn, r: r})
}

// plainAlert returns the text of an alert that was the last thing the client sent, or "". OpenSSL, as a client of TLS 1.3, rejects a certificate before it has begun
// to encrypt, and crypto/tls takes the alert for a record that it cannot decrypt.
func (m *mirror) plainAlert() string {
	if l := m.last; len(l) == plainAlertLen && l[0] == 21 && l[1] == 3 && l[3] == 0 && l[4] == 2 {
		return alertText(tls.AlertError(l[6]))
	}
	return ""
}

// configFor never fails for upstream's sake: where the client would take an HTTP answer, it gets our certificate, so that the reason can be told inside.
func (m *mirror) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	m.hello, m.sni, m.ja4 = true, hello.ServerName, ja4(hello)
	m.up.dialed.ClientHello = time.Now()
	name := m.sni
	if name == "" {
		name, _, _ = splitAuthority(m.authority) // it was dialled, so it splits
	}
	if m.mayPass && anyOf(m.p.rules().Passthrough, name, m.authority) {
		m.passing = true
		return nil, errPasses
	}
	m.unread = nil
	leaves, err := m.issuer.leaves.get(name)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: leaves}
	if oldest := anyOf(m.p.rules().MinTLS, name, m.authority); oldest != 0 && oldest < tls.VersionTLS12 {
		speakOld(config, oldest) // the clients of such a host may be as old
	}
	ctx, cancel := context.WithCancel(hello.Context())
	defer cancel()
	client := startPeek(m.Conn, m.r, cancel) // a client that leaves ends the handshake with upstream
	secured, err := m.p.secure(ctx, m.up, m.sni, name, hello.SupportedProtos)
	client.stop()
	if err == nil {
		m.up = secured
		if secured.tls.ALPN != "" {
			config.NextProtos = []string{secured.tls.ALPN}
		}
		return config, nil
	}
	m.refused = explainTLS(m.authority, err)
	if m.sni == "" {
		m.refused.reason += " (the client sent no server name, so upstream had to choose a certificate without one)"
	}
	m.up.Close() // its handshake is over; nobody waits for us to answer the client
	switch {
	case len(hello.SupportedProtos) == 0:
	case slices.Contains(hello.SupportedProtos, "http/1.1"):
		config.NextProtos = []string{"http/1.1"}
	case slices.Contains(hello.SupportedProtos, "http/1.0"):
		config.NextProtos = []string{"http/1.0"}
	case slices.Contains(hello.SupportedProtos, "h2"):
		config.NextProtos = []string{"h2"}
	default:
		return nil, m.refused
	}
	return config, nil
}

// intercept takes TLS off a tunnel whose client has begun a handshake, and serves what is inside. s describes the CONNECT: it becomes a row when that fails.
func (p *Proxy) intercept(ctx context.Context, c *conn, up *upstreamConn, s storage.Session) {
	m := &mirror{bufferedConn: bufferedConn{Conn: c.Conn, r: c.r}, p: p, issuer: p.cfg.CA.current(), authority: s.Host, up: up}
	m.mayPass = p.rules().AnyPassthrough()
	tc := tls.Server(m, m.issuer.inside)
	handshake, cancel := context.WithTimeout(ctx, p.cfg.Limits.HeadTime+p.cfg.Limits.DialTime)
	err := tc.HandshakeContext(handshake)
	cancel()
	m.done = true
	if m.passing {
		s.SetFlag(storage.FlagPassthrough)
		p.tunnel(ctx, m.passed(c), up, s)
		return
	}
	up = m.up
	defer up.Close()

	s.Protocol, s.TLS = "TLS", &storage.TLS{ServerName: m.sni, JA4: m.ja4}
	s.Timing.Setup = &up.dialed
	switch {
	case ctx.Err() != nil:
		p.record(s, storage.Interrupted, "Millpond was stopped during the TLS handshake")
		return
	case m.refused != nil:
		if errors.Is(m.refused, context.Canceled) {
			p.record(s, storage.ClientAborted, m.refused.reason)
			return
		}
		var unverified *tls.CertificateVerificationError
		if errors.As(m.refused, &unverified) {
			s.TLS.Chain = p.chain(unverified.UnverifiedCertificates)
		}
		if err == nil {
			p.answerInside(ctx, c.over(tc), tc, s, m.refused)
			return
		}
		s.Status = m.refused.status
		p.record(s, storage.Failed, m.refused.reason)
		return
	case err != nil:
		state, why := p.explainClient(ctx, c.client, s.Host, m, err)
		p.record(s, state, why)
		return
	}

	state := tc.ConnectionState()
	info := up.tls
	up.dialed.ClientSecured = time.Now()
	info.JA4 = m.ja4
	info.ClientVersion, info.ClientCipher = tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite)
	s.TLS = info
	s.Timing.Setup = &up.dialed
	if info.UpstreamError != "" {
		s.SetFlag(storage.FlagInsecure)
	}
	p.serveIntercepted(ctx, c.over(tc), up, s)
}

// serveIntercepted serves what is inside TLS. A connection that nobody used is no row: browsers open some ahead of need.
func (p *Proxy) serveIntercepted(ctx context.Context, c *conn, up *upstreamConn, s storage.Session) {
	secured := time.Now()
	var f first
	switch up.tls.ALPN {
	case "http/1.1", "http/1.0", "":
		f = waitFirst(c, startPeek(c, c.r, nil), up)
	case "h2": // both sides begin at once, and the client must (RFC 9113, section 3.4)
		c.reads.within(p.cfg.Limits.HeadTime)
		_, err := c.r.Peek(1)
		c.reads.clear()
		f.end, f.err = err != nil, err
	default:
		p.tunnel(ctx, c, up, s)
		return
	}
	if f.who == clientFirst && !f.end {
		p.accepted.note(c.client, s.Host)
	}
	switch {
	case ctx.Err() != nil:
	case f.who == clientLeft || f.who == clientFirst && f.end:
		// A client may reject the certificate after we think the handshake done, and say so. One that leaves at once, from a host that it never asked
		// anything, has most likely rejected it too; later, it had opened a connection ahead of need.
		if alert := alertOf(f.err); alert != "" {
			p.record(s, storage.Failed, p.explainAlert(c.client, alert))
		} else if time.Since(secured) < p.leavesAtOnce && !p.takes(ctx, c.client, s.Host) {
			p.record(s, storage.Failed, p.explainLeft(c.client))
		}
	case f.who == upstreamLeft && alertOf(f.err) != "":
		// In TLS 1.3 a server may end the handshake after we think it done: for want of a client certificate, say.
		refused := explainTLS(s.Host, f.err)
		if tc, ok := c.Conn.(*tls.Conn); ok {
			p.answerInside(ctx, c, tc, s, refused)
			return
		}
		s.Status = refused.status
		p.record(s, storage.Failed, refused.reason)
	case f.who == upstreamLeft || f.who == upstreamFirst && f.end:
	case up.tls.ALPN == "h2":
		p.serveHTTP2(ctx, c, &origin{scheme: "https", authority: s.Host, up: up, tls: up.tls})
	default:
		p.serveFirst(ctx, c, up, s, f)
	}
}
