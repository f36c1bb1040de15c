package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// TestBadRequestsAreAnsweredAndRecorded sends what must not go upstream.
func TestBadRequestsAreAnsweredAndRecorded(t *testing.T) {
	h := startHarness(t, Config{Limits: Limits{HeadTime: 300 * time.Millisecond}})
	o := startOrigin(t)
	post := "POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\n"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	n := uint64(0)
	for _, tt := range []struct {
		name, in string
		status   int
		want     string
		flag     string
	}{
		{"garbage", "\x00\x01\x02 hello\r\n\r\n", 400, "not an HTTP request", ""},
		{"half a head, then silence", "GET http://a/ HTTP/1.1\r\nHost", 408, "not complete after 300ms", ""},
		{"an endless line", "GET http://a/ HTTP/1.1\r\nX: " + strings.Repeat("x", 300<<10), 431, "larger than 256 KiB", ""},
		{"both framings", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400, "both Transfer-Encoding and Content-Length", storage.FlagAmbiguousFraming},
		{"lengths that differ", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400, "differ", storage.FlagAmbiguousFraming},
		{"coding that does not end in chunked", post + "Transfer-Encoding: gzip\r\n\r\n", 400, "does not end in chunked", storage.FlagAmbiguousFraming},
		{"space before the colon", post + "Content-Length : 3\r\n\r\nabc", 400, "space stands before the colon", ""},
		{"bare CR", post + "X: a\rContent-Length: 3\r\n\r\nabc", 400, "carriage return", ""},
		{"folded framing", post + "Transfer-Encoding:\r\n chunked\r\n\r\n", 400, "folded", ""},
		{"other scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "only http and https", ""},
		{"no host", "GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "does not name a host", ""},
		{"neither path nor URL", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "neither a path nor a URL", ""},
		{"CONNECT without a port", "CONNECT a HTTP/1.1\r\n\r\n", 400, "not a host and a port", ""},
		{"closed port", get(closed, "/"), 502, "refused", ""},
		{"unknown host", get("no-such-host.invalid", "/"), 502, "no-such-host.invalid", ""},
		{"port that is none", get("localhost:99999", "/"), 400, "99999", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.dial()
			go io.WriteString(c.Conn, tt.in)
			got, _ := c.rest()
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d %s\r\n", tt.status, http.StatusText(tt.status))) || !strings.Contains(got, "\r\n\r\nMillpond: ") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %d with %q", got, tt.status, tt.want)
			}
			n++
			s := h.session(n)
			if s.State != storage.Failed || s.Status != tt.status || !strings.Contains(s.Error, tt.want) || tt.flag != "" && !s.HasFlag(tt.flag) {
				t.Errorf("got %v, %d, %q, %q", s.State, s.Status, s.Error, s.Flags)
			}
			if m := s.Sides[storage.Request]; len(m.Head) == 0 || !strings.HasPrefix(tt.in, string(m.Head)) && string(m.Received) != tt.in {
				t.Errorf("request head: got %q, received %q", m.Head, m.Received)
			}
		})
	}
	select {
	case <-o.conns:
		t.Error("one went upstream")
	default:
	}
}

// TestBrokenChunksOfARequest: the head has been sent on, so upstream must not take the request for complete.
func TestBrokenChunksOfARequest(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n")
	up := o.accept()
	up.head()
	if rest, _ := up.rest(); strings.Contains(rest, "0\r\n\r\n") {
		t.Errorf("upstream got %q", rest)
	}
	if got, _ := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "line feed without carriage return") {
		t.Errorf("got %q", got)
	}
	if s := h.session(1); s.Status != 400 || !s.HasFlag(storage.FlagAmbiguousFraming) {
		t.Errorf("got %v, %d, %q, %q", s.State, s.Status, s.Error, s.Flags)
	}
}

func TestAmbiguousResponses(t *testing.T) {
	for _, tt := range []struct{ name, answer, want, body string }{
		{
			"both framings: the length goes", "HTTP/1.1 200 OK\r\nA: b\r\ncontent-LENGTH: 3\r\nTransfer-Encoding: chunked\r\nC: d\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\nC: d\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc",
		},
		{"lengths differ", "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabcd", "", "abcd"},
		{"a NUL byte", "HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 3\r\n\r\nabcd", "", "abcd"},
		{"a control byte in a name", "HTTP/1.1 200 OK\r\nTransfer-Encoding\x0b: chunked\r\nContent-Length: 3\r\n\r\nabcd", "", "abcd"},
		{"a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabcd", "", "abcd"},
		{"coding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "", "3\r\nabc\r\n0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			addr := serveAnswer(t, tt.answer)
			c := h.dial()
			c.send(get(addr, "/"))
			want := tt.want
			if want == "" {
				want = tt.answer
			}
			c.expect(want)
			c.Conn.(*net.TCPConn).CloseWrite()
			if rest, _ := c.rest(); rest != "" {
				t.Errorf("then came %q", rest)
			}
			s := h.session(1)
			if s.State != storage.Done || !s.HasFlag(storage.FlagAmbiguousFraming) || s.HasFlag(storage.FlagModified) {
				t.Errorf("got %v, %q, %q", s.State, s.Error, s.Flags)
			}
			h.expectBody(s, storage.Response, tt.body)
			if tt.want != "" && !strings.HasPrefix(tt.answer, string(s.Sides[storage.Response].Received)) {
				t.Errorf("received: got %q", s.Sides[storage.Response].Received)
			}
		})
	}
}

func TestHostField(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	other := strings.Replace(o.addr, "127.0.0.1", "localhost", 1)
	for i, tt := range []struct {
		name, target, fields string
		want                 string
		differs              bool
	}{
		{"same", "http://" + o.addr, "Host: " + o.addr + "\r\nA: b\r\n", "GET / HTTP/1.1\r\nHost: " + o.addr + "\r\nA: b\r\n\r\n", false},
		{"missing", "http://" + o.addr + "/", "A: b\r\n", "GET / HTTP/1.1\r\nHost: " + o.addr + "\r\nA: b\r\n\r\n", false},
		{"different", "http://" + o.addr + "/", "A: b\r\nhost:x.example\r\nC: d\r\n", "GET / HTTP/1.1\r\nA: b\r\nhost: " + o.addr + "\r\nC: d\r\n\r\n", true},
		{"twice", "http://" + o.addr + "/", "Host: " + o.addr + "\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n", true},
		{"user and password", "http://me:secret@" + o.addr + "?q", "Host: " + o.addr + "\r\n", "GET /?q HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n", false},
		{"for the proxy", "HTTP://" + o.addr + "/", "Host: " + o.addr + "\r\nproxy-CONNECTION: x\r\nProxy-Authorization: y\r\nTE: trailers\r\n", "GET / HTTP/1.1\r\nHost: " + o.addr + "\r\nTE: trailers\r\n\r\n", false},
		{"a name", "http://" + other + "/", "Host: " + strings.ToUpper(other) + "\r\n", "GET / HTTP/1.1\r\nHost: " + strings.ToUpper(other) + "\r\n\r\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.dial()
			c.send("GET " + tt.target + " HTTP/1.1\r\n" + tt.fields + "\r\n")
			up := o.accept()
			up.expect(tt.want)
			up.send("HTTP/1.1 204 No Content\r\n\r\n")
			c.head()
			c.Close()
			if s := h.session(uint64(i + 1)); s.HasFlag(storage.FlagHostDiffers) != tt.differs || string(s.Sides[storage.Request].Head) != tt.want {
				t.Errorf("flags %q, head %q", s.Flags, s.Sides[storage.Request].Head)
			}
		})
	}
	t.Run("in a tunnel it passes", func(t *testing.T) {
		c := h.dial()
		c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
		c.head()
		const request = "GET /a HTTP/1.1\r\nHost: x.example\r\nProxy-Connection: x\r\n\r\n"
		c.send(request)
		up := o.accept()
		up.expect(request)
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.head()
		s := h.session(uint64(h.sessions()))
		if !s.HasFlag(storage.FlagHostDiffers) || s.Host != o.addr || s.Sides[storage.Request].Received != nil {
			t.Errorf("host %q, flags %q, received %q", s.Host, s.Flags, s.Sides[storage.Request].Received)
		}
	})
}

func TestSetup(t *testing.T) {
	h := startHarness(t, Config{Setup: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "set up %s for %s", r.URL.Path, r.Host)
	})})
	_, port, _ := net.SplitHostPort(h.addr)
	for _, tt := range []struct{ name, request, want string }{
		{"origin-form", "GET /ca HTTP/1.1\r\nHost: 10.0.0.1:8080\r\n\r\n", "set up /ca for 10.0.0.1:8080"},
		{"its name through the proxy", "GET http://millpond.internal/ca HTTP/1.1\r\nHost: millpond.internal\r\n\r\n", "set up /ca for millpond.internal"},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.dial()
			c.send(tt.request)
			c.head()
			if got, _ := c.rest(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if n := h.sessions(); n != 0 {
		t.Errorf("%d sessions were recorded", n)
	}
	for i, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "127.1", "2130706433", "LOCALHOST."} {
		t.Run("its own address as "+host, func(t *testing.T) {
			c := h.dial()
			c.send(get(host+":"+port, "/ca"))
			got, _ := c.rest()
			s := h.session(uint64(i + 1))
			if strings.HasPrefix(got, "HTTP/1.1 200 ") {
				if !strings.HasSuffix(got, "set up /ca for "+host+":"+port) || !s.HasFlag(storage.FlagAnswered) || s.State != storage.Done {
					t.Errorf("got %q; %v %q", got, s.State, s.Flags)
				}
				return
			}
			// A name that the system does not know is a row with the reason, like any other.
			if !strings.HasPrefix(got, "HTTP/1.1 50") || s.State != storage.Failed || s.Error == "" {
				t.Errorf("got %q; %v %q", got, s.State, s.Error)
			}
		})
	}
	c := h.dial()
	c.send("POST http://127.0.0.1:" + port + "/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	if got, _ := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 508 ") {
		t.Errorf("a POST to itself: got %q", got)
	}
}

// TestPanicWhileServingEndsOnlyThatClient uses a handler of the setup page, which is not the relay's own.
func TestPanicWhileServingEndsOnlyThatClient(t *testing.T) {
	h := startHarness(t, Config{
		Logger: slog.New(slog.DiscardHandler),
		Setup:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no page") }),
	})
	c := h.dial()
	c.send("GET / HTTP/1.1\r\n\r\n")
	c.expectEnd()
	o := startOrigin(t)
	c = h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.expect("HTTP/1.1 204 No Content\r\n\r\n")
}
