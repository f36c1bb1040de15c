package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"millpond/storage"
)

const (
	trailed  = "X-End: a\r\nx-ODD:b\r\n\r\n" // trailers as they may be on the wire
	chunky   = "Transfer-Encoding: chunked\r\nTrailer: X-End\r\n"
	helloing = "5\r\nhello\r\n0\r\n" + trailed
)

func expectTrailers(t *testing.T, s storage.Session, request, response string) {
	t.Helper()
	if got := string(s.Sides[storage.Request].Trailers); got != request {
		t.Errorf("request trailers: stored %q, want %q", got, request)
	}
	if got := string(s.Sides[storage.Response].Trailers); got != response {
		t.Errorf("response trailers: stored %q, want %q", got, response)
	}
	if s.State != storage.Done {
		t.Errorf("got %v, %q", s.State, s.Error)
	}
}

// TestTrailersOfWrappedBodies: they pass byte for byte behind a body that a modifier reads through. One that it replaced has none.
func TestTrailersOfWrappedBodies(t *testing.T) {
	replace := func(r io.ReadCloser) io.ReadCloser { return io.NopCloser(strings.NewReader("HELLO")) }
	for _, tt := range []struct {
		name string
		wrap func(io.ReadCloser) io.ReadCloser
		want string // the trailers that pass, with the empty line
	}{
		{"wrapped", upper, trailed},
		{"replaced", replace, "\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{
				RequestModifier:  onRequest(func(r *http.Request) error { r.Body = tt.wrap(r.Body); return nil }),
				ResponseModifier: onResponse(func(r *http.Response) error { r.Body = tt.wrap(r.Body); return nil }),
			})
			o := startOrigin(t)
			c := h.dial()
			start := " HTTP/1.1\r\nHost: " + o.addr + "\r\n" + chunky + "\r\n"
			c.send("POST http://" + o.addr + "/" + start + helloing)
			up := o.accept()
			up.expect("POST /" + start + "5\r\nHELLO\r\n0\r\n" + tt.want)
			answer := "HTTP/1.1 200 OK\r\n" + chunky + "\r\n"
			up.send(answer + helloing)
			c.expect(answer + "5\r\nHELLO\r\n0\r\n" + tt.want)
			want := strings.TrimPrefix(tt.want, "\r\n")
			expectTrailers(t, h.session(1), want, want)
		})
	}
}

// TestTrailersOfMovedExchanges: they go where the body goes, and come from there, in net/http's form.
func TestTrailersOfMovedExchanges(t *testing.T) {
	o := startOrigin(t)
	h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error {
		r.URL.Host = o.addr
		return nil
	})})
	c := h.dial()
	c.send("POST http://asked.invalid/ HTTP/1.1\r\nHost: asked.invalid\r\nUser-Agent: test\r\n" + chunky + "\r\n" + helloing)
	up := o.accept()
	up.expect("POST / HTTP/1.1\r\nHost: asked.invalid\r\nUser-Agent: test\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: a\r\nX-Odd: b\r\n\r\n")
	up.send("HTTP/1.1 200 OK\r\n" + chunky + "\r\n" + helloing)
	c.expect("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: a\r\nX-Odd: b\r\n\r\n")
	expectTrailers(t, h.session(1), trailed, "X-End: a\r\nX-Odd: b\r\n\r\n")
}

// TestModifiedBodyForAnOldClient: HTTP/1.0 knows neither chunks nor trailers, so that the connection's end is the body's.
func TestModifiedBodyForAnOldClient(t *testing.T) {
	h := startHarness(t, Config{ResponseModifier: onResponse(func(r *http.Response) error { r.Body = upper(r.Body); return nil })})
	o := startOrigin(t)
	c := h.dial()
	c.send("GET http://" + o.addr + "/ HTTP/1.0\r\nHost: " + o.addr + "\r\n\r\n")
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	c.expect("HTTP/1.1 200 OK\r\n\r\nHELLO")
	c.expectEnd()
	expectTrailers(t, h.session(1), "", "")
}

// Credentials for the proxy are not passed on or kept as a trailer, in no form; other trailers and those inside a tunnel stay as they are.
func TestCredentialsInTrailers(t *testing.T) {
	const secret = "dG9wOnNlY3JldA=="
	modified := Config{RequestModifier: onRequest(func(r *http.Request) error { r.Body = upper(r.Body); return nil })}
	for _, tt := range []struct {
		name, trailers, want string // with the empty line
		config               Config
	}{
		{"between others", "X-End: a\r\nproxy-authorization: Basic " + secret + "\r\nx-ODD:b\r\n\r\n", trailed, Config{}},
		{"alone", "Proxy-Authorization: Basic\r\n " + secret + "\r\n\r\n", "\r\n", Config{}},
		{"folded behind another", "X-End: a\r\n Proxy-Authorization: " + secret + "\r\nx-ODD:b\r\n\r\n", trailed, Config{}},
		{"none", trailed, trailed, Config{}},
		{"no trailers", "\r\n", "\r\n", Config{}},
		{"behind a body that a modifier reads", "X-End: a\r\nproxy-authorization: Basic " + secret + "\r\nx-ODD:b\r\n\r\n", trailed, modified},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, tt.config)
			o := startOrigin(t)
			c := h.dial()
			start := " HTTP/1.1\r\nHost: " + o.addr + "\r\n" + chunky + "\r\n"
			body := "5\r\nHELLO\r\n0\r\n"
			c.send("POST http://" + o.addr + "/" + start + body)
			up := o.accept()
			up.expect("POST /" + start + "5\r\nHELLO\r\n")
			for _, b := range []byte(tt.trailers) {
				c.send(string(b))
			}
			up.expect("0\r\n" + tt.want)
			up.send("HTTP/1.1 204 No Content\r\n\r\n")
			c.expect("HTTP/1.1 204 No Content\r\n\r\n")
			expectTrailers(t, h.session(1), strings.TrimPrefix(tt.want, "\r\n"), "")
		})
	}
	t.Run("inside a tunnel", func(t *testing.T) {
		h := startHarness(t, Config{})
		o := startOrigin(t)
		c := h.dial()
		c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
		c.expect(established)
		request := "POST / HTTP/1.1\r\nHost: " + o.addr + "\r\n" + chunky + "\r\n0\r\nProxy-Authorization: theirs\r\n\r\n"
		c.send(request)
		up := o.accept()
		up.expect(request)
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.expect("HTTP/1.1 204 No Content\r\n\r\n")
		expectTrailers(t, h.session(1), "Proxy-Authorization: theirs\r\n\r\n", "")
	})
	t.Run("that break off", func(t *testing.T) {
		h := startHarness(t, Config{})
		o := startOrigin(t)
		c := h.dial()
		c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\n" + chunky + "\r\n0\r\nX-End: a\r\nProxy-Authorization: " + secret)
		o.accept()
		c.Close()
		if s := h.session(1); strings.Contains(string(s.Sides[storage.Request].Trailers), secret) || s.State != storage.ClientAborted {
			t.Errorf("kept %q, %v", s.Sides[storage.Request].Trailers, s.State)
		}
	})
}
