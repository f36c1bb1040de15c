package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millpond/settings"
	"millpond/storage"
)

const (
	clientReadSize   = 4 << 10  // what is read ahead of a client: the next requests' first bytes
	upstreamReadSize = 16 << 10 // one read takes a small response whole
)

// client is an accepted connection: what stays the same while a conn is wrapped by a tunnel and by TLS.
type client struct {
	addr   string
	raw    net.Conn
	cancel context.CancelFunc // of everything done for it
	idle   atomic.Bool        // between two exchanges: nothing is lost by closing it

	reverse *Reverse       // where a listener in reverse mode leads; nil for the proxy's
	ahead   *upstreamConn  // to there, made during the client's handshake; nil: none
	refused *upstreamError // why that one could not be made, where the client speaks HTTP/2 alone

	once  sync.Once
	moved *http.Transport // see transport
}

// close ends the connection and everything done for it.
func (c *client) close() {
	c.cancel()
	c.raw.Close()
	c.once.Do(func() {}) // no transport is made any more
	if c.moved != nil {
		c.moved.CloseIdleConnections()
	}
}

// conn is a client's connection, perhaps inside a tunnel and TLS, with what was read ahead of it.
type conn struct {
	net.Conn               // writes; closing
	r        *bufio.Reader // reads
	client   string        // the client's address, host:port
	under    *client
	reads    deadline
	writes   deadline
}

func newConn(nc net.Conn, under *client) *conn {
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, clientReadSize), client: under.addr, under: under}
	c.reads.set, c.writes.set = nc.SetReadDeadline, nc.SetWriteDeadline
	return c
}

// over returns a conn that speaks through nc, which is layered over c: TLS, say. What c has read ahead is nc's to read.
func (c *conn) over(nc net.Conn) *conn { return newConn(nc, c.under) }

// bare returns c without what wraps it: reads give what was read ahead first.
func (c *conn) bare() net.Conn { return &bufferedConn{Conn: c.Conn, r: c.r} }

// bufferedConn is a net.Conn that reads through a buffer. NetConn gives what is below, as tls.Conn's does.
type bufferedConn struct {
	net.Conn
	r   *bufio.Reader
	eof bool // read to the connection's own end
}

// Read empties the buffer and then reads past it: what reads here, TLS, brings a buffer of its own.
func (b *bufferedConn) Read(p []byte) (n int, err error) {
	if b.r.Buffered() == 0 {
		n, err = b.Conn.Read(p)
	} else {
		n, err = b.r.Read(p)
	}
	b.eof = b.eof || err == io.EOF
	return n, err
}

func (b *bufferedConn) NetConn() net.Conn { return b.Conn }

// upstreamConn is a connection to upstream. It belongs to one client connection.
type upstreamConn struct {
	net.Conn
	r      *bufio.Reader
	addr   string // the address dialled, host:port, resolved
	asked  string // the authority that was asked for
	used   bool   // it has served an exchange
	dialed storage.Setup
	tls    *storage.TLS // nil without TLS
	writes deadline
	watch  *watch      // of its idle times; made when first needed
	ended  atomic.Bool // seen to be closed by upstream while idle

	via      *settings.UpstreamProxy // the proxy between; nil: none
	absolute bool                    // requests go to via in absolute form
}

// newUpstream makes an upstreamConn of a connection that stands.
func newUpstream(nc net.Conn, addr string, dialed storage.Setup, tls *storage.TLS) *upstreamConn {
	u := &upstreamConn{Conn: nc, r: bufio.NewReaderSize(nc, upstreamReadSize), addr: addr, dialed: dialed, tls: tls}
	u.writes.set = nc.SetWriteDeadline
	return u
}

// deadline is a connection's read or write deadline that moves seldom: moving one costs as much as a small write's bookkeeping, so a limit may
// come up to an eighth late. It is used by one goroutine at a time.
type deadline struct {
	set func(time.Time) error
	at  time.Time
}

// within makes sure that the deadline is between 1 and 9/8 of limit from now.
func (d *deadline) within(limit time.Duration) {
	now := time.Now()
	if left := d.at.Sub(now); left >= limit && left <= limit+limit/8 {
		return
	}
	d.at = now.Add(limit + limit/8)
	d.set(d.at)
}

// exactly sets the deadline to limit from now.
func (d *deadline) exactly(limit time.Duration) {
	d.at = time.Now().Add(limit)
	d.set(d.at)
}

// clear removes the deadline.
func (d *deadline) clear() {
	if !d.at.IsZero() {
		d.at = time.Time{}
		d.set(d.at)
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// netConner is what a layer over a connection offers to reach the one below: tls.Conn does, and bufferedConn.
type netConner interface{ NetConn() net.Conn }

// bottom returns the connection under every layer of c.
func bottom(c net.Conn) net.Conn {
	for {
		switch layer := c.(type) {
		case *conn:
			c = layer.Conn
		case *upstreamConn:
			c = layer.Conn
		case netConner:
			c = layer.NetConn()
		default:
			return c
		}
	}
}

// speaksTLS reports whether what is read from c comes in TLS records.
func speaksTLS(c net.Conn) bool {
	_, ok := c.(*tls.Conn)
	return ok
}

// withoutNotify reports whether TLS, which was read to its end, ended without the close_notify that tells an end from a cut (RFC 8446, section 6.1).
// crypto/tls calls both io.EOF; but only without the alert did it read to the end of the connection below.
func withoutNotify(c net.Conn) bool {
	tc, ok := c.(*tls.Conn)
	if !ok {
		return false
	}
	below, ok := tc.NetConn().(*bufferedConn)
	return ok && below.eof
}

// breakOff ends a connection so that the peer cannot take what it got for complete: no close_notify, and a reset where the system offers one.
func breakOff(c net.Conn) {
	b := bottom(c)
	if tcp, ok := b.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	b.Close()
}
