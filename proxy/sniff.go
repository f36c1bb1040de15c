package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"millpond/storage"
)

// inside is what a client speaks inside a tunnel.
type inside uint8

const (
	undecided inside = iota // more bytes are needed
	insideTLS
	insideHTTP1
	insideHTTP2
	insideOther
)

// http2Preface begins every HTTP/2 connection, to the end of its first line. RFC 9113, section 3.4.
const http2Preface = "PRI * HTTP/2.0\r\n"

// methodLimit is how long a method may be; the longest registered one has 16 characters.
const methodLimit = 32

// classify judges the first bytes that a client sent. A method alone does not make HTTP: an SSH client's "SSH-2.0-OpenSSH_9.2 Debian" would pass for one.
// So a target must follow it that HTTP servers are sent, a path, "*" or an absolute URL; CONNECT inside a tunnel is passed on unread.
func classify(b []byte) inside {
	if b[0] == 0x16 { // a TLS record of a handshake, and the major version. RFC 8446, section 5.1
		switch {
		case len(b) < 2:
			return undecided
		case b[1] == 3:
			return insideTLS
		}
		return insideOther
	}
	if n := min(len(b), len(http2Preface)); string(b[:n]) == http2Preface[:n] {
		if n < len(http2Preface) {
			return undecided
		}
		return insideHTTP2
	}
	method := 0
	for method < len(b) && isTokenByte(b[method]) {
		method++
	}
	switch {
	case method > methodLimit || method == 0:
		return insideOther
	case method == len(b):
		return undecided
	case b[method] != ' ':
		return insideOther
	}
	target := b[method+1:]
	for _, begin := range []string{"/", "* ", "http:", "https:"} {
		n := min(len(target), len(begin))
		switch {
		case string(bytes.ToLower(target[:n])) != begin[:n]:
		case n < len(begin):
			return undecided
		default:
			return insideHTTP1
		}
	}
	return insideOther
}

// isTokenByte reports whether b may stand in a token. RFC 9110, section 5.6.2.
func isTokenByte(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), b) >= 0
}

// sniff judges what the client speaks, of which a first byte is there. It waits for more bytes, up to limit in all.
func sniff(c *conn, limit time.Duration) inside {
	c.SetReadDeadline(time.Now().Add(limit))
	defer c.SetReadDeadline(time.Time{})
	for {
		b, _ := c.r.Peek(c.r.Buffered())
		if kind := classify(b); kind != undecided {
			return kind
		}
		if _, err := c.r.Peek(len(b) + 1); err != nil {
			return insideOther
		}
	}
}

// peek waits for a connection's next byte, or its end, in a goroutine of its own. It leaves the byte in the reader.
type peek struct {
	conn net.Conn
	done chan struct{} // closed when a byte is there, or err is set
	err  error
}

// startPeek begins to wait. left is called if the connection ends or breaks; it may be nil.
func startPeek(c net.Conn, r *bufio.Reader, left func()) *peek {
	k := &peek{conn: c, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		_, k.err = r.Peek(1)
		if k.err != nil && left != nil {
			left()
		}
	}()
	return k
}

// stop ends the waiting. The reader is the caller's again, with what came meanwhile.
func (k *peek) stop() {
	select {
	case <-k.done:
		return
	default:
	}
	k.conn.SetReadDeadline(time.Unix(1, 0))
	<-k.done
	k.conn.SetReadDeadline(time.Time{})
}

// first tells what happened first on a connection whose two sides may both begin.
type first struct {
	who speaker
	end bool  // it sent nothing and ended its sending
	err error // of the connection that broke
}

type speaker uint8

const (
	clientFirst speaker = iota
	upstreamFirst
	clientLeft   // its connection broke
	upstreamLeft // its connection broke
)

// waitFirst waits, for as long as it takes, until one side sends or ends. client is a peek at c that has begun.
func waitFirst(c *conn, client *peek, up *upstreamConn) first {
	upstream := startPeek(up.Conn, up.r, nil)
	defer upstream.stop()
	defer client.stop()
	c.under.idle.Store(true)
	defer c.under.idle.Store(false)
	judge := func(k *peek, spoke, left speaker) first {
		switch {
		case k.err == nil:
			return first{who: spoke}
		case errors.Is(k.err, io.EOF):
			return first{who: spoke, end: true}
		}
		return first{who: left, err: k.err}
	}
	select {
	case <-client.done:
		return judge(client, clientFirst, clientLeft)
	case <-upstream.done:
		return judge(upstream, upstreamFirst, upstreamLeft)
	}
}

// serveFirst serves what is spoken between a client and upstream, judging by who began and with what. Upstream beginning means that it is no HTTP, and no TLS.
func (p *Proxy) serveFirst(ctx context.Context, c *conn, up *upstreamConn, s storage.Session, f first) {
	kind := insideOther
	if f.who == clientFirst && !f.end {
		kind = sniff(c, p.cfg.Limits.Sniff)
	}
	o := &origin{scheme: "http", authority: s.Host, up: up, tls: up.tls}
	if up.tls != nil {
		o.scheme = "https"
	}
	switch {
	case kind == insideTLS && up.tls == nil:
		p.intercept(ctx, c, up, s)
	case kind == insideHTTP1:
		p.serveHTTP1(ctx, c, o)
	case kind == insideHTTP2:
		p.serveHTTP2(ctx, c, o)
	default:
		p.tunnel(ctx, c, up, s)
	}
}
