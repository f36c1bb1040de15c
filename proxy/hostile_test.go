package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// TestRefusalsQuoteNothing: an error and the proxy's own answer are shown where a session's credentials are hidden.
func TestRefusalsQuoteNothing(t *testing.T) {
	h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error {
		if v := r.Header.Get("X-Break"); v != "" {
			r.Header.Set("X-Break", v+"\n")
		}
		return nil
	})})
	o := startOrigin(t)
	start := "POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\n"
	for i, in := range []string{
		start + "Cookie : SECRET\r\n\r\n",
		start + "Cookie SECRET\r\n\r\n",
		start + "SECRET: a; b :c\r\nCookie: SECRET\rX: y\r\n\r\n",
		start + "Cookie: \x00SECRET\r\n\r\n",
		start + "X-Break: SECRET\r\n\r\n",
		start + "Content-Length: SECRET\r\n\r\n",
		start + "Content-Length: 4567\r\nContent-Length: 5678\r\n\r\n",
		start + "Transfer-Encoding: SECRET\r\n\r\n",
		"POST / HTTP/1.1\r\n SECRET\r\n\r\n",
		"Cookie: SECRET\r\n\r\n",
		"POST SECRET\r\n\r\n",
		"POST SECRET a HTTP/1.1\r\n\r\n",
		"POST / SECRET\r\n\r\n",
		"POST SECRET HTTP/1.1\r\n\r\n",
		"POST SECRET://a/ HTTP/1.1\r\n\r\n",
		"POST http://me:SECRET@/ HTTP/1.1\r\n\r\n",
		"CONNECT SECRET HTTP/1.1\r\n\r\n",
	} {
		c := h.dial()
		c.send(in)
		got, _ := c.rest()
		s := h.session(uint64(i + 1))
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 502") {
			t.Errorf("%q: got %q", in, got)
		}
		for _, secret := range []string{"SECRET", "4567"} {
			if strings.Contains(strings.ToUpper(got+s.Error), secret) {
				t.Errorf("%q is told: %q, %q", in, s.Error, got)
			}
		}
	}
}

func TestErrorOfAMovedExchangeQuotesNoField(t *testing.T) {
	other := serveAnswer(t, "HTTP/1.1 200 OK\r\nSet-Cookie SECRET\r\n\r\n")
	h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error {
		r.URL.Host = other
		return nil
	})})
	c := h.dial()
	c.send(get("asked.invalid", "/"))
	got, _ := c.rest()
	if s := h.session(1); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(s.Error, "not HTTP") || strings.Contains(got+s.Error, "SECRET") {
		t.Errorf("got %q, %q", got, s.Error)
	}
}

func TestHeadsThatTwoProgramsReadDifferentlyAreRefused(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	start := "GET http://" + o.addr + "/ HTTP/1.1\r\nHost: "
	for i, tt := range []struct{ name, in, want string }{
		{"NUL in a value", start + o.addr + "\r\nX: a\x00b\r\n\r\n", "a NUL byte stands in line 3"},
		{"NUL in a name", start + o.addr + "\r\nCookie\x00: b\r\n\r\n", "a NUL byte stands in line 3"},
		{"NUL in the target", "GET http://" + o.addr + "/\x00 HTTP/1.1\r\n\r\n", "a NUL byte stands in line 1"},
		{"vertical tab after a name", start + o.addr + "\r\nTransfer-Encoding\x0b: chunked\r\n\r\n", "a control byte stands in the name of line 3"},
		{"no-break space after a framing name", start + o.addr + "\r\nContent-Length\xa0: 3\r\n\r\n", "is Content-Length to who trims it"},
		{"folded Host", start + "x\r\n .example\r\nX: y\r\n\r\n", "the field Host is folded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.dial()
			c.send(tt.in)
			if got, _ := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q", got)
			}
			if s := h.session(uint64(i + 1)); s.State != storage.Failed || s.Status != 400 || string(s.Sides[storage.Request].Head) != tt.in {
				t.Errorf("got %v, %d, %q", s.State, s.Status, s.Sides[storage.Request].Head)
			}
		})
	}
	if len(o.conns) > 0 {
		t.Error("one went upstream")
	}
}

// TestEmptyLineKeepsItsEnd: a head may end its lines in two ways, and what is rewritten keeps the empty line's.
func TestEmptyLineKeepsItsEnd(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send("GET http://" + o.addr + "/a HTTP/1.1\r\nHost: " + o.addr + "\r\nX: y\n\n")
	up := o.accept()
	up.expect("GET /a HTTP/1.1\r\nHost: " + o.addr + "\r\nX: y\n\n")
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.head()
}

func TestOwnAnswerToHEADHasNoBody(t *testing.T) {
	h := startHarness(t, Config{})
	l := listenLocal(t)
	l.Close()
	for i, in := range []string{
		"HEAD http://" + l.Addr().String() + "/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"HEAD http://a/ HTTP/1.1\r\nHost : a\r\n\r\n",
		"HEAD http://a/ HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n",
	} {
		c := h.dial()
		c.send(in)
		if got, _ := c.rest(); !strings.HasSuffix(got, "\r\n\r\n") || !strings.Contains(got, "\r\nContent-Length: ") {
			t.Errorf("%q: got %q", in, got)
		}
		if s := h.session(uint64(i + 1)); s.Error == "" || s.Sides[storage.Response].Body.Size != 0 {
			t.Errorf("got %q and %d bytes", s.Error, s.Sides[storage.Response].Body.Size)
		}
	}
}

// TestBytesAfterAResponseAreTold: they reach nobody, and the session says that they came.
func TestBytesAfterAResponseAreTold(t *testing.T) {
	for _, tt := range []struct{ name, method, answer, want string }{
		{"a second response", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"a body after HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"},
		{"a body after 204", "GET", "HTTP/1.1 204 No Content\r\n\r\nok", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"a body after 304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			addr := serveAnswer(t, tt.answer)
			c := h.dial()
			c.send(strings.Replace(get(addr, "/"), "GET", tt.method, 1))
			c.expect(tt.want)
			s := h.session(1)
			if s.State != storage.Done || !s.HasFlag(storage.FlagAmbiguousFraming) || !strings.Contains(s.Error, "more after the end") {
				t.Errorf("got %v, %q, %q", s.State, s.Flags, s.Error)
			}
			c.Conn.(*net.TCPConn).CloseWrite()
			if rest, _ := c.rest(); rest != "" {
				t.Errorf("then came %q", rest)
			}
		})
	}
}

// TestRecordedBodyWaitsForTheDisk: a body that goes to where a modifier moved it is held back like any other, and none of it is lost.
func TestRecordedBodyWaitsForTheDisk(t *testing.T) {
	const size = 80 << 20
	store, disk := storeOnDisk(t)
	release := disk.Stall(storagetest.Write | storagetest.Sync)
	defer release()
	rec := store.Begin(storage.Session{})
	var passed atomic.Int64
	body := &recordedBody{t.Context(), io.NopCloser(io.LimitReader(neverending('x'), size)), rec.Body(storage.Request)}
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(counter{&passed}, body)
		done <- err
	}()
	last := int64(-1)
	for deadline := time.Now().Add(patience); ; time.Sleep(300 * time.Millisecond) {
		now := passed.Load()
		if now == last && now > 0 {
			break
		}
		if last = now; time.Now().After(deadline) {
			t.Fatalf("it was not held back after %d bytes", now)
		}
	}
	if last == size {
		t.Error("it was not held back")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	rec.End(storage.Done, "")
	s, err := store.Session(1)
	if b := s.Sides[storage.Request].Body; err != nil || !b.Complete || b.Size != size || b.Missing != "" {
		t.Errorf("kept %d bytes, %q, %v", b.Size, b.Missing, err)
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestSilentCloseAfterTLSIsNoRow: surplus connections do so, to a host that was asked something before, or after a while. A client that rejects the
// certificate after its last handshake message sends an alert, or leaves at once.
func TestSilentCloseAfterTLSIsNoRow(t *testing.T) {
	p := startProxy(t, Config{})
	p.p.leavesAtOnce = 0
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c, err := p.handshake(addr, &tls.Config{ServerName: "example.com", MaxVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		c.NetConn().Close()
	}
	tunnel := &spoiled{Conn: p.tunnelTo(addr)}
	c := tls.Client(tunnel, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	tunnel.spoil.Store(true)
	c.Read(make([]byte, 1)) // which finds a record that cannot be decrypted, and sends an alert
	p.wantFailed("bad record MAC")
}

// spoiled is a connection from which, once spoil is set, a client of TLS reads a record that nobody sent.
type spoiled struct {
	net.Conn
	spoil atomic.Bool
	given int
}

func (s *spoiled) Read(p []byte) (int, error) {
	if !s.spoil.Load() {
		return s.Conn.Read(p)
	}
	record := append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...)
	n := copy(p, record[s.given:])
	s.given += n
	return n, nil
}
