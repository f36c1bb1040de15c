package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// overTLS starts an HTTPS/1.1 origin, a proxy that trusts it, and a client that trusts the proxy.
func overTLS(t testing.TB, handler http.HandlerFunc) (h *harness, origin string, client *http.Client) {
	t.Helper()
	srv := httptest.NewTLSServer(handler)
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	h = startHarness(t, Config{UpstreamRoots: roots})
	trusted := x509.NewCertPool()
	trusted.AddCert(h.p.cfg.CA.Certificate())
	transport := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: h.addr}),
		TLSClientConfig:    &tls.Config{RootCAs: trusted},
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return h, srv.URL, &http.Client{Transport: transport}
}

func TestHTTPSResponsesAndUploadsKeepTheirBytes(t *testing.T) {
	h, origin, client := overTLS(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
		}
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	n := uint64(0)
	for _, how := range []string{"length", "chunked"} {
		for _, size := range sizes {
			req, _ := http.NewRequest("POST", origin+"/?"+how, strings.NewReader(pattern(size)))
			if how == "chunked" {
				req.ContentLength = -1
			}
			reused := false // a slow machine's client may give a connection up
			trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
			res, err := client.Do(req.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(got) != pattern(size) || err != nil {
				t.Fatalf("%s, %d bytes: got %d, %v", how, size, len(got), err)
			}
			n++
			s := h.session(n)
			if s.State != storage.Done || s.Scheme != "https" || s.TLS == nil || s.HasFlag(storage.FlagReused) != reused {
				t.Errorf("got %v %q %q, flags %q, on a reused connection: %t", s.State, s.Error, s.Scheme, s.Flags, reused)
			}
			h.expectBody(s, storage.Request, pattern(size))
			h.expectBody(s, storage.Response, pattern(size))
		}
	}
}

// TestHTTPSConnectionOutlastsAWatch has waits long enough for both ends to be watched, which interrupts reads below TLS.
func TestHTTPSConnectionOutlastsAWatch(t *testing.T) {
	h, origin, client := overTLS(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(watchClientAfter + watchClientAfter/4)
		io.Copy(w, r.Body)
	})
	for i := range 3 {
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		req, _ := http.NewRequest("POST", origin, strings.NewReader("hello"))
		res, err := client.Do(req.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(got) != "hello" || err != nil || reused != (i > 0) {
			t.Errorf("got %q, %v, on a reused connection: %v", got, err, reused)
		}
		time.Sleep(2 * watchUpstreamAfter)
	}
	if s := h.session(3); s.State != storage.Done || !s.HasFlag(storage.FlagReused) {
		t.Errorf("got %v %q %q", s.State, s.Error, s.Flags)
	}
}

func TestHTTPSEventsAndAClientThatLeaves(t *testing.T) {
	left, arrived := make(chan struct{}), make(chan struct{})
	h, origin, client := overTLS(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			fmt.Fprint(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-arrived: // so none can wait for the next
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
		close(left)
	})
	res, err := client.Get(origin)
	if err != nil {
		t.Fatal(err)
	}
	event := make([]byte, len("data: x\n\n"))
	for range 5 {
		if _, err := io.ReadFull(res.Body, event); err != nil {
			t.Fatal(err)
		}
		arrived <- struct{}{}
	}
	res.Body.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Fatal("upstream was not ended")
	}
	s := h.session(1)
	if s.State != storage.ClientAborted || h.body(s.ID, storage.Response) != strings.Repeat("data: x\n\n", 5) {
		t.Errorf("got %v %q", s.State, s.Error)
	}
}

// TestHTTPSBodyWithoutNotifyIsCut has no length and no chunks, so only the way that TLS ends can tell whether the body did.
func TestHTTPSBodyWithoutNotifyIsCut(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("close_notify %v", clean), func(t *testing.T) {
			h, origin, _ := overTLS(t, func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				rw.WriteString("HTTP/1.1 200 OK\r\n\r\nhello")
				rw.Flush()
				if clean {
					c.Close()
				} else {
					bottom(c).Close()
				}
			})
			c := h.dial()
			addr := strings.TrimPrefix(origin, "https://")
			c.send("CONNECT " + addr + " HTTP/1.1\r\n\r\n")
			c.head()
			below := &bufferedConn{Conn: c.Conn, r: c.r}
			tc := tls.Client(below, &tls.Config{ServerName: "127.0.0.1", InsecureSkipVerify: true})
			io.WriteString(tc, "GET / HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
			if got, err := io.ReadAll(tc); !strings.HasSuffix(string(got), "\r\n\r\nhello") || err != nil || below.eof == clean {
				t.Errorf("got %q, %v, close_notify %v, want %v", got, err, !below.eof, clean)
			}
			want := storage.UpstreamAborted
			if clean {
				want = storage.Done
			}
			if s := h.session(1); s.State != want || h.body(s.ID, storage.Response) != "hello" {
				t.Errorf("got %v %q, want %v", s.State, s.Error, want)
			}
		})
	}
}
