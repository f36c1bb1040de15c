package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A reader that stops is given up; one that is slow, but reads, is not, however long it takes.
func TestOnlyAStalledReaderIsGivenUp(t *testing.T) {
	const size, stall = 40 << 20, time.Second
	r := newRig(t)
	r.server.stall = stall
	closed := make(chan string, 100)
	r.server.http.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c.RemoteAddr().String()
		}
	}
	id := r.record(exchange{url: "http://a/b", response: noise(size)})
	get := func() net.Conn {
		conn, err := net.Dial("tcp", r.host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", bodyPath(id, "response"), r.host, testToken)
		return conn
	}

	stalled := get()
	for addr := range closed {
		if addr == stalled.LocalAddr().String() {
			break
		}
	}
	if n, err := io.Copy(io.Discard, stalled); err == nil && n >= size {
		t.Errorf("a reader that stopped got %d bytes", n)
	}

	slow, start := get(), time.Now()
	for range 30 { // some 2 s: longer than stall by far
		if _, err := io.CopyN(io.Discard, slow, 1<<20); err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(60 * time.Millisecond) // what is tested is a slow reader
	}
	if n, err := io.Copy(io.Discard, slow); err != nil || n < size-30<<20 {
		t.Errorf("the slow reader: got %d more bytes, %v", n, err)
	}
}

func TestAppIsServedUnderAStrictPolicy(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/", "/s/abc"} {
		res := r.call("GET", path, "", "Authorization", "")
		page := r.text(res)
		if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || !strings.Contains(strings.ToLower(page), "<!doctype html>") {
			t.Errorf("%s: got %s %q %.80s", path, res.Status, res.Header.Get("Content-Type"), page)
		}
		policy := res.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s: %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || res.Header.Get("X-Frame-Options") != "DENY" || res.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: got %v", path, res.Header)
		}
	}
	for _, path := range []string{"/assets/", "/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e/embed.go"} {
		if res := r.call("GET", path, ""); res.StatusCode != 404 {
			t.Errorf("%s: got %s", path, res.Status)
		}
	}
}
