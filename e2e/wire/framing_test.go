package wire

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"millpond/e2e/harness"
)

var framingCases = []wireCase{
	wireCase{
		slug: "head-length", sources: "mitmproxy/mitmproxy#659 elazarl/goproxy#720 elazarl/goproxy#11 elazarl/goproxy#473",
		elsewhere: "The Content-Length of a response to HEAD becomes 0, or vanishes.",
		here:      "It stays, nobody waits for a body, and the connection serves the next request.",
		http2:     by(headLength2),
	}.http1(headLength),
	wireCase{
		slug: "head-chunked", sources: "saucelabs/forwarder#358 saucelabs/forwarder#872",
		elsewhere: "A response to HEAD with chunked coding gains bytes that the next response begins with.",
		here:      "None is added.",
		http2:     not("HTTP/2 has no chunked coding (RFC 9113, section 8.2.2)."),
	}.http1(headChunked),
	wireCase{
		slug: "gzip-unasked", sources: "google/martian#288",
		elsewhere: "A client that did not ask for gzip gets a response without any framing, and hangs.",
		here:      "Coding and length are as upstream sent them.",
		http2:     by(gzipUnasked2),
	}.http1(gzipUnasked),
	wireCase{
		slug: "chunks", sources: "projectdiscovery/martian#3 projectdiscovery/proxify#135",
		elsewhere: "Chunks arrive malformed.",
		here:      "Chunked framing passes byte for byte: sizes, leading zeros, extensions, trailers.",
		http2:     not("HTTP/2 has no chunked coding (RFC 9113, section 8.2.2)."),
	}.http1(chunks),
	wireCase{
		slug: "connect-answer", sources: "google/martian#209",
		elsewhere: "The 200 to CONNECT has a Content-Length, which clients take for a body.",
		here:      "It has no field at all.",
		http2:     by(connectAnswer),
	}.http1(connectAnswer),
	wireCase{
		slug: "continue", sources: "ProxymanApp/Proxyman#1807 elazarl/goproxy#367 elazarl/goproxy#726",
		elsewhere: "An upload with Expect waits for a 100 that never comes.",
		here:      "The origin's 100 is relayed and kept as soon as it comes, and the upload of 2 MB goes on.",
		http2:     by(continue2),
	}.http1(continue1),
	wireCase{
		slug: "continue-refused", sources: "mitmproxy/mitmproxy#1721 mitmproxy/mitmproxy#2180",
		elsewhere: "The proxy says 100 itself, and hides Expect from the origin.",
		here:      "Expect reaches the origin, and its refusal reaches the client before any body is sent.",
		http2:     by(continueRefused2),
	}.http1(continueRefused),
	wireCase{
		slug: "trailers", sources: "elazarl/goproxy#773 mitmproxy/mitmproxy#2474",
		elsewhere: "Trailers are dropped, and gRPC calls end without a status.",
		here:      "They pass, in both directions, and the session shows them.",
		http2:     by(trailers2),
	}.http1(trailers),
	{
		slug: "trailers-without-te", sources: "emanuele-f/PCAPdroid-mitm#28",
		elsewhere: "A response with trailers that no TE asked for is not kept.",
		here:      "It passes and is kept.",
		http:      not("`TE` is about HTTP/1 as well, and the case `trailers` sends none."),
		https:     not("`TE` is about HTTP/1 as well, and the case `trailers` sends none."),
		http2:     by(trailers2),
	},
	wireCase{
		slug: "length-of-gzip", sources: "ProxymanApp/Proxyman#1721 elazarl/goproxy#720",
		elsewhere: "The length no longer fits the coded body.",
		here:      "Length and body are the origin's.",
		http2:     by(gzipUnasked2),
	}.http1(gzipUnasked),
	wireCase{
		slug: "one-framing", sources: "mitmproxy/mitmproxy#1033",
		elsewhere: "A chunked response gets a Content-Length as well.",
		here:      "One framing passes. Where the origin sends both, the length goes, and the session says so.",
		http2:     not("HTTP/2 has no chunked coding (RFC 9113, section 8.2.2)."),
	}.http1(oneFraming),
	wireCase{
		slug: "not-modified", sources: "saucelabs/forwarder#963",
		elsewhere: "A 304 ends the client's connection.",
		here:      "The connection serves the next request.",
		http2:     by(notModified2),
	}.http1(notModified),
}

// http1 fills in both protocols that speak HTTP/1.
func (c wireCase) http1(fn func(*run)) wireCase {
	c.http, c.https = by(fn), by(fn)
	return c
}

func headLength(r *run) {
	s := r.pass(exchange{
		request:  "HEAD TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\nContent-Type: image/png\r\n\r\n",
	})
	r.expectDone(s, 200)
	if s.ResponseBytes != 0 || !slices.Contains(s.Response.Fields, [2]string{"Content-Length", "1488324"}) {
		r.Errorf("session tells of %d bytes, fields %q", s.ResponseBytes, s.Response.Fields)
	}
}

func headLength2(r *run) {
	s := r.pass2(stream2{method: "HEAD", response: []string{"content-length", "1488324"}})
	r.expectDone(s, 200)
}

func headChunked(r *run) {
	r.expectDone(r.pass(exchange{
		request:  "HEAD TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	}), 200)
}

// gzipped is `{"a":1}`, by gzip.
const gzipped = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xabVJT\xb22\xac\x05\x00\xbc\xf4\x87\xe0\x07\x00\x00\x00"

func gzipUnasked(r *run) {
	s := r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		response: fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(gzipped), gzipped),
	})
	r.expectDone(s, 200)
	r.expectBody(s, "response", gzipped)
}

func gzipUnasked2(r *run) {
	s := r.pass2(stream2{
		response: []string{"content-type", "application/json", "content-encoding", "gzip", "content-length", fmt.Sprint(len(gzipped))},
		answer:   gzipped,
	})
	r.expectDone(s, 200)
	r.expectBody(s, "response", gzipped)
}

// oddChunks frames "hello, chunked world" in chunks with leading zeros, letters of both cases, extensions and a trailer.
const oddChunks = "5;a=b\r\nhello\r\n00C ; sig=\"x;y\"\r\n, chunked wo\r\n0003\r\nrld\r\n000;last\r\nX-Sum: caf\xe9\r\n\r\n"

func chunks(r *run) {
	s := r.pass(exchange{
		request:  "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n" + oddChunks,
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + oddChunks,
	})
	r.expectDone(s, 200)
	r.expectBody(s, "request", "hello, chunked world")
	r.expectBody(s, "response", "hello, chunked world")
}

func connectAnswer(r *run) {
	addr := r.listen(func(*conn) error { return nil })
	c, err := net.Dial("tcp", r.program.Proxy)
	r.must(err)
	defer c.Close()
	p := newConn(c)
	p.send("CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
	r.must(p.expect(harness.Connected))
}

// uploaded is a body that no client sends at once with its head.
var uploaded = strings.Repeat("uploaded", 250_000)

func continue1(r *run) {
	body := uploaded
	addr := r.listen(func(c *conn) error {
		head, err := c.head()
		if err != nil || !strings.Contains(head, "\r\nexpect: 100-Continue\r\n") {
			return fmt.Errorf("got head %q, %w", head, orNone(err))
		}
		c.send("HTTP/1.1 100 Go on\r\nX-Early: 1\r\n\r\n")
		if err := c.expect(body); err != nil {
			return err
		}
		c.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
		return c.expectEnd()
	})
	c := r.dial(addr)
	c.send("PUT " + r.target(addr, r.path) + " HTTP/1.1\r\nHost: " + addr + "\r\nexpect: 100-Continue\r\nContent-Length: 2000000\r\n\r\n")
	r.must(c.expect("HTTP/1.1 100 Go on\r\nX-Early: 1\r\n\r\n"))
	c.send(body)
	r.must(c.expect("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"))
	s := r.session()
	r.expectDone(s, 201)
	r.expectBody(s, "request", body)
	if want := []string{"HTTP/1.1 100 Go on\r\nX-Early: 1\r\n\r\n"}; !slices.Equal(s.Response.Informational, want) {
		r.Errorf("informational heads are %q, want %q", s.Response.Informational, want)
	}
}

func continue2(r *run) {
	body := uploaded
	var addr string
	addr = r.listen2(func(p *peer2) error {
		m, _, err := p.next()
		if err != nil {
			return err
		}
		if want := append(pseudo("PUT", addr, r.path), "expect", "100-continue"); !slices.Equal(m.fields, want) {
			return fmt.Errorf("got %q, want %q", m.fields, want)
		}
		p.fields(1, false, ":status", "100", "x-early", "1")
		if m, err = p.message(); err != nil || m.body.String() != body {
			return fmt.Errorf("got body %q, %w", m.body.String(), orNone(err))
		}
		p.send(1, []string{":status", "201"}, "", nil)
		_, _ = p.message()
		return nil
	})
	c := r.dial2(addr)
	c.fields(1, false, append(pseudo("PUT", addr, r.path), "expect", "100-continue")...)
	m, _, err := c.next()
	r.must(err)
	r.must(m.is([]string{":status", "100", "x-early", "1"}, "", nil))
	sent := make(chan error, 1)
	go func() { sent <- c.data(1, true, []byte(body)) }() // beside the reading, which sees the credit for it
	m, err = c.message()
	r.must(err)
	r.must(<-sent)
	r.must(m.is([]string{":status", "201"}, "", nil))
	s := r.session()
	r.expectDone(s, 201)
	r.expectBody(s, "request", body)
	if len(s.Response.Informational) != 1 {
		r.Errorf("informational heads are %q, want one", s.Response.Informational)
	}
}

func continueRefused(r *run) {
	for status, line := range map[int]string{417: "HTTP/1.1 417 Expectation Failed", 401: "HTTP/1.1 401 Unauthorized"} {
		answer := line + "\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
		path := fmt.Sprintf("%s/%d", r.path, status)
		var addr string
		addr = r.listen(func(c *conn) error {
			if err := c.expect("PUT " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nExpect: 100-continue\r\nContent-Length: 80000000\r\n\r\n"); err != nil {
				return err
			}
			c.send(answer)
			return nil
		})
		c := r.dial(addr)
		c.send("PUT " + r.target(addr, path) + " HTTP/1.1\r\nHost: " + addr + "\r\nExpect: 100-continue\r\nContent-Length: 80000000\r\n\r\n")
		r.must(c.expect(answer))
		_ = c.Close()
		s := r.program.Await(r, path, harness.Ended)
		if s.Status != status || s.RequestBytes != 0 || s.State == "failed" {
			r.Errorf("session is %s (%s), status %d, %d bytes of the request passed", s.State, s.Error, s.Status, s.RequestBytes)
		}
		r.expectBody(s, "response", "no")
	}
}

func continueRefused2(r *run) {
	addr := r.listen2(func(p *peer2) error {
		m, _, err := p.next()
		if err != nil || !slices.Contains(m.fields, "100-continue") {
			return fmt.Errorf("got %v, %w", m, orNone(err))
		}
		p.send(1, []string{":status", "417"}, "no", nil)
		_ = p.WriteRSTStream(1, 0)
		_, _ = p.message()
		return nil
	})
	c := r.dial2(addr)
	c.fields(1, false, append(pseudo("PUT", addr, r.path), "content-length", "80000000", "expect", "100-continue")...)
	m, err := c.message()
	r.must(err)
	r.must(m.is([]string{":status", "417"}, "no", nil))
	s := r.session()
	if s.Status != 417 || s.RequestBytes != 0 {
		r.Errorf("session is %s (%s), status %d, %d bytes of the request passed", s.State, s.Error, s.Status, s.RequestBytes)
	}
	r.expectBody(s, "response", "no")
}

func trailers(r *run) {
	s := r.pass(exchange{
		request:  "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nup\r\n0\r\nX-T: sent\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndown\r\n0\r\nX-T: back\r\nx-second:  2\r\n\r\n",
	})
	r.expectDone(s, 200)
	r.expectTrailers(s, [][2]string{{"X-T", "sent"}}, [][2]string{{"X-T", "back"}, {"x-second", "2"}})
}

func trailers2(r *run) {
	s := r.pass2(stream2{
		method: "POST", request: []string{"content-type", "application/grpc"}, body: "up", trailers: []string{"x-t", "sent"},
		response: []string{"content-type", "application/grpc"}, answer: "down", after: []string{"grpc-status", "0", "x-t", "back"},
	})
	r.expectDone(s, 200)
	r.expectTrailers(s, [][2]string{{"x-t", "sent"}}, [][2]string{{"grpc-status", "0"}, {"x-t", "back"}})
	r.expectBody(s, "response", "down")
}

func (r *run) expectTrailers(s harness.Session, request, response [][2]string) {
	r.Helper()
	if !slices.Equal(s.Request.Trailers, request) || !slices.Equal(s.Response.Trailers, response) {
		r.Errorf("session tells trailers %q and %q, want %q and %q", s.Request.Trailers, s.Response.Trailers, request, response)
	}
}

func oneFraming(r *run) {
	s := r.pass(exchange{
		request:   "GET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		response:  "HTTP/1.1 200 OK\r\ncontent-LENGTH: 99\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		delivered: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	})
	r.expectFlag(s, "ambiguous_framing", true)
	r.expectBody(s, "response", "hi")
	if !strings.Contains(s.Response.Received, "content-LENGTH: 99") {
		r.Errorf("the head as received is %q", s.Response.Received)
	}
}

func notModified(r *run) {
	r.expectDone(r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\nIf-None-Match: \"1\"\r\n\r\n",
		response: "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 5\r\n\r\n", // the length of what it stands for (RFC 9110, section 8.6)
	}), 304)
}

func notModified2(r *run) {
	r.expectDone(r.pass2(stream2{request: []string{"if-none-match", `"1"`}, status: "304", response: []string{"etag", `"1"`}}), 304)
}
