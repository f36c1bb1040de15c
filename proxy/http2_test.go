package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millpond/storage"
)

// http2Rig is a proxy between net/http's HTTP/2 client and an HTTP/2 origin.
type http2Rig struct {
	*harness
	origin *httptest.Server
	client *http.Client
}

func startHTTP2(t testing.TB, cfg Config, handler http.HandlerFunc) *http2Rig {
	t.Helper()
	origin := httptest.NewUnstartedServer(handler)
	origin.EnableHTTP2 = true
	origin.StartTLS()
	cfg.UpstreamRoots = x509.NewCertPool()
	cfg.UpstreamRoots.AddCert(origin.Certificate())
	h := startHarness(t, cfg)
	t.Cleanup(origin.Close)
	return &http2Rig{h, origin, h.client(true)}
}

// client returns a client that goes through the proxy and trusts it.
func (h *harness) client(http2 bool) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(h.p.cfg.CA.Certificate())
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: h.addr}),
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2, DisableCompression: true,
	}
	h.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (r *http2Rig) do(req *http.Request) (*http.Response, string) {
	r.t.Helper()
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.ProtoMajor != 2 {
		r.t.Fatalf("the response came over %s", res.Proto)
	}
	return res, string(body)
}

func (r *http2Rig) get(path string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequest("GET", r.origin.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req)
}

func TestHTTP2BodiesKeepTheirBytes(t *testing.T) {
	for _, length := range []bool{true, false} {
		t.Run(fmt.Sprintf("content-length=%v", length), func(t *testing.T) {
			h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("X-Sum", sum(string(body)))
				if length {
					w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				} else {
					w.WriteHeader(200)
					http.NewResponseController(w).Flush()
				}
				slices.Reverse(body)
				w.Write(body)
			})
			for i, n := range sizes {
				sent := pattern(n)
				var from io.Reader = strings.NewReader(sent)
				if !length {
					from = struct{ io.Reader }{from}
				}
				req, _ := http.NewRequest("POST", h.origin.URL+"/"+strconv.Itoa(n), from)
				res, got := h.do(req)
				want := []byte(sent)
				slices.Reverse(want)
				if got != string(want) || length && res.Header.Get("X-Sum") != sum(sent) {
					t.Errorf("%d bytes: the client got %d others", n, len(got))
				}
				s := h.session(uint64(i + 1))
				if s.State != storage.Done || s.Protocol != "HTTP/2" || s.Method != "POST" || s.Path != "/"+strconv.Itoa(n) || s.Scheme != "https" {
					t.Errorf("%d bytes: %+v", n, s)
				}
				h.expectBody(s, storage.Request, sent)
				h.expectBody(s, storage.Response, string(want))
			}
		})
	}
}

func TestHTTP2SessionTellsWhatPassed(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		w.Header().Del("Link")
		w.Header().Set("Content-Type", "text/x-test")
		w.Header().Set("Date", "never")
		w.Header().Set(http.TrailerPrefix+"X-End", "1")
		io.WriteString(w, "body")
	})
	req, _ := http.NewRequest("PUT", h.origin.URL+"/a?b=c", struct{ io.Reader }{strings.NewReader("upload")})
	req.Header = http.Header{"User-Agent": {"test"}}
	req.Host = "example.com"
	req.Trailer = http.Header{"X-Sum": {"6"}}
	h.do(req)
	s := h.session(1)
	host := strings.TrimPrefix(h.origin.URL, "https://")
	if s.Host != "example.com" || !s.HasFlag(storage.FlagHostDiffers) || s.Upstream != host || s.Status != 200 || s.ContentType != "text/x-test" || s.TLS == nil || s.TLS.ALPN != "h2" {
		t.Errorf("session %+v", s)
	}
	req2, res := s.Sides[storage.Request], s.Sides[storage.Response]
	if got, want := string(req2.Head), ":authority: example.com\n:method: PUT\n:path: /a?b=c\n:scheme: https\ntrailer: X-Sum\naccept-encoding: gzip\nuser-agent: test\n"; strings.Replace(got, "accept-encoding: gzip\n", "", 1) != strings.Replace(want, "accept-encoding: gzip\n", "", 1) {
		t.Errorf("request head %q, want %q", got, want)
	}
	if got, want := string(req2.Trailers), "x-sum: 6\n"; got != want {
		t.Errorf("request trailers %q, want %q", got, want)
	}
	if !strings.HasPrefix(string(res.Head), ":status: 200\n") || string(res.Trailers) != "x-end: 1\n" {
		t.Errorf("response head %q, trailers %q", res.Head, res.Trailers)
	}
	if len(res.Informational) != 1 || string(res.Informational[0]) != ":status: 103\nlink: </a>\n" {
		t.Errorf("informational %q", res.Informational)
	}
	tm := s.Timing
	if tm.Started.IsZero() || tm.Connection().Connected.IsZero() || tm.Connection().Secured.IsZero() || tm.RequestSent.Before(tm.Started) || tm.ResponseHead.Before(tm.RequestSent) || tm.Ended.Before(tm.ResponseHead) {
		t.Errorf("timing %+v", tm)
	}
}

func TestHTTP2EventsPassAtOnce(t *testing.T) {
	next := make(chan struct{})
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range next {
			io.WriteString(w, "data: x\n\n")
			http.NewResponseController(w).Flush()
		}
	})
	req, _ := http.NewRequest("GET", h.origin.URL, nil)
	go func() { next <- struct{}{} }()
	res, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		buf := make([]byte, len("data: x\n\n"))
		if _, err := io.ReadFull(res.Body, buf); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{} // only after the one before came
	}
	close(next)
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	h.expectBody(h.session(1), storage.Response, strings.Repeat("data: x\n\n", 4))
}

func TestHTTP2BothDirectionsAtOnce(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).Flush()
		buf := make([]byte, 1024)
		for {
			n, err := req.Body.Read(buf)
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	})
	r, w := io.Pipe()
	req, _ := http.NewRequest("POST", h.origin.URL, r)
	res, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		fmt.Fprintf(w, "line %02d\n", i)
		got := make([]byte, 8)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != fmt.Sprintf("line %02d\n", i) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	w.Close()
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if s := h.session(1); s.State != storage.Done || s.Sides[storage.Request].Body.Size != 160 || s.Sides[storage.Response].Body.Size != 160 {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2ClientReset(t *testing.T) {
	ended := make(chan error, 1)
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		io.WriteString(w, "part")
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
		ended <- req.Context().Err()
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", h.origin.URL, nil)
	res, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(res.Body, make([]byte, 4))
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("upstream's stream was not ended")
	}
	s := h.session(1)
	if s.State != storage.ClientAborted || !strings.Contains(s.Error, "CANCEL") || h.body(1, storage.Response) != "part" || s.Sides[storage.Response].Body.Complete {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2UpstreamReset(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		io.WriteString(w, "part")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	res, err := h.client.Get(h.origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the client got %q as a whole body", body)
	}
	s := h.session(1)
	if s.State != storage.UpstreamAborted || s.Error == "" || h.body(1, storage.Response) != "part" || s.Sides[storage.Response].Body.Complete {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2EarlyAnswer(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(413)
		io.WriteString(w, "too much")
	})
	req, _ := http.NewRequest("POST", h.origin.URL, struct{ io.Reader }{io.LimitReader(endless{}, 64<<20)})
	res, body := h.do(req)
	if res.StatusCode != 413 || body != "too much" {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if s := h.session(1); s.State != storage.Done || s.Status != 413 || s.Sides[storage.Request].Body.Complete {
		t.Errorf("session %+v", s)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHTTP2ConnectionsEnd(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
	})
	res, err := h.client.Get(h.origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	h.origin.CloseClientConnections()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the body ended as if it were whole")
	}
	if s := h.session(1); s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "upstream") {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2Stopped(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
	})
	res, err := h.client.Get(h.origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.p.Shutdown(ctx)
	if s := h.session(1); s.State != storage.Interrupted {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2ManyAtOnce(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		n, _ := strconv.Atoi(req.URL.Path[1:])
		io.WriteString(w, pattern(n*10_007))
	})
	h.get("/0") // one connection for all
	var clients sync.WaitGroup
	for i := range 100 {
		clients.Go(func() {
			res, err := h.client.Get(h.origin.URL + "/" + strconv.Itoa(i))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			sum := sha256.New()
			if _, err := io.Copy(sum, res.Body); err != nil {
				t.Error(err)
			}
			if want := sha256.Sum256([]byte(pattern(i * 10_007))); !bytes.Equal(sum.Sum(nil), want[:]) {
				t.Errorf("%d: another body", i)
			}
		})
	}
	clients.Wait()
	for i := range 101 {
		s := h.session(uint64(i + 1))
		n, _ := strconv.Atoi(s.Path[1:])
		h.expectBody(s, storage.Response, pattern(n*10_007))
	}
}

// http2Tunnel opens a tunnel and speaks raw frames in it; the origin's frames are the test's too.
func http2Tunnel(t *testing.T, h *harness) (client *http2.Framer, conn net.Conn, origin *http2.Framer) {
	t.Helper()
	client, c, origin, _ := http2Ends(t, h)
	return client, c, origin
}

// http2Ends is http2Tunnel with both connections.
func http2Ends(t *testing.T, h *harness) (client *http2.Framer, c *peerConn, origin *http2.Framer, u *peerConn) {
	t.Helper()
	o := startOrigin(t)
	c = h.dial()
	c.send("CONNECT " + o.addr + " HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
	c.expect("HTTP/1.1 200 Connection established\r\n\r\n")
	c.send(http2.ClientPreface)
	client = http2.NewFramer(c, c.r)
	client.WriteSettings()
	u = o.accept()
	u.expect(http2.ClientPreface)
	origin = http2.NewFramer(u, u.r)
	origin.WriteSettings()
	return client, c, origin, u
}

func TestHTTP2GoAwayShows(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, origin := http2Tunnel(t, h)
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84, 0x86}, EndStream: true, EndHeaders: true})
	for {
		f, err := origin.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().Type == http2.FrameHeaders {
			break
		}
	}
	origin.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too many"))
	s := h.session(1)
	if s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "ENHANCE_YOUR_CALM") || !strings.Contains(s.Error, "too many") {
		t.Errorf("session %+v", s)
	}
	if s.Scheme != "http" || s.Path != "/" || s.Protocol != "HTTP/2" {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2FieldsBeyondTheLimit(t *testing.T) {
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {})
	req, _ := http.NewRequest("GET", h.origin.URL, nil)
	req.Header.Set("X-Long", strings.Repeat("x", 300<<10))
	res, _ := h.do(req)
	if res.StatusCode != 431 {
		t.Errorf("got %d, want 431", res.StatusCode)
	}
	if s := h.session(1); s.State != storage.Failed || !strings.Contains(s.Error, "fields") {
		t.Errorf("session %+v", s)
	}
	if res, _ := h.get("/"); res.StatusCode != 200 {
		t.Errorf("the connection is of no use after it: %d", res.StatusCode)
	}
}

func TestHTTP2GarbageIsARow(t *testing.T) {
	h := startHarness(t, Config{})
	client, conn, _ := http2Tunnel(t, h)
	client.AllowIllegalWrites = true
	client.WriteData(7, false, []byte("of no stream"))
	for {
		f, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("GOAWAY %v", g.ErrCode)
			}
			break
		}
	}
	conn.Close()
	if s := h.session(1); s.State != storage.Failed || !strings.Contains(s.Error, "idle stream 7") {
		t.Errorf("session %+v", s)
	}
}

func TestHTTP2Curl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) { io.Copy(w, req.Body) })
	dir := t.TempDir()
	ca, upload := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "upload")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.p.cfg.CA.Certificate().Raw})
	sent := pattern(3 << 20)
	for path, content := range map[string]string{ca: string(cert), upload: sent} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(curl, "-sS", "--http2", "-x", "http://"+h.addr, "--cacert", ca, "--data-binary", "@"+upload, "-w", "%{stderr}%{http_version}", h.origin.URL+"/")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.String() != "2" || out.String() != sent {
		t.Errorf("got %d bytes, %v, %s", out.Len(), err, errs.String())
	}
	s := h.session(1)
	h.expectBody(s, storage.Request, sent)
	h.expectBody(s, storage.Response, sent)
}
