package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

const testToken = "the token of the test"

// rig is a server over a real store and listener.
type rig struct {
	testing.TB
	dir    string // of the store
	disk   *storagetest.Disk
	store  *storage.Store
	server *Server
	host   string // of the listener
	base   string // http://host
	client *http.Client
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := storagetest.NewDisk(files)
	store, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ca := testCA(t)
	cfg := Config{
		Store: store, CA: func() *x509.Certificate { return ca }, Token: testToken, Version: "test", Logger: log,
		Proxies: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8080")}, Dashboard: listener.Addr().(*net.TCPAddr).AddrPort(),
	}
	for _, fn := range change {
		fn(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	host := listener.Addr().String()
	return &rig{TB: t, dir: dir, disk: disk, store: store, server: server, host: host, base: "http://" + host, client: &http.Client{Transport: transport}}
}

func testCA(t testing.TB) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Millpond test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// exchange is a session to record.
type exchange struct {
	url      string // http://host/path
	request  string // body
	response string // body
	fields   string // further response fields, each with its line end
}

// begin records a session's heads and leaves it open.
func (r *rig) begin(e exchange) *storage.Recording {
	r.Helper()
	scheme, rest, _ := strings.Cut(e.url, "://")
	host, path, _ := strings.Cut(rest, "/")
	rec := r.store.Begin(storage.Session{
		Method: "GET", Scheme: scheme, Host: host, Path: "/" + path, Protocol: "HTTP/1.1", Client: "127.0.0.1:5000",
		Sides: [2]storage.Message{{Head: []byte("GET /" + path + " HTTP/1.1\r\nHost: " + host + "\r\nCookie: s3cret\r\n\r\n")}},
	})
	rec.Change(func(s *storage.Session) {
		s.Status, s.ContentType = 200, "text/plain"
		s.Timing.ResponseHead = time.Now()
		s.Sides[storage.Response].Head = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: s3cret\r\n" + e.fields + "\r\n")
	})
	return rec
}

// record records a whole session and returns its id.
func (r *rig) record(e exchange) uint64 {
	r.Helper()
	rec := r.begin(e)
	for side, body := range map[storage.Side]string{storage.Request: e.request, storage.Response: e.response} {
		w := rec.Body(side)
		write(w, body)
		w.Complete()
	}
	rec.End(storage.Done, "")
	return rec.ID()
}

func write(w *storage.BodyWriter, body string) {
	for len(body) > 0 {
		n := min(len(body), 50_000)
		_, _ = w.Write([]byte(body[:n]))
		w.Wait(context.Background())
		body = body[n:]
	}
}

// call sends a request with the token. fields are name, value, …; an empty value takes the field away.
func (r *rig) call(method, path, body string, fields ...string) *http.Response {
	r.Helper()
	req, err := http.NewRequest(method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		switch {
		case fields[i] == "Host":
			req.Host = fields[i+1]
		case fields[i+1] == "":
			req.Header.Del(fields[i])
		default:
			req.Header.Set(fields[i], fields[i+1])
		}
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { res.Body.Close() })
	return res
}

// text is the answer's body.
func (r *rig) text(res *http.Response) string {
	r.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

// json reads the answer, which must have the status, into v.
func (r *rig) json(res *http.Response, status int, v any) {
	r.Helper()
	text := r.text(res)
	if res.StatusCode != status {
		r.Fatalf("%s %s: got %s, want %d: %s", res.Request.Method, res.Request.URL, res.Status, status, text)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		r.Fatalf("%s: %v", text, err)
	}
}

// eventually waits until fn is true. It is for what another goroutine does by itself, without an event to wait for.
func eventually(t testing.TB, what string, fn func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be: %s", what)
		}
	}
}
