package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// harness is a proxy on a real listener, over a real store.
type harness struct {
	t     testing.TB
	p     *Proxy
	store *storage.Store
	addr  string // of the proxy
}

// startHarness starts a proxy that the test's end stops; then no goroutine may be left. cfg's Store and CA are made where they are nil.
func startHarness(t testing.TB, cfg Config) *harness {
	t.Helper()
	leaks := goroutines()
	var log bytes.Buffer
	var logLock sync.Mutex
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(lockedWriter{&logLock, &log}, nil))
	}
	if cfg.Store == nil {
		store, err := storage.OpenStore(storage.Config{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store = store
		t.Cleanup(func() {
			store.Close()
			if left := goroutinesLeft(leaks); left != "" {
				t.Errorf("goroutines were left behind:\n%s", left)
			}
		})
	}
	if cfg.CA == nil {
		ca, err := LoadCA(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		cfg.CA = ca
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := listenLocal(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		logLock.Lock()
		defer logLock.Unlock()
		if strings.Contains(log.String(), "serving a client panicked") || t.Failed() && log.Len() > 0 {
			t.Errorf("the proxy logged:\n%s", log.String())
		}
	})
	return &harness{t: t, p: p, store: cfg.Store, addr: l.Addr().String()}
}

// storeOnDisk opens a store on a disk that the test can stall. The test's end closes it, after the proxy that it is for.
func storeOnDisk(t *testing.T) (*storage.Store, *storagetest.Disk) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	dir, err := storage.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	disk := storagetest.NewDisk(dir)
	store, err := storage.OpenStore(storage.Config{Dir: path, Files: disk, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store, disk
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func listenLocal(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// goroutines returns the stacks of those that run now, by id.
func goroutines() map[string]string {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := make(map[string]string)
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		all[id] = stack
	}
	return all
}

// goroutinesLeft waits until none of this module's goroutines run that did not before, and returns those that do not end.
func goroutinesLeft(before map[string]string) (left string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left = ""
		for id, stack := range goroutines() {
			if _, ok := before[id]; !ok && strings.Contains(stack, "millpond/") && !strings.Contains(stack, "testing.tRunner(") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// rawOrigin is an origin whose test speaks each connection's bytes itself.
type rawOrigin struct {
	t     testing.TB
	addr  string
	conns chan *peerConn
}

// startOrigin starts an origin; accept takes its connections.
func startOrigin(t testing.TB) *rawOrigin {
	t.Helper()
	l := listenLocal(t)
	o := &rawOrigin{t: t, addr: l.Addr().String(), conns: make(chan *peerConn, 64)}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			o.conns <- newPeer(t, nc)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		for {
			select {
			case c := <-o.conns:
				c.Close()
			default:
				return
			}
		}
	})
	return o
}

// serveEach starts an origin that calls serve for each connection, and closes it after.
func serveEach(t testing.TB, serve func(c *peerConn)) (addr string) {
	t.Helper()
	l := listenLocal(t)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				c := newPeer(t, nc)
				serve(c)
				c.Close()
			})
		}
	}()
	return l.Addr().String()
}

// serveAnswer starts an origin that answers the first request of each connection so, and closes it.
func serveAnswer(t testing.TB, answer string) (addr string) {
	t.Helper()
	return serveEach(t, func(u *peerConn) {
		u.head()
		u.send(answer)
	})
}

// accept waits for the next connection to the origin.
func (o *rawOrigin) accept() *peerConn {
	o.t.Helper()
	select {
	case c := <-o.conns:
		o.t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(patience):
		o.t.Fatal("no connection came to the origin")
		return nil
	}
}

// peerConn is the test's end of a connection, with the patience of a test.
type peerConn struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func newPeer(t testing.TB, nc net.Conn) *peerConn {
	nc.SetDeadline(time.Now().Add(3 * patience))
	return &peerConn{Conn: nc, t: t, r: bufio.NewReader(nc)}
}

// dial connects a client to the proxy.
func (h *harness) dial() *peerConn {
	h.t.Helper()
	nc, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	c := newPeer(h.t, nc)
	h.t.Cleanup(func() { c.Close() })
	return c
}

// send writes bytes.
func (c *peerConn) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// head reads to the end of a head.
func (c *peerConn) head() string {
	c.t.Helper()
	raw, err := readHead(c.r, 1<<20)
	if err != nil {
		c.t.Fatalf("read a head: %v after %q", err, raw)
	}
	return string(raw)
}

// expect reads exactly the bytes of want.
func (c *peerConn) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != want {
		c.t.Fatalf("got %q, %v, want %q", got[:n], err, want)
	}
}

// rest reads to the end of the connection.
func (c *peerConn) rest() (string, error) {
	b, err := io.ReadAll(c.r)
	return string(b), err
}

// expectEnd waits for the connection's end, clean or by a reset, without further bytes.
func (c *peerConn) expectEnd() {
	c.t.Helper()
	rest, err := c.rest()
	if rest != "" || err != nil && timedOut(err) {
		c.t.Fatalf("got %q, %v, want the connection's end", rest, err)
	}
}

// session waits for the nth session (from 1) to end, and returns it.
func (h *harness) session(n uint64) storage.Session {
	h.t.Helper()
	return h.await(n, func(s storage.Session) bool { return s.State != storage.Open })
}

// await waits until the nth session is as ready wants it.
func (h *harness) await(n uint64, ready func(storage.Session) bool) storage.Session {
	h.t.Helper()
	var s storage.Session
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var ids []uint64
		h.store.Scan(0, 1<<62, func(r *storage.Row) bool {
			ids = append(ids, r.ID)
			return true
		})
		if uint64(len(ids)) < n {
			continue
		}
		var err error
		if s, err = h.store.Session(ids[n-1]); err != nil {
			h.t.Fatal(err)
		}
		if ready(s) {
			return s
		}
	}
	h.t.Fatalf("session %d did not come so far: %+v", n, s)
	return s
}

// sessions returns how many there are.
func (h *harness) sessions() (n int) {
	h.store.Scan(0, 1<<62, func(*storage.Row) bool { n++; return true })
	return n
}

// body returns a stored body whole.
func (h *harness) body(id uint64, side storage.Side) string {
	h.t.Helper()
	b, err := h.store.Body(id, side)
	if err != nil {
		s, _ := h.store.Session(id)
		h.t.Fatalf("open the %v body of session %d: %v; %s", side, id, err, s.Sides[side].Body.Missing)
	}
	defer b.Close()
	var out strings.Builder
	if _, err := io.Copy(&out, io.NewSectionReader(b, 0, b.Size())); err != nil {
		h.t.Fatal(err)
	}
	return out.String()
}

// expectBody compares a stored body with what passed.
func (h *harness) expectBody(s storage.Session, side storage.Side, want string) {
	h.t.Helper()
	got := h.body(s.ID, side)
	if got != want {
		h.t.Errorf("stored %v body: got %d bytes %s %.60q, want %d bytes %s %.60q", side, len(got), sum(got), got, len(want), sum(want), want)
	}
	if kept := s.Sides[side].Body; !kept.Complete || kept.Size != uint64(len(want)) {
		h.t.Errorf("stored %v body: complete %v, %d bytes, want complete, %d; %s", side, kept.Complete, kept.Size, len(want), kept.Missing)
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:4])
}

// pattern is n bytes, at most 16 MiB, that repeat at no power of two.
func pattern(n int) string { return patterned()[:n] }

var patterned = sync.OnceValue(func() string {
	var b strings.Builder
	for i := 0; b.Len() < 16<<20; i += 7919 {
		b.WriteString(strconv.Itoa(i))
		b.WriteString(" the quick brown fox jumps over the lazy dog and runs on through the wood\n")
	}
	return b.String()
})

// startGet starts a proxy, and a GET through it to an origin that has read the request's head.
func startGet(t testing.TB, cfg Config) (h *harness, c, up *peerConn) {
	t.Helper()
	h = startHarness(t, cfg)
	o := startOrigin(t)
	c = h.dial()
	c.send(get(o.addr, "/"))
	up = o.accept()
	up.head()
	return h, c, up
}

// get is a GET in absolute form.
func get(addr, path string) string {
	return "GET http://" + addr + path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"
}
