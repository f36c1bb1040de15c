// Package proxy takes client connections, relays them to upstream, and records what passes.
package proxy

// This file is the outline its builders work against. Each declaration moves to the file that builds it.

import (
	"millpond/storage"
)

// origin is where the inside of an intercepted CONNECT leads.
type origin struct {
	scheme    string        // http or https
	authority string        // the CONNECT target, host:port
	up        *upstreamConn // the one connection of this tunnel
	tls       *storage.TLS  // of this tunnel; nil without TLS
}

// The seams between the files:
//
//	proxy.go conn.go listen.go  Config, Proxy; client and upstream connections; accept; the first bytes decide   (relay builder)
//	connect.go    serveConnect: dial, answer, see who speaks first; then serveHTTP1, serveHTTP2 or tunnel        (TLS builder)
//	tls.go        the mirrored handshake: ClientHello, upstream handshake, the client's                           (TLS builder)
//	tunnel.go     tunnel: both byte streams relayed raw and recorded                                              (TLS builder)
//	dial.go       dial: resolve, refuse loops, connect, TLS, verify                                               (TLS builder)
//	ca.go leaf.go the CA, leaves issued through martian/v3/mitm behind an LRU                                     (TLS builder)
//	head.go framing.go relay.go exchange.go pipeline.go capture.go upgrade.go                                     (relay builder)
//	h2/           the frame relay, with hooks; http2.go: serveHTTP2, which joins it to exchange and pipeline      (HTTP/2 builder)
