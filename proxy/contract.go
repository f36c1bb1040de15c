// Package proxy takes client connections, relays them to upstream, and records what passes.
package proxy

// This file is the outline its builders work against. Each declaration moves to the file that builds it.

import (
	"bufio"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	martian "github.com/google/martian/v3"

	"millpond/storage"
)

// Config says what a Proxy is made of. Store and CA are needed; the zero value of every other field is usable.
type Config struct {
	Store *storage.Store
	CA    *CA

	InsecureUpstream bool           // accept any upstream certificate, and say so on the session
	UpstreamRoots    *x509.CertPool // nil: the system's

	// RequestModifier and ResponseModifier see every exchange, before capture does. Nil: none.
	RequestModifier  martian.RequestModifier
	ResponseModifier martian.ResponseModifier

	// Own reports whether an address is one of this process's own listeners (the dashboard's included), so that loops are refused.
	// The proxy's own listeners are known without it.
	Own func(netip.AddrPort) bool

	// Setup answers requests that are meant for the proxy itself (origin-form, or to millpond.internal). Nil: a short text.
	Setup http.Handler

	Limits Limits
	Logger *slog.Logger
}

// Limits bound what one client can make the proxy hold. A zero field is the default named beside it.
type Limits struct {
	Head      int           // bytes of one message head, 256 KiB; trailers and all 1xx heads of a message alike
	HeadTime  time.Duration // for a client to finish a head it has begun, 1 min
	IdleTime  time.Duration // between exchanges on a client connection, 5 min
	StallTime time.Duration // for a write that the peer does not accept, 30 min
	DialTime  time.Duration // for TCP and TLS to upstream, 30 s each
	Sniff     time.Duration // for an undecided prefix inside a CONNECT, 300 ms
}

// Proxy is the capture proxy.
type Proxy struct{}

// conn is a client's connection, perhaps inside a tunnel and TLS, with what was read ahead of it.
type conn struct {
	net.Conn               // writes; closing
	r        *bufio.Reader // reads
	client   string        // the client's address, host:port
}

// upstreamConn is a connection to upstream. It belongs to one client connection.
type upstreamConn struct {
	net.Conn
	r      *bufio.Reader
	addr   string // the address dialled, host:port, resolved
	used   bool   // it has served an exchange
	dialed dialTimes
	tls    *storage.TLS // nil without TLS
}

type dialTimes struct{ connect, connected, secured time.Time }

// origin is where the inside of an intercepted CONNECT leads.
type origin struct {
	scheme    string        // http or https
	authority string        // the CONNECT target, host:port
	up        *upstreamConn // the one connection of this tunnel
}

// The seams between the files:
//
//	listen.go     accept; the first bytes decide; serveHTTP1 for plain requests, serveConnect for CONNECT        (relay builder)
//	connect.go    serveConnect: dial, answer, see who speaks first; then serveHTTP1, serveHTTP2 or tunnel        (TLS builder)
//	tls.go        the mirrored handshake: ClientHello, upstream handshake, the client's                           (TLS builder)
//	tunnel.go     tunnel: both byte streams relayed raw and recorded                                              (TLS builder)
//	dial.go       dial: resolve, refuse loops, connect, TLS, verify                                               (TLS builder)
//	ca.go leaf.go the CA, leaves issued through martian/v3/mitm behind an LRU                                     (TLS builder)
//	head.go framing.go relay.go exchange.go pipeline.go capture.go upgrade.go                                     (relay builder)
//	h2/           the frame relay, with hooks; http2.go: serveHTTP2, which joins it to exchange and pipeline      (HTTP/2 builder)

func (p *Proxy) serveHTTP1(ctx context.Context, c *conn, o *origin) { panic("outline") } // o nil: not inside a tunnel
func (p *Proxy) serveConnect(ctx context.Context, c *conn, head []byte, authority string) {
	panic("outline")
}
func (p *Proxy) serveHTTP2(ctx context.Context, c *conn, o *origin) { panic("outline") }

// tunnel relays both directions unread until both have ended, and records them. why says what made it a tunnel.
func (p *Proxy) tunnel(ctx context.Context, c *conn, up *upstreamConn, s storage.Session) {
	panic("outline")
}

// New returns a Proxy that serves nothing yet.
func New(cfg Config) (*Proxy, error) { panic("outline") }

// Serve accepts clients on l until Shutdown or an error of the listener. It may run for several listeners.
func (p *Proxy) Serve(l net.Listener) error { panic("outline") }

// Shutdown stops accepting, lets running exchanges end until ctx is done, then closes what is left.
func (p *Proxy) Shutdown(ctx context.Context) error { panic("outline") }
