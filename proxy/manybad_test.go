package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millpond/storage"
)

// TestManyBadInputsLeaveNothing does each bad thing a hundred times to one proxy, and more often where memory has grown: each is answered, or its connection ended, and has a row that says
// why; afterwards memory, goroutines and descriptors are what they were.
func TestManyBadInputsLeaveNothing(t *testing.T) {
	const (
		times = 100
		leak  = 8 << 10 // bytes for each input, and half of it is none: the index of the sessions, and blocks that are in use for a while
	)
	closed := listenLocal(t)
	closed.Close()
	echo := serveEach(t, func(u *peerConn) { io.Copy(io.Discard, u) })
	twoLengths := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabcd")
	pair := upstreamCA().issue(nil, "example.com")
	good := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}}, nil)
	bad := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{newAuthority().issue(nil, "example.com")}}, nil)
	trusting := x509.NewCertPool()
	trusting.AddCert(testCA().Certificate())

	post := "POST http://" + echo + "/ HTTP/1.1\r\nHost: " + echo + "\r\n"
	type badInput struct {
		name, in string
		leaves   bool                             // after in
		do       func(p *testProxy, i int) string // nil: in is sent
		answer   string                           // is contained in what the client gets; empty: it gets nothing
		why      string                           // is contained in the session's error
		state    storage.State
		flag     string
	}
	refused := func(name, in, why string) badInput {
		return badInput{name: name, in: in, answer: "HTTP/1.1 400 ", why: why, state: storage.Failed}
	}
	ambiguous := func(name, in, why string) badInput {
		b := refused(name, in, why)
		b.flag = storage.FlagAmbiguousFraming
		return b
	}
	for _, tt := range []badInput{
		refused("garbage", "\x00\x01\x02 hello\r\n\r\n", "not an HTTP request"),
		{name: "garbage without an end", in: "\x80\x81\x82", leaves: true, why: "in the middle of a request's head", state: storage.ClientAborted},
		{name: "a long line", in: "GET http://a/ HTTP/1.1\r\nX: " + strings.Repeat("x", 300<<10), answer: "HTTP/1.1 431 ", why: "larger than 256 KiB", state: storage.Failed},
		ambiguous("both framings", post+"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "both Transfer-Encoding and Content-Length"),
		ambiguous("lengths that differ", post+"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "differ"),
		ambiguous("a length that is none", post+"Content-Length: +3\r\n\r\nabc", "not a length"),
		ambiguous("coding that does not end in chunked", post+"Transfer-Encoding: gzip\r\n\r\n", "does not end in chunked"),
		ambiguous("chunked twice", post+"Transfer-Encoding: chunked, chunked\r\n\r\n", "does not end in chunked"),
		ambiguous("coding in HTTP/1.0", strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1)+"Transfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 request"),
		ambiguous("broken chunks", post+"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "line feed without carriage return"),
		refused("space before the colon", post+"Content-Length : 3\r\n\r\nabc", "space stands before the colon"),
		refused("bare CR", post+"X: a\rContent-Length: 3\r\n\r\nabc", "carriage return"),
		refused("folded framing", post+"Transfer-Encoding:\r\n chunked\r\n\r\n", "folded"),
		refused("NUL", post+"X: a\x00b\r\n\r\n", "NUL"),
		refused("control byte in a name", post+"Content-Length\x0b: 3\r\n\r\nabc", "control byte"),
		{name: "lengths of a response that differ", in: get(twoLengths, "/"), answer: "\r\n\r\nabcd", state: storage.Done, flag: storage.FlagAmbiguousFraming},
		{name: "closed port", in: "CONNECT " + closed.Addr().String() + " HTTP/1.1\r\n\r\n", answer: "HTTP/1.1 502 ", why: "refused", state: storage.Failed},
		{name: "unknown host", in: "CONNECT no-such-host.invalid:443 HTTP/1.1\r\n\r\n", answer: "HTTP/1.1 502 ", why: "no-such-host.invalid", state: storage.Failed},
		{
			name: "bad upstream certificate", answer: "HTTP/1.1 502 ", why: "signed by an unknown authority", state: storage.Failed,
			do: func(p *testProxy, _ int) string {
				return p.getThrough(bad, &tls.Config{ServerName: "example.com", RootCAs: trusting})
			},
		},
		{
			name: "client that rejects ours", why: "the client rejected Millpond's certificate", state: storage.Failed,
			do: func(p *testProxy, _ int) string {
				return p.getThrough(good, &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool()})
			},
		},
		{
			name: "own address", answer: "HTTP/1.1 508 ", why: "Millpond's own", state: storage.Failed,
			do: func(p *testProxy, i int) string {
				return p.tell("CONNECT "+ownNames(p.addr)[i%10]+" HTTP/1.1\r\n\r\n", false)
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startProxy(t, Config{})
			if tt.do == nil {
				tt.do = func(p *testProxy, _ int) string { return p.tell(tt.in, tt.leaves) }
			}
			p.manyTimes(t, 20, tt.do, tt.answer) // what is made once is made now
			before := holdings()
			// What pools and the store have at hand comes and goes by some MiB: a leak is what grows on with each input.
			n := 0
			for n == 0 || n < 10*times && holdings().heap > before.heap+uint64(leak*n/2) {
				p.manyTimes(t, times, tt.do, tt.answer)
				n += times
			}
			checkHoldings(t, before, uint64(leak*n/2))
			p.store.Scan(0, 1<<62, func(r *storage.Row) bool {
				if r.State != tt.state || !strings.Contains(r.Error, tt.why) || (tt.why == "") != (r.Error == "") || tt.flag != "" && !strings.Contains(strings.Join(r.Flags, " "), tt.flag) {
					t.Errorf("session %d is %v, %q, %q; want %v with %q and %q", r.ID, r.State, r.Error, r.Flags, tt.state, tt.why, tt.flag)
				}
				return !t.Failed()
			})
		})
	}
}

// ownNames are ten names of a listener on 127.0.0.1.
func ownNames(addr string) (names []string) {
	_, port, _ := net.SplitHostPort(addr)
	for _, host := range []string{
		"127.0.0.1", "localhost", "LOCALHOST.", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "[0::0]",
	} {
		names = append(names, host+":"+port)
	}
	return names
}

// tell sends in, ends the sending if it leaves, and returns all that comes back.
func (p *testProxy) tell(in string, leaves bool) string {
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	go func() {
		io.WriteString(c, in)
		if leaves {
			closeWrite(c)
		}
	}()
	got, _ := io.ReadAll(c)
	return string(got)
}

// getThrough asks for a page over TLS, and returns all that comes back inside.
func (p *testProxy) getThrough(authority string, config *tls.Config) string {
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", authority)
	if raw, err := readHead(bufio.NewReader(c), 1<<10); err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 200 ") {
		return string(raw)
	}
	inside := tls.Client(c, config)
	if inside.Handshake() != nil {
		return ""
	}
	io.WriteString(inside, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	got, _ := io.ReadAll(inside)
	return string(got)
}

// manyTimes does it n times, some at once, and waits until as many more sessions have ended.
func (p *testProxy) manyTimes(t *testing.T, n int, do func(p *testProxy, i int) string, want string) {
	t.Helper()
	p.seen += n
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if got := do(p, int(i)); want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("got %.200q, want %q", got, want)
					return
				}
			}
		})
	}
	workers.Wait()
	ended := func() (n int) {
		p.store.Scan(0, 1<<62, func(r *storage.Row) bool {
			if r.State != storage.Open {
				n++
			}
			return true
		})
		return n
	}
	for deadline := time.Now().Add(patience); ended() < p.seen && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := ended(); got != p.seen {
		t.Fatalf("%d sessions have ended, want %d", got, p.seen)
	}
}

// held is what a process holds.
type held struct {
	goroutines, files int
	heap, stacks      uint64 // bytes
}

func holdings() held {
	runtime.GC()
	runtime.GC() // what the first one gives back from pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // where there is none, there are no files
	return held{runtime.NumGoroutine(), len(files), m.HeapAlloc, m.StackInuse}
}

// checkHoldings waits until no more is held than before, but for slack bytes that pools or the index of the sessions since may keep.
func checkHoldings(t *testing.T, before held, slack uint64) {
	t.Helper()
	const (
		files  = 4       // of the store's, which opens them when it needs them
		stacks = 2 << 20 // bytes: they shrink when they are used again
	)
	now := holdings()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); now = holdings() {
		if now.goroutines <= before.goroutines && now.files <= before.files+files && now.heap <= before.heap+slack && now.stacks <= before.stacks+stacks {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("held before: %+v; now: %+v", before, now)
}
