package wire

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// world is what all cases share: one program, and one origin that speaks everything.
type world struct {
	program *harness.Program
	origin  *harness.Origin
	roots   *x509.CertPool  // of the program
	cert    tls.Certificate // for origins, by an authority that the program trusts
}

func startWorld(t *testing.T, args ...string) *world {
	t.Helper()
	p, origin := harness.StartBoth(t, args...)
	roots, err := harness.ReadPool(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := origin.Authority.Server("origin.test")
	if err != nil {
		t.Fatal(err)
	}
	return &world{p, origin, roots, cert}
}

// run is one case over one protocol.
type run struct {
	*testing.T
	*world
	protocol harness.Protocol
	path     string // no other run has it
}

// secure reports whether the protocol is inside TLS.
func (r *run) secure() bool { return r.protocol != harness.HTTP }

// alpn is what the protocol is called in TLS. RFC 7301, section 6.
func (r *run) alpn() string {
	if r.protocol == harness.HTTP2 {
		return "h2"
	}
	return "http/1.1"
}

// conn is the test's end of a connection.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func newConn(c net.Conn) *conn {
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	return &conn{c, bufio.NewReader(c)}
}

// send writes bytes; that the other side does not take them is found by whoever reads.
func (c *conn) send(s string) { _, _ = io.WriteString(c.Conn, s) }

// expect reads exactly the bytes of want.
func (c *conn) expect(want string) error {
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != want {
		return fmt.Errorf("got %q, %w; want %q", clip(string(got[:n])), orNone(err), clip(want))
	}
	return nil
}

// reset ends the connection by a reset, without TLS's goodbye.
func (c *conn) reset() error {
	below := c.Conn
	if secure, ok := below.(*tls.Conn); ok {
		below = secure.NetConn()
	}
	if err := below.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	return below.Close()
}

// head reads up to and with an empty line.
func (c *conn) head() (string, error) {
	var head strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

// expectEnd waits for the connection's end, without further bytes.
func (c *conn) expectEnd() error {
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("got %q, %w; want the connection's end", clip(string(rest)), orNone(err))
	}
	return nil
}

var errNone = errors.New("and no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func clip(s string) string {
	if len(s) > 600 {
		return s[:300] + "…" + s[len(s)-300:]
	}
	return s
}

// listen starts an origin that calls serve with each connection, after a TLS handshake for all protocols but HTTP, and closes it after.
// What serve returns is an error of the test.
func (r *run) listen(serve func(*conn) error) (addr string) {
	r.Helper()
	return r.listenAt("127.0.0.1:0", serve)
}

func (r *run) listenAt(where string, serve func(*conn) error) (addr string) {
	r.Helper()
	l, err := net.Listen("tcp", where)
	if err != nil {
		r.Fatal(err)
	}
	if r.secure() {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{r.cert}, NextProtos: []string{r.alpn()}})
	}
	r.accept(l, serve)
	return l.Addr().String()
}

// accept serves each connection to l. At the test's end l and its connections are closed.
func (r *run) accept(l net.Listener, serve func(*conn) error) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	r.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wait.Wait()
	})
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wait.Go(func() {
				defer c.Close()
				if secure, ok := c.(*tls.Conn); ok && secure.Handshake() != nil {
					return
				}
				if err := serve(newConn(c)); err != nil {
					r.Errorf("origin: %v", err)
				}
			})
		}
	})
}

// dial connects to an origin through the program: over HTTP to the proxy itself, otherwise by TLS inside a tunnel.
func (r *run) dial(addr string) *conn {
	r.Helper()
	var c net.Conn
	var err error
	if r.secure() {
		c, err = harness.DialTLS(r.program.Proxy, addr, &tls.Config{RootCAs: r.roots, NextProtos: []string{r.alpn()}})
	} else {
		c, err = net.Dial("tcp", r.program.Proxy)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	return newConn(c)
}

// target is how a request names a path at an origin: by its URL to a proxy, by the path inside a tunnel.
func (r *run) target(addr, path string) string {
	if r.secure() {
		return path
	}
	return "http://" + addr + path
}

// session waits until the newest session of the run's path has ended, and returns it.
func (r *run) session() harness.Session {
	r.Helper()
	return r.program.Await(r, r.path, harness.Ended)
}

// must ends the test with an error.
func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// expectDone checks that a session ended as it should.
func (r *run) expectDone(s harness.Session, status int) {
	r.Helper()
	if s.State != "done" || s.Status != status || s.Error != "" {
		r.Errorf("session is %s with status %d (%s), want done with %d", s.State, s.Status, s.Error, status)
	}
}

// expectBody compares a stored body, which must be complete, with what passed.
func (r *run) expectBody(s harness.Session, side, want string) {
	r.Helper()
	kept := s.Response.Body
	if side == "request" {
		kept = s.Request.Body
	}
	if got := r.body(s.ID, side); got != want || !kept.Complete {
		r.Errorf("kept %s body: %d bytes %q, complete %v; want %d bytes %q", side, len(got), clip(got), kept.Complete, len(want), clip(want))
	}
}

// body returns a stored body whole.
func (r *run) body(id uint64, side string) string {
	r.Helper()
	res, err := r.program.Call(r.Context(), "GET", harness.BodyURL(id, side), "Accept-Encoding", "identity")
	r.must(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	r.must(err)
	return string(text)
}

// latin1 writes each byte as one character, as the API tells heads.
func latin1(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

func (r *run) expectFlag(s harness.Session, flag string, want bool) {
	r.Helper()
	if slices.Contains(s.Flags, flag) != want {
		r.Errorf("flags are %q; want %s: %v", s.Flags, flag, want)
	}
}
