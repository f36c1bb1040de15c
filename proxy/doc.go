// Package proxy takes client connections, relays them to upstream, and records what passes.
//
// Where a connection goes, and in which file:
//
//	listen.go            it is accepted, and its first bytes are read
//	http1.go relay.go    HTTP/1: one exchange after the other, both directions at once; heads in head.go, bodies in framing.go and chunked.go
//	connect.go sniff.go  CONNECT: upstream is dialled, and who sends first, and what, decides what the tunnel holds
//	tls.go               TLS in it: the handshake with upstream inside the client's; certificates from leaf.go, signed by ca.go
//	http2.go h2/         HTTP/2: frames relayed, with hooks
//	tunnel.go            anything else: both byte streams as they are
//	exchange.go          each exchange on its way through the Martian pipeline (pipeline.go, view.go) into its recording (capture.go)
//	dial.go own.go       upstream connections, and never to ourselves; explain.go says in words why one failed
package proxy
