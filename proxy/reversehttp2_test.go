package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"millpond/storage"
)

// cleartextServer says what it was asked, over HTTP/1.1, and HTTP/2 where the client knows before.
func cleartextServer(t *testing.T, http2 bool) (addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Proto, r.Host) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(http2)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func reverseTo(t *testing.T, p *testProxy, url string) (addr string) {
	t.Helper()
	to := mustReverse(t, url)
	return p.listenToo("127.0.0.1:0", func(l net.Listener) error { return p.p.ServeReverse(l, to) })
}

// curl over HTTP/2, by prior knowledge and by ALPN, to upstreams with and without TLS. What upstream does not speak is not offered.
func TestCurlReverseHTTP2(t *testing.T) {
	secure := "localhost:" + webServer(t, upstreamCA().issue(nil, "localhost"))
	clear, old := cleartextServer(t, true), cleartextServer(t, false)
	oldSecure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Proto, r.Host) }))
	t.Cleanup(oldSecure.Close)
	for _, test := range []struct{ name, upstream, scheme, flag, proto string }{
		{"plain to TLS", "https://" + secure, "http", "--http2-prior-knowledge", "HTTP/2.0"},
		{"plain to plain", "http://" + clear, "http", "--http2-prior-knowledge", "HTTP/2.0"},
		{"TLS to TLS", "https://" + secure, "https", "--http2", "HTTP/2.0"},
		{"TLS, HTTP/1.1 asked for", "https://" + secure, "https", "--http1.1", "HTTP/1.1"},
		{"TLS to plain", "http://" + old, "https", "--http2", "HTTP/1.1"},
		{"TLS to TLS without HTTP/2", oldSecure.URL, "https", "--http2", "HTTP/1.1"},
		{"plain, HTTP/1.1", "https://" + secure, "http", "--http1.1", "HTTP/1.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			roots := upstreamCA().pool()
			roots.AddCert(oldSecure.Certificate())
			p := startProxy(t, Config{UpstreamRoots: roots})
			url := test.scheme + "://" + reverseTo(t, p, test.upstream) + "/x"
			_, host, _ := strings.Cut(test.upstream, "://")
			urls := []string{url, url}
			if test.flag == "--http2-prior-knowledge" {
				urls = urls[1:] // curl 7.88 sends a second one wrong, to any server
			}
			out, code := run(t, "", "curl", append([]string{"-sS", test.flag, "--cacert", caFile(t)}, urls...)...)
			if want := strings.Repeat(test.proto+" "+host, len(urls)); code != 0 || out != want {
				t.Fatalf("curl: %d: %s, want %s", code, out, want)
			}
			for i, s := range p.all(len(urls)) {
				head, received := string(s.Sides[storage.Request].Head), string(s.Sides[storage.Request].Received)
				if s.State != storage.Done || s.Scheme+"://"+s.Host != test.upstream || s.Path != "/x" || !s.HasFlag(storage.FlagReverse) || s.HasFlag(storage.FlagReused) != (i == 1) {
					t.Errorf("session %v %s %s %s %v %q", s.State, s.Scheme, s.Host, s.Path, s.Flags, s.Error)
				}
				if asked := strings.TrimPrefix(url, test.scheme+"://"); !strings.Contains(head, ": "+host) || !strings.Contains(received, ": "+strings.TrimSuffix(asked, "/x")) {
					t.Errorf("sent %q, received %q", head, received)
				}
			}
		})
	}
}

// Where upstream speaks no HTTP/2, or cannot be reached, a client that speaks nothing else is told so.
func TestReverseHTTP2Refused(t *testing.T) {
	oldSecure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(oldSecure.Close)
	nobody := listenLocal(t)
	nobody.Close()
	for upstream, why := range map[string]string{oldSecure.URL: "HTTP/2", "http://" + nobody.Addr().String(): "refused", "https://" + nobody.Addr().String(): "refused"} {
		roots := x509.NewCertPool()
		roots.AddCert(oldSecure.Certificate())
		p := startProxy(t, Config{UpstreamRoots: roots})
		out, code := run(t, "", "curl", "-sS", "-i", "--http2-prior-knowledge", "http://"+reverseTo(t, p, upstream)+"/x")
		if code != 0 || !strings.HasPrefix(out, "HTTP/2 502") || !strings.Contains(out, why) {
			t.Errorf("curl to %s: %d: %s", upstream, code, out)
		}
		if s := p.next(); s.State != storage.Failed || s.Status != 502 || s.Path != "/x" || s.Scheme+"://"+s.Host != upstream || !s.HasFlag(storage.FlagReverse) {
			t.Errorf("session %v %d %s %s %s %q", s.State, s.Status, s.Scheme, s.Host, s.Path, s.Error)
		}
	}
	// One without TLS says in its own way that it does not understand.
	p := startProxy(t, Config{})
	if out, code := run(t, "", "curl", "-sS", "--http2-prior-knowledge", "http://"+reverseTo(t, p, "http://"+cleartextServer(t, false))+"/x"); code == 0 {
		t.Errorf("curl to a server of HTTP/1.1 alone: %s", out)
	}
	if s := p.next(); s.State == storage.Done || !strings.Contains(s.Error, "HTTP/2") {
		t.Errorf("session %v %q", s.State, s.Error)
	}
}

// A connection that was made ahead of a request, over TLS that agreed on HTTP/1.1, may have been closed by upstream when the request comes, or by then be of no use.
func TestReverseRequestLongAfterTheHandshake(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	origin.Config.ReadHeaderTimeout = 100 * time.Millisecond // and then it closes what is silent
	origin.StartTLS()
	t.Cleanup(origin.Close)
	roots := x509.NewCertPool()
	roots.AddCert(origin.Certificate())
	p := startProxy(t, Config{UpstreamRoots: roots})
	trusted := x509.NewCertPool()
	trusted.AddCert(testCA().Certificate())
	for begin, want := range map[string]string{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n": "HTTP/1.1 200 OK", http2.ClientPreface: "\x00\x00"} {
		nc, err := tls.Dial("tcp", reverseTo(t, p, origin.URL), &tls.Config{RootCAs: trusted, NextProtos: []string{"h2", "http/1.1"}, ServerName: "127.0.0.1"})
		if err != nil || nc.ConnectionState().NegotiatedProtocol != "http/1.1" {
			t.Fatal(err, nc.ConnectionState().NegotiatedProtocol)
		}
		time.Sleep(aheadTime + 300*time.Millisecond)
		io.WriteString(nc, begin)
		got := make([]byte, len(want))
		if io.ReadFull(nc, got); string(got) != want {
			t.Errorf("%.20q: got %q", begin, got)
		}
		nc.Close()
	}
}

// plain is a codec of gRPC whose messages are their bytes.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (plain) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (plain) Name() string                    { return "plain" }

// A Go gRPC client of a listener in reverse mode, plain and over TLS: it speaks HTTP/2 alone.
func TestReverseGRPC(t *testing.T) {
	serve := func(options ...grpc.ServerOption) (addr string) {
		l := listenLocal(t)
		s := grpc.NewServer(append(options, grpc.ForceServerCodec(plain{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			for {
				var message []byte
				if err := s.RecvMsg(&message); errors.Is(err, io.EOF) {
					return status.Error(codes.NotFound, "no more")
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(&message); err != nil {
					return err
				}
			}
		}))...)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	cert := upstreamCA().issue(nil, "127.0.0.1")
	secure, clear := serve(grpc.Creds(credentials.NewServerTLSFromCert(&cert))), serve()
	roots := x509.NewCertPool()
	roots.AddCert(testCA().Certificate())
	for _, test := range []struct {
		upstream string
		creds    credentials.TransportCredentials
	}{
		{"https://" + secure, insecure.NewCredentials()},
		{"https://" + secure, credentials.NewTLS(&tls.Config{RootCAs: roots})},
		{"http://" + clear, insecure.NewCredentials()},
	} {
		p := startProxy(t, Config{})
		client, err := grpc.NewClient("passthrough:///"+reverseTo(t, p, test.upstream), grpc.WithTransportCredentials(test.creds), grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := client.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Talk")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 { // each waits for the answer to the one before
			sent, got := []byte(strings.Repeat("word ", i*100)), []byte(nil)
			if err := errors.Join(stream.SendMsg(&sent), stream.RecvMsg(&got)); err != nil || string(got) != string(sent) {
				t.Fatalf("%s, %s: message %d came back as %d bytes, %v", test.upstream, test.creds.Info().SecurityProtocol, i, len(got), err)
			}
		}
		stream.CloseSend()
		var got []byte
		if err := stream.RecvMsg(&got); status.Code(err) != codes.NotFound {
			t.Errorf("the call ended with %v", err)
		}
		s := p.next()
		if s.State != storage.Done || s.Path != "/test.Echo/Talk" || s.Protocol != "HTTP/2" || s.Scheme+"://"+s.Host != test.upstream || !strings.Contains(string(s.Sides[storage.Response].Trailers), "grpc-status: 5") {
			t.Errorf("session %v %s %s, trailers %q, %q", s.State, s.Host, s.Path, s.Sides[storage.Response].Trailers, s.Error)
		}
		client.Close()
	}
}
