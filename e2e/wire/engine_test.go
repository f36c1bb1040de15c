package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"millpond/e2e/harness"
)

const noStreams = "HTTP/1 has no streams to reset: a client that leaves is the case `client-leaves`."

var engineCases = []wireCase{
	wireCase{
		slug: "silence-is-no-stall", sources: "google/martian#340 AdguardTeam/gomitmproxy#13",
		elsewhere: "A deadline cuts long transfers and tunnels.",
		here:      "With every limit at 2 s, an event each 5 s, a head that takes 5 s, a body that trickles and a silent tunnel stay open.",
	}.each(shown("proxy", "TestSilenceIsNoStall")),
	wireCase{
		slug: "post", sources: "google/martian#333 elazarl/goproxy#650",
		elsewhere: "POST over HTTP/2 fails.",
		here:      "It works.",
	}.each(shown("e2e/wire", "TestCurl")),
	{
		slug: "rule-fails", sources: "saucelabs/forwarder#525",
		elsewhere: "A rule that fails is logged, and the request goes on.",
		here:      "The client gets a 502, and upstream sees nothing.",
		http:      shown("proxy", "TestModifierThatFailsOrPanicsIsA502"),
		https:     shown("proxy", "TestModifierThatFailsOrPanicsIsA502"),
		http2:     shown("proxy", "TestHTTP2ModifierFails"),
	},
	{
		slug: "half-closed", sources: "saucelabs/forwarder#1014 elazarl/goproxy#209 elazarl/goproxy#451",
		elsewhere: "Half-closed tunnels are never freed.",
		here:      "A half-close passes; when the half-closed peer is gone, both sides end, and nothing is left running.",
		http:      shown("proxy", "TestTunnelEndsWhenAHalfClosedPeerVanishes"),
		https:     not("What is inside TLS is read as messages; the case `half-closed-request` has a client half-close there."),
		http2:     not("A stream's half-close is the end of a message: the case `trailers` has both sides do it."),
	},
	wireCase{
		slug: "half-closed-request", sources: "",
		elsewhere: "A client that ends its sending after its request is taken for one that left.",
		here:      "It gets its response.",
		http2:     not("The end of a request is a half-close of its stream in every exchange."),
	}.http1(halfClosed),
	{
		slug: "client-resets", sources: "lqqyt2423/go-mitmproxy#101 lqqyt2423/go-mitmproxy#103",
		elsewhere: "A reset with data waiting ends the process.",
		here:      "The stream ends, the connection lives, and the session says that the client left.",
		http:      not(noStreams), https: not(noStreams), http2: by(clientResets),
	},
	wireCase{
		slug: "upstream-dies", sources: "caddyserver/caddy#7845",
		elsewhere: "When upstream dies before a body's first byte, the client sees neither the head nor the failure.",
		here:      "Whether upstream closes or resets, the head is delivered, then the body breaks off for the client too, and the session says so.",
		http2:     by(upstreamDies2),
	}.http1(upstreamDies),
	{
		slug: "unread-stream", sources: "",
		elsewhere: "A client of HTTP/2 that stops reading makes the proxy hold the body.",
		here:      "Upstream may send what the client's windows allow, and no more; memory is flat.",
		http:      not("HTTP/1 has no windows: the case `slow-client` is about it."),
		https:     not("HTTP/1 has no windows: the case `slow-client` is about it."),
		http2:     by(unreadStream),
	},
	{
		slug: "continuation", sources: "",
		elsewhere: "A field list of more than one frame loses the body behind it.",
		here:      "Both arrive whole.",
		http:      by(longHead), https: by(longHead), http2: by(continuation),
	},
	{
		slug: "endless-line", sources: "",
		elsewhere: "A header line of 200 MB fills the memory.",
		here:      "431, and the connection ends; memory does not move.",
		http:      by(endlessLine), https: by(endlessLine), http2: shown("proxy/h2", "TestEndlessListEndsTheConnection"),
	},
	{
		slug: "own-address", sources: "",
		elsewhere: "A proxy asked for its own address calls itself until descriptors run out.",
		here:      "Whatever the name, it is refused, or answered with the set-up page, without a further connection.",
		http:      by(ownAddress), https: by(ownAddress), http2: not("The refusal is the answer to CONNECT, before HTTP/2 begins; `https` shows it."),
	},
	{
		slug: "ring", sources: "",
		elsewhere: "Two proxies that lead to each other call each other until descriptors run out.",
		here:      "The request is refused with 508 when it comes round.",
		http:      shown("proxy", "TestRingOfProxies"), https: shown("proxy", "TestRingOfProxies"), http2: not("The refusal is the answer to CONNECT, before HTTP/2 begins; `https` shows it."),
	},
	wireCase{
		slug: "tiny-pieces", sources: "",
		elsewhere: "Many tiny pieces cost more and more.",
		here:      "The cost of a body that comes in reads of 16 bytes is linear in its size.",
	}.each(by(tinyPieces)),
	wireCase{
		slug: "tiny-fragments", sources: "",
		elsewhere: "A WebSocket message in fragments of one byte costs more and more.",
		here:      "Its cost is linear in its size.",
	}.each(by(tinyFragments)),
}

func clientResets(r *run) {
	b := newBody(64 << 20)
	addr := r.listen2(func(p *peer2) error {
		for {
			m, err := p.message()
			var reset resetError
			switch {
			case errors.As(err, &reset):
				continue
			case err != nil:
				return nil
			}
			p.fields(m.stream, m.fields[7] != r.path, ":status", "200")
			if m.fields[7] == r.path {
				part, _ := io.ReadAll(b.Range(0, 60_000))
				_ = p.data(m.stream, false, part)
			}
		}
	})
	c := r.dial2(addr)
	c.send(1, pseudo("GET", addr, r.path), "", nil)
	for {
		m, _, err := c.next()
		r.must(err)
		if m.body.Len() > 0 {
			break
		}
	}
	r.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.send(3, pseudo("GET", addr, r.path+"/next"), "", nil)
	for {
		m, end, err := c.next()
		r.must(err)
		if end && m.stream == 3 {
			break
		}
	}
	r.expectDone(r.program.Await(r, r.path+"/next", harness.Ended), 200)
	s := r.firstSession()
	if s.State != "client_aborted" || !strings.Contains(s.Error, "CANCEL") || s.Response.Body.Size == 0 {
		r.Errorf("session is %s (%s), body %+v", s.State, s.Error, s.Response.Body)
	}
}

// upstreamDies has upstream close behind the head, and then reset.
func upstreamDies(r *run) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Seen: yes\r\n\r\n"
	for _, end := range []string{"/closed", "/reset"} {
		part := *r
		part.path += end
		seen := make(chan bool, 1)
		addr := part.listen(func(c *conn) error {
			if _, err := c.head(); err != nil {
				return err
			}
			c.send(head)
			if end == "/reset" {
				<-seen // a reset may overtake what was sent before it
				return c.reset()
			}
			return nil
		})
		c := part.dial(addr)
		c.send("GET " + part.target(addr, part.path) + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
		part.must(c.expect(head))
		seen <- true
		if rest, err := io.ReadAll(c.r); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			part.Errorf("%s: then came %q, %v", end, rest, err)
		}
		s := part.session()
		if s.State != "upstream_aborted" || s.Status != 200 || s.Response.Body.Complete || s.Error == "" {
			part.Errorf("%s: session is %s (%s), status %d, body %+v", end, s.State, s.Error, s.Status, s.Response.Body)
		}
	}
}

func upstreamDies2(r *run) {
	addr := r.listen2(func(p *peer2) error {
		m, err := p.message()
		if err != nil {
			return err
		}
		p.fields(m.stream, false, ":status", "200", "x-seen", "yes")
		_ = p.WriteRSTStream(m.stream, http2.ErrCodeInternal)
		_, _ = p.message()
		return nil
	})
	c := r.dial2(addr)
	c.send(1, pseudo("GET", addr, r.path), "", nil)
	m, end, err := c.next()
	r.must(err)
	if end {
		r.Error("the body seems whole")
	}
	r.must(m.is([]string{":status", "200", "x-seen", "yes"}, "", nil))
	_, err = c.message()
	r.must(expectReset(err, http2.ErrCodeInternal))
	s := r.session()
	if s.State != "upstream_aborted" || s.Status != 200 || s.Response.Body.Complete {
		r.Errorf("session is %s (%s), status %d", s.State, s.Error, s.Status)
	}
}

func unreadStream(r *run) {
	b := newBody(300 << 20)
	sent := r.flood(b)
	r.flat(func() {
		c := r.dial2(r.origin.Addr(r.protocol), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10})
		c.send(1, pseudo("GET", r.origin.Addr(r.protocol), r.path), "", nil)
		awaitQuiet(r, sent)
		// Some 64 KiB for the window; net/http has read ahead into its own buffers.
		if n := sent.Load(); n > 256<<10 {
			r.Errorf("upstream sent %d bytes for a window of 64 KiB", n)
		}
		var got int64
		for got < 8<<20 { // who reads on gets on
			m, _, err := c.next()
			r.must(err)
			got += int64(m.body.Len())
			m.body.Reset()
		}
		_ = c.Close()
	})
	if s := r.session(); s.State != "client_aborted" {
		r.Errorf("session is %s (%s)", s.State, s.Error)
	}
}

// halfClosed asks, ends its sending, and reads: as `nc -N` does.
func halfClosed(r *run) {
	const request = "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
	const answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlate"
	var addr string
	half := make(chan struct{})
	addr = r.listen(func(c *conn) error {
		if err := c.expect(fmt.Sprintf(request, r.path, addr)); err != nil {
			return err
		}
		<-half
		time.Sleep(200 * time.Millisecond) // the half-close has to reach the proxy, and what it would do about it the client
		c.send(answer)
		return nil
	})
	c := r.dial(addr)
	c.send(fmt.Sprintf(request, r.target(addr, r.path), addr))
	r.must(c.Conn.(interface{ CloseWrite() error }).CloseWrite())
	close(half)
	r.must(c.expect(answer))
	r.must(c.expectEnd())
	r.expectDone(r.session(), 200)
}

func longHead(r *run) {
	long := strings.Repeat("v", 60_000)
	s := r.pass(exchange{
		request:  "POST TARGET HTTP/1.1\r\nHost: HOST\r\nX-Long: " + long + "\r\nContent-Length: 4\r\n\r\nbody",
		response: "HTTP/1.1 200 OK\r\nX-Long: " + long + "\r\nContent-Length: 2\r\n\r\nok",
	})
	r.expectDone(s, 200)
	r.expectBody(s, "request", "body")
}

func continuation(r *run) {
	var long []string
	for i := range 60 {
		long = append(long, fmt.Sprintf("x-long-%d", i), strings.Repeat("~", 1_000)) // ~ takes 13 bits: no smaller when coded
	}
	s := r.pass2(stream2{method: "POST", request: long, body: strings.Repeat("b", 50_000), response: long, answer: "ok"})
	r.expectDone(s, 200)
	r.expectBody(s, "request", strings.Repeat("b", 50_000))
}

func endlessLine(r *run) {
	addr := r.listen(func(c *conn) error { _, _ = io.Copy(io.Discard, c.r); return nil })
	r.flat(func() {
		c := r.dial(addr)
		go func() {
			c.send("GET " + r.target(addr, r.path) + " HTTP/1.1\r\nHost: " + addr + "\r\nX: ")
			_, _ = harness.Copy(c.Conn, io.LimitReader(endless('x'), 200<<20))
		}()
		head, err := c.head()
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 431 ") {
			r.Errorf("got %q, %v; want a 431", head, err)
		}
		_, _ = io.Copy(io.Discard, c.r)
	})
	// A head that never came whole has no path to find its row by: it is the newest.
	if s := r.program.Await(r, "", harness.Ended); s.State != "failed" || s.Status != 431 {
		r.Errorf("session is %s (%s), status %d", s.State, s.Error, s.Status)
	}
}

// endless is a reader of one byte, again and again.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func ownAddress(r *run) {
	_, port, err := net.SplitHostPort(r.program.Proxy)
	r.must(err)
	names := []string{"127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST.", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1"}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	for _, name := range names {
		c, err := net.Dial("tcp", r.program.Proxy)
		r.must(err)
		p := newConn(c)
		authority := name + ":" + port
		if r.secure() {
			p.send("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
		} else {
			p.send("POST http://" + authority + r.path + " HTTP/1.1\r\nHost: " + authority + "\r\nContent-Length: 0\r\n\r\n")
		}
		head, err := p.head()
		_ = c.Close()
		// Where nothing listens under that name, the refusal is the system's: 502.
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 508 ") && !strings.HasPrefix(head, "HTTP/1.1 502 ") {
			r.Errorf("%s: got %q, %v; want a refusal", name, clip(head), err)
		}
		s := r.program.Await(r, authority, harness.Ended)
		if s.State != "failed" || s.Error == "" {
			r.Errorf("%s: session is %s (%s)", name, s.State, s.Error)
		}
	}
}

// cost returns the processor time that the program takes for fn.
func (r *run) cost(fn func()) time.Duration {
	r.Helper()
	before, err := harness.CPU(r.program.PID())
	r.must(err)
	fn()
	after, err := harness.CPU(r.program.PID())
	r.must(err)
	return after - before
}

// expectLinear compares what n and 4n pieces cost.
func (r *run) expectLinear(n int, pass func(n int)) {
	r.Helper()
	few := r.cost(func() { pass(n) })
	many := r.cost(func() { pass(4 * n) })
	r.Logf("%d pieces cost %v, %d cost %v", n, few, 4*n, many)
	if many > 6*few+50*time.Millisecond {
		r.Errorf("%d pieces cost %v, %d cost %v", n, few, 4*n, many)
	}
}

func tinyPieces(r *run) {
	r.origin.HandleFunc("GET "+r.path+"/{n}", func(w http.ResponseWriter, q *http.Request) {
		var n int
		_, _ = fmt.Sscan(q.PathValue("n"), &n)
		control := http.NewResponseController(w)
		for i := range n {
			_, _ = fmt.Fprintf(w, "%015d\n", i)
			_ = control.Flush()
		}
	})
	r.expectLinear(20_000, func(n int) {
		part := *r
		part.path = fmt.Sprintf("%s/%d", r.path, n)
		text, err := io.ReadAll(part.get().Body)
		if err != nil || len(text) != 16*n || !strings.HasSuffix(string(text), fmt.Sprintf("%015d\n", n-1)) {
			r.Errorf("client got %d bytes, %v", len(text), err)
		}
		part.expectBody(part.session(), "response", string(text))
	})
}

func tinyFragments(r *run) {
	r.expectLinear(20_000, func(n int) {
		part := *r
		part.path = fmt.Sprintf("%s/%d", r.path, n)
		c := part.socket(opening{}, func(s *socket) error {
			for i := range n {
				first := byte(more)
				if i == 0 {
					first = text
				}
				if err := s.expect(first, "x"); err != nil {
					return err
				}
			}
			if err := s.expect(final|more, ""); err != nil {
				return err
			}
			return s.goodbye()
		})
		for i := range n {
			first := byte(more)
			if i == 0 {
				first = text
			}
			c.send(first, "x")
		}
		c.send(final|more, "")
		part.close(c)
		if m := part.messages(part.session().ID, 3)[0]; m.Type != "text" || m.Size != int64(n) {
			r.Errorf("listed as %+v", m)
		}
	})
}
