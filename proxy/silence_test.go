package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// With every limit at 2 s, what is silent for 5 s stays open: an event stream, a response's head, a body that trickles, a tunnel.
func TestSilenceIsNoStall(t *testing.T) {
	const (
		limit   = 2 * time.Second
		silence = 5 * time.Second
	)
	h := startHarness(t, Config{
		InsecureUpstream: true,
		Limits:           Limits{HeadTime: limit, IdleTime: limit, StallTime: limit, DialTime: limit, Sniff: limit},
	})
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, protocol := range []string{"http", "https", "http2"} {
		origin := httptest.NewUnstartedServer(silentHandler(silence))
		origin.EnableHTTP2 = protocol == "http2"
		if protocol == "http" {
			origin.Start()
		} else {
			origin.StartTLS()
		}
		t.Cleanup(origin.Close)
		transport := &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: h.addr}),
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "http2",
		}
		t.Cleanup(transport.CloseIdleConnections)
		for path, want := range map[string]string{"/events": "data: 0\n\ndata: 1\n\ndata: 2\n\n", "/head": "late", "/trickle": "0123456789"} {
			wait.Go(func() {
				res, err := (&http.Client{Transport: transport}).Get(origin.URL + path)
				if err != nil {
					t.Errorf("%s %s: %v", protocol, path, err)
					return
				}
				defer res.Body.Close()
				if got, err := io.ReadAll(res.Body); err != nil || string(got) != want || res.ProtoMajor == 2 != (protocol == "http2") {
					t.Errorf("%s %s: got %q, %v in %s; want %q", protocol, path, got, err, res.Proto, want)
				}
			})
		}
	}
	addr := serveEach(t, func(u *peerConn) {
		u.send("hello") // the server speaks first: a raw tunnel
		u.expect("ping")
		time.Sleep(silence)
		u.send("pong")
		u.expect("done")
	})
	c := h.dial()
	c.send("CONNECT " + addr + " HTTP/1.1\r\n\r\n")
	c.head()
	c.expect("hello")
	time.Sleep(silence)
	c.send("ping")
	c.expect("pong")
	c.send("done")
	c.Conn.(*net.TCPConn).CloseWrite()
	c.expectEnd()
}

// silentHandler is silent for so long: between events, before a head, and altogether for twice that while a body trickles.
func silentHandler(silence time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				control.Flush()
				if i < 2 {
					time.Sleep(silence)
				}
			}
		case "/head":
			time.Sleep(silence)
			io.WriteString(w, "late")
		case "/trickle":
			w.Header().Set("Content-Length", "10")
			for i := range 10 {
				fmt.Fprint(w, i)
				control.Flush()
				time.Sleep(silence / 5)
			}
		}
	}
}
