package h2

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// originServer is an HTTP/2 server without TLS (prior knowledge).
func originServer(t testing.TB, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// relayServer accepts connections and relays each to the origin.
func relayServer(t testing.TB, origin string, h Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", origin)
			if err != nil {
				c.Close()
				continue
			}
			running.Go(func() {
				Relay(context.Background(), Config{Client: Conn{Conn: c}, Upstream: Conn{Conn: up}, Handler: h, TempDir: t.TempDir()})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func priorKnowledge(t testing.TB) *http.Transport {
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// quiet is a Handler that keeps nothing.
type quiet struct{}

func (quiet) Open(*Stream) Exchange                       { return quietExchange{} }
func (quiet) Refused(uint32, []hpack.HeaderField, Close)  {}
func (quiet) Settings(Party, []http2.Setting)             {}
func (quiet) GoAway(Party, uint32, http2.ErrCode, []byte) {}

type quietExchange struct{}

func (quietExchange) Head(Side, *Head)                  {}
func (quietExchange) Passing(Side, []byte)              {}
func (quietExchange) Data(Side, []byte) <-chan struct{} { return nil }
func (quietExchange) Trailers(Side, *Head)              {}
func (quietExchange) Sent(Side)                         {}
func (quietExchange) Closed(Close)                      {}

// echo answers with the body it gets, as it comes; ?n=N makes a body of N bytes instead.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Trailer")
	if n, _ := strconv.Atoi(r.URL.Query().Get("n")); n > 0 {
		io.Copy(io.Discard, r.Body)
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		io.CopyN(w, zeroReader{}, int64(n))
	} else {
		http.NewResponseController(w).Flush()
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
	}
	w.Header().Set("X-Trailer", "end")
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestGoClientAndServer(t *testing.T) {
	addr := relayServer(t, originServer(t, http.HandlerFunc(echo)), quiet{})
	client := &http.Client{Transport: priorKnowledge(t)}
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			body := make([]byte, i*20_011)
			rand.Read(body)
			resp, err := client.Post("http://"+addr+"/", "application/octet-stream", strings.NewReader(string(body)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(body) {
				t.Errorf("sent %d bytes, got %d back, %v", len(body), len(got), err)
			}
			if resp.Trailer.Get("X-Trailer") != "end" {
				t.Errorf("trailers %v", resp.Trailer)
			}
		})
	}
	clients.Wait()
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	addr := relayServer(t, originServer(t, http.HandlerFunc(echo)), quiet{})
	for _, path := range []string{"/?n=3000000", "/?n=3000000&length"} {
		out, err := exec.Command(curl, "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version} %{http_code} %{size_download}", "http://"+addr+path).CombinedOutput()
		if got, want := string(out), "2 200 3000000"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	cmd := exec.Command(curl, "-sS", "--http2-prior-knowledge", "--data-binary", "@-", "http://"+addr+"/")
	cmd.Stdin = strings.NewReader(strings.Repeat("0123456789", 100_000))
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) != 1_000_000 {
		t.Errorf("posted 1,000,000 bytes, got %d back, %v", len(out), err)
	}
}

// nghttp pads, sets priorities, splits its field lists over CONTINUATION frames, and waits for 100 before it uploads.
func TestNghttp(t *testing.T) {
	nghttp, err := exec.LookPath("nghttp")
	if err != nil {
		t.Skip("no nghttp")
	}
	addr := relayServer(t, originServer(t, http.HandlerFunc(echo)), quiet{})
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, bytes.Repeat([]byte("0123456789"), 50_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"download":       {"-m", "20", "http://" + addr + "/?n=100000"},
		"padding":        {"-b", "200", "-d", upload, "http://" + addr + "/"},
		"continuation":   {"--continuation", "http://" + addr + "/?n=10"},
		"expect":         {"--expect-continue", "-d", upload, "http://" + addr + "/?n=10"},
		"small windows":  {"-w", "10", "-W", "12", "-d", upload, "http://" + addr + "/"},
		"header table 0": {"--header-table-size", "0", "-m", "5", "http://" + addr + "/?n=10"},
	} {
		out, err := exec.Command(nghttp, append([]string{"-n", "-v", "-t", "20"}, args...)...).CombinedOutput()
		text := string(out)
		if err != nil || !strings.Contains(text, ":status: 200") || strings.Contains(text, "not OK") || strings.Contains(text, "RST_STREAM") || strings.Contains(text, "recv GOAWAY") {
			t.Errorf("%s: %v\n%.3000s", name, err, text)
		}
	}
}

// BenchmarkRequests compares the relay with no relay: client, relay and origin share the machine.
func BenchmarkRequests(b *testing.B) {
	origin := originServer(b, http.HandlerFunc(echo))
	for name, addr := range map[string]string{"direct": origin, "relayed": relayServer(b, origin, quiet{})} {
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Transport: priorKnowledge(b)}
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Get(fmt.Sprintf("http://%s/?n=10000&length", addr))
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
