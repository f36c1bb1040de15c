package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millpond/storage"
)

// ugly is one way to treat a connection badly. It gets a connection to the proxy and the address of an origin that is as bad.
type ugly struct {
	name string
	do   func(c net.Conn, addr string)
}

// uglyWays are what the clients do. Each ends with its connection closed, by whoever calls it.
var uglyWays = []ugly{
	{"opened and closed", func(c net.Conn, addr string) {}},
	{"reset at once", func(c net.Conn, addr string) { reset(c) }},
	{"half-closed at once", func(c net.Conn, addr string) { halfClose(c) }},
	{"closed in a request line", func(c net.Conn, addr string) { io.WriteString(c, "GET http://"+addr) }},
	{"reset in a head", func(c net.Conn, addr string) { io.WriteString(c, "GET http://"+addr+"/ HTTP/1.1\r\nHost: "); reset(c) }},
	{"half-closed after a head", func(c net.Conn, addr string) {
		io.WriteString(c, "GET http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
		halfClose(c)
	}},
	{"reset after a head", func(c net.Conn, addr string) {
		io.WriteString(c, "GET http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
		reset(c)
	}},
	{"reset while the response comes", func(c net.Conn, addr string) {
		io.WriteString(c, "GET http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
		some(c)
		reset(c)
	}},
	{"closed with the response unread", func(c net.Conn, addr string) {
		io.WriteString(c, "GET http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\n\r\nGET http://"+addr+"/ HTTP/1.1\r\n\r\n")
	}},
	{"closed in a body", func(c net.Conn, addr string) {
		io.WriteString(c, "POST http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\nContent-Length: 100000\r\n\r\nsome of it")
	}},
	{"reset in a chunk", func(c net.Conn, addr string) {
		io.WriteString(c, "POST http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nso")
		reset(c)
	}},
	{"half-closed in a body", func(c net.Conn, addr string) {
		io.WriteString(c, "POST http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\nContent-Length: 100000\r\n\r\nsome of it")
		halfClose(c)
	}},
	{"closed while a 100 is waited for", func(c net.Conn, addr string) {
		io.WriteString(c, "POST http://"+addr+"/ HTTP/1.1\r\nHost: "+addr+"\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
	}},
	{"closed in a CONNECT", func(c net.Conn, addr string) { io.WriteString(c, "CONNECT "+addr+" HT") }},
	{"reset after a CONNECT", func(c net.Conn, addr string) { io.WriteString(c, "CONNECT "+addr+" HTTP/1.1\r\n\r\n"); reset(c) }},
	{"closed in a fresh tunnel", func(c net.Conn, addr string) { uglyTunnel(c, addr) }},
	{"half-closed in a fresh tunnel", func(c net.Conn, addr string) { uglyTunnel(c, addr); halfClose(c) }},
	{"reset in a raw tunnel", func(c net.Conn, addr string) {
		uglyTunnel(c, addr)
		io.WriteString(c, "\x00raw")
		some(c)
		reset(c)
	}},
	{"half-closed in a raw tunnel", func(c net.Conn, addr string) {
		uglyTunnel(c, addr)
		io.WriteString(c, "\x00raw")
		halfClose(c)
		some(c)
	}},
	{"closed in a ClientHello", func(c net.Conn, addr string) { uglyTunnel(c, addr); io.WriteString(c, "\x16\x03\x01\x02\x00\x01\x00") }},
	{"reset in a TLS handshake", func(c net.Conn, addr string) {
		uglyTunnel(c, addr)
		tls.Client(&oneWrite{Conn: c}, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true}).Handshake()
		reset(c)
	}},
	{"closed in an HTTP/2 preface", func(c net.Conn, addr string) { uglyTunnel(c, addr); io.WriteString(c, http2.ClientPreface[:17]) }},
	{"reset after an HTTP/2 preface", func(c net.Conn, addr string) {
		uglyTunnel(c, addr)
		io.WriteString(c, http2.ClientPreface)
		http2.NewFramer(c, nil).WriteSettings()
		reset(c)
	}},
	{"half-closed in an HTTP/2 frame", func(c net.Conn, addr string) {
		uglyTunnel(c, addr)
		io.WriteString(c, http2.ClientPreface)
		fr := http2.NewFramer(c, nil)
		fr.WriteSettings()
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84, 0x86}, EndHeaders: true})
		io.WriteString(c, "\x00\x10\x00\x00\x00\x00\x00\x00\x01some")
		halfClose(c)
	}},
	{"closed in SOCKS", func(c net.Conn, addr string) { io.WriteString(c, "\x05\x01\x00\x05\x01") }},
	{"garbage", func(c net.Conn, addr string) { io.WriteString(c, "\x00\x01\x02\r\n\r\n"); some(c) }},
}

// uglyAnswers are what the origin does with a connection, whatever was sent. Each ends with it closed.
var uglyAnswers = []func(c net.Conn){
	func(c net.Conn) {},
	func(c net.Conn) { reset(c) },
	func(c net.Conn) { some(c); reset(c) },
	func(c net.Conn) { some(c); halfClose(c); io.Copy(io.Discard, c) },
	func(c net.Conn) { some(c); io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") },
	func(c net.Conn) {
		some(c)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
		reset(c)
	},
	func(c net.Conn) {
		some(c)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nso")
	},
	func(c net.Conn) { some(c); io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+pattern(50_000)) },
	func(c net.Conn) { some(c); io.WriteString(c, ok); io.Copy(io.Discard, c) },
	func(c net.Conn) { io.WriteString(c, "220 hello\r\n"); some(c) },
	func(c net.Conn) { some(c); io.WriteString(c, "\x16\x03\x03\x00\x7a\x02\x00"); reset(c) },
	func(c net.Conn) {
		some(c)
		io.WriteString(c, "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03")
		halfClose(c)
		some(c)
	},
	func(c net.Conn) {
		fr := http2.NewFramer(c, nil)
		fr.WriteSettings()
		some(c)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
		fr.WriteData(1, false, []byte("some"))
	},
}

// uglySecure are what clients speak once the TLS handshake is done, and how each is cut; one of each for each of the other.
var (
	uglySecure = []struct{ alpn, begin string }{
		{"http/1.1", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"},
		{"http/1.1", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nsome"},
		{"http/1.1", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"},
		{"h2", http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x03\x01\x04\x00\x00\x00\x01\x83\x84\x87"}, // SETTINGS, and a POST without its body
	}
	uglyCuts = []func(c net.Conn, tc *tls.Conn){
		func(_ net.Conn, tc *tls.Conn) { tc.Close() },
		func(c net.Conn, _ *tls.Conn) { c.Close() },
		func(c net.Conn, _ *tls.Conn) { reset(c) },
		func(_ net.Conn, tc *tls.Conn) { tc.CloseWrite(); some(tc) },
		func(c net.Conn, tc *tls.Conn) { halfClose(c); some(tc) },
		func(c net.Conn, tc *tls.Conn) { io.WriteString(tc, "\x01\x85some"); reset(c) }, // in a WebSocket's frame; else what fits nowhere
	}
)

// cutSecure does the n-th of them, and returns why there was no handshake.
func cutSecure(c net.Conn, addr string, n int) error {
	way := uglySecure[n%len(uglySecure)]
	uglyTunnel(c, addr)
	tc := tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true, NextProtos: []string{way.alpn}})
	if err := tc.Handshake(); err != nil {
		return err
	}
	io.WriteString(tc, way.begin)
	if n/len(uglySecure)%2 == 0 { // the others do not wait
		some(tc)
	}
	uglyCuts[n/len(uglySecure)/2%len(uglyCuts)](c, tc)
	return nil
}

// answerSecure is an origin over TLS that begins to answer, and ends as badly.
func answerSecure(c net.Conn, config *tls.Config, n int64) {
	tc := tls.Server(c, config)
	if tc.Handshake() != nil {
		return
	}
	if tc.ConnectionState().NegotiatedProtocol == "h2" {
		io.WriteString(tc, "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		some(tc)
		io.WriteString(tc, "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88"+"\x00\x00\x04\x00\x00\x00\x00\x00\x01some")
	} else {
		head := make([]byte, 512)
		got, _ := tc.Read(head)
		if strings.Contains(string(head[:got]), "websocket") {
			io.WriteString(tc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x01\x04some")
		} else {
			io.WriteString(tc, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
		}
	}
	switch n % 4 {
	case 0:
		tc.Close()
	case 1:
		reset(c)
	case 2:
		tc.CloseWrite()
		io.Copy(io.Discard, tc)
	default:
		io.Copy(io.Discard, tc)
	}
}

func halfClose(c net.Conn) { c.(*net.TCPConn).CloseWrite() }

// reset has the connection's end be a reset. Whoever opened it closes it.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// some reads what comes first.
func some(c net.Conn) { c.Read(make([]byte, 512)) }

func uglyTunnel(c net.Conn, addr string) {
	io.WriteString(c, "CONNECT "+addr+" HTTP/1.1\r\n\r\n")
	io.ReadFull(c, make([]byte, len(established)))
}

// oneWrite lets one write through: of a TLS client, its ClientHello.
type oneWrite struct {
	net.Conn
	n int
}

func (o *oneWrite) Write(p []byte) (int, error) {
	if o.n++; o.n > 1 {
		return 0, io.ErrClosedPipe
	}
	return o.Conn.Write(p)
}

// TestUglyConnectionsLeaveNothing opens connections that both sides end in every ugly way, a tenth of them after a TLS handshake. A first part of them fills caches and pools; after all the
// others goroutines, descriptors and memory are where they were then.
func TestUglyConnectionsLeaveNothing(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	const atOnce = 32
	h := startHarness(t, Config{Logger: slog.New(slog.DiscardHandler), Limits: Limits{Sniff: 50 * time.Millisecond}, UpstreamRoots: upstreamCA().pool()})
	var next, nextSecure atomic.Int64
	config := &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "a.test")}, NextProtos: []string{"h2", "http/1.1"}}
	secure := startUglyOrigin(t, func(c net.Conn) { answerSecure(c, config, nextSecure.Add(1)) })
	origin := startUglyOrigin(t, func(c net.Conn) { uglyAnswers[next.Add(1)%int64(len(uglyAnswers))](c) })
	run := func(from, to int) {
		var clients sync.WaitGroup
		jobs := make(chan int)
		for range atOnce {
			clients.Go(func() {
				for i := range jobs {
					c, err := net.Dial("tcp", h.addr)
					if err != nil {
						t.Error(err)
						continue
					}
					c.SetDeadline(time.Now().Add(patience))
					if i%10 == 9 {
						if err := cutSecure(c, secure, i/10); err != nil {
							t.Errorf("connection %d: handshake: %v", i, err)
						}
					} else {
						uglyWays[i%len(uglyWays)].do(c, origin)
					}
					c.Close()
				}
			})
		}
		for i := from; i < to; i++ {
			jobs <- i
		}
		close(jobs)
		clients.Wait()
		h.quiet()
	}
	run(0, n/10)
	before, sessions := holdings(), h.sessions()
	run(n/10, n)
	checkHoldings(t, before, uint64(5<<20+128*(h.sessions()-sessions))) // four spare blocks of the log may be at hand, and the index of each session is
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		open := 0
		h.store.Scan(0, 1<<62, func(r *storage.Row) bool {
			if r.State == storage.Open {
				open++
			}
			return true
		})
		if open == 0 { // the last connections may have been accepted after their clients had left
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions are still open", open)
		}
	}
	t.Logf("shown: %d connections", n)
}

// quiet waits until the proxy serves nobody.
func (h *harness) quiet() {
	h.t.Helper()
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
		n := h.p.Clients()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%d clients are still served:\n%s", n, stacks())
		}
	}
}

func stacks() string {
	var all strings.Builder
	for _, s := range goroutines() {
		if strings.Contains(s, "millpond/proxy") {
			all.WriteString(s + "\n\n")
		}
	}
	return all.String()
}

// startUglyOrigin serves each connection with fn and closes it.
func startUglyOrigin(t *testing.T, fn func(net.Conn)) string {
	l := listenLocal(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); cancel(); running.Wait() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				stop := context.AfterFunc(ctx, func() { c.Close() })
				defer stop()
				defer c.Close()
				fn(c)
			})
		}
	}()
	return l.Addr().String()
}
