package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
)

func TestUpstreamThatSpeaksFirstIsNotDelayed(t *testing.T) {
	addr := upstream(t, func(c net.Conn) {
		io.WriteString(c, "220 ready\r\n")
		io.Copy(c, c)
	})
	p := startProxy(t, Config{Limits: Limits{Sniff: time.Hour}}) // no timer can have let it through
	c := p.tunnelTo(addr)
	got := make([]byte, len("220 ready\r\n"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "220 ready\r\n" {
		t.Fatalf("got %q, %v", got, err)
	}
	io.WriteString(c, "GET / is not read here")
	closeWrite(c)
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "GET / is not read here" {
		t.Fatalf("got %q, %v", rest, err)
	}
	s := p.next()
	if s.State != storage.Done || !s.HasFlag(storage.FlagTunnel) || s.Protocol != "TCP" || s.Upstream != addr || s.Status != http.StatusOK {
		t.Errorf("session %+v", s)
	}
	p.expectBody(s, storage.Response, "220 ready\r\nGET / is not read here")
}

// A slow client is not a silent one: 350 ms is longer than the time an undecided prefix has.
func TestSlowClientHelloIsIntercepted(t *testing.T) {
	addr := upstreamTLS(t, &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "example.com")}}, nil)
	p := startProxy(t, Config{Limits: Limits{Sniff: 100 * time.Millisecond}})
	tunnel := p.tunnelTo(addr)
	time.Sleep(350 * time.Millisecond)
	c := tls.Client(tunnel, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if issuer := c.ConnectionState().PeerCertificates[0].Issuer.CommonName; issuer != testCA().Certificate().Subject.CommonName {
		t.Errorf("the certificate is %q's: the handshake was not intercepted", issuer)
	}
}

func TestUndecidedPrefixPassesAfterItsTime(t *testing.T) {
	addr := upstream(t, func(c net.Conn) { io.Copy(c, c) })
	p := startProxy(t, Config{Limits: Limits{Sniff: 50 * time.Millisecond}})
	c := p.tunnelTo(addr)
	io.WriteString(c, "GE")
	got := make([]byte, 2)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "GE" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// What a client sends along with CONNECT is not lost.
func TestBytesSentBeforeTheAnswerArrive(t *testing.T) {
	addr := upstream(t, func(c net.Conn) { io.Copy(c, c) })
	p := startProxy(t, Config{})
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n\x00early", addr)
	want := established + "\x00early"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func TestTunnelKeepsBothBodies(t *testing.T) {
	const size = 3<<20 + 17 // beyond largeAfter, and not on any boundary
	sent, answer := make([]byte, size), make([]byte, size)
	rand.Read(sent)
	rand.Read(answer)
	sent[0] = 0 // neither TLS nor HTTP
	arrived := make(chan [32]byte, 1)
	addr := upstream(t, func(c net.Conn) {
		go c.Write(answer) // both directions at once
		h := sha256.New()
		io.Copy(h, c)
		arrived <- [32]byte(h.Sum(nil))
		closeWrite(c)
	})
	p := startProxy(t, Config{})
	c := p.tunnelTo(addr)
	go func() {
		c.Write(sent)
		closeWrite(c)
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("the client got %d bytes, %v; want the %d that upstream sent", len(got), err, size)
	}
	if <-arrived != sha256.Sum256(sent) {
		t.Error("upstream got other bytes than the client sent")
	}
	s := p.next()
	if s.State != storage.Done {
		t.Errorf("session is %v, %q", s.State, s.Error)
	}
	for side, want := range map[storage.Side][]byte{storage.Request: sent, storage.Response: answer} {
		sum, err := p.store.SHA256(context.Background(), s.ID, side)
		if err != nil {
			t.Fatal(err)
		}
		if want := sha256.Sum256(want); !bytes.Equal(sum, want[:]) {
			t.Errorf("the stored %v differs from what passed", side)
		}
		if b := s.Sides[side].Body; !b.Complete || b.Size != size {
			t.Errorf("the %v body is %d bytes, complete: %v", side, b.Size, b.Complete)
		}
	}
}

func TestTunnelPassesHalfClose(t *testing.T) {
	t.Run("of the client", func(t *testing.T) {
		addr := upstream(t, func(c net.Conn) {
			asked, _ := io.ReadAll(c) // returns at the client's end only
			fmt.Fprintf(c, "%d bytes", len(asked))
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		io.WriteString(c, "\x00ask")
		closeWrite(c)
		if got, err := io.ReadAll(c); err != nil || string(got) != "4 bytes" {
			t.Fatalf("got %q, %v", got, err)
		}
		if s := p.next(); s.State != storage.Done {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
	t.Run("of upstream", func(t *testing.T) {
		asked := make(chan string, 1)
		addr := upstream(t, func(c net.Conn) {
			io.WriteString(c, "all I have")
			closeWrite(c)
			b, _ := io.ReadAll(c)
			asked <- string(b)
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		if got, err := io.ReadAll(c); err != nil || string(got) != "all I have" {
			t.Fatalf("got %q, %v", got, err)
		}
		io.WriteString(c, "still sending")
		closeWrite(c)
		if got := <-asked; got != "still sending" {
			t.Errorf("upstream got %q", got)
		}
		if s := p.next(); s.State != storage.Done {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
	t.Run("before a byte", func(t *testing.T) {
		addr := upstream(t, func(c net.Conn) {
			io.ReadAll(c)
			io.WriteString(c, "bye")
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		closeWrite(c)
		if got, err := io.ReadAll(c); err != nil || string(got) != "bye" {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

func TestTunnelPassesResets(t *testing.T) {
	t.Run("of upstream", func(t *testing.T) {
		addr := upstream(t, func(c net.Conn) {
			io.ReadFull(c, make([]byte, 4))
			breakOff(c)
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		io.WriteString(c, "\x00ask")
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's read ended with %v, want a reset", err)
		}
		if s := p.next(); s.State != storage.UpstreamAborted || !strings.Contains(s.Error, "upstream broke the connection") {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
	t.Run("of upstream, to a client that has ended its sending", func(t *testing.T) {
		addr := upstream(t, func(c net.Conn) {
			io.ReadAll(c)
			breakOff(c)
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		io.WriteString(c, "\x00ask")
		closeWrite(c)
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's read ended with %v, want a reset", err)
		}
		if s := p.next(); s.State != storage.UpstreamAborted {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
	t.Run("of the client", func(t *testing.T) {
		ended := make(chan error, 1)
		addr := upstream(t, func(c net.Conn) {
			io.WriteString(c, "hello")
			_, err := io.Copy(io.Discard, c)
			ended <- err
		})
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		io.ReadFull(c, make([]byte, 5))
		breakOff(c)
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("upstream's read ended with %v, want a reset", err)
		}
		if s := p.next(); s.State != storage.ClientAborted {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
}

func TestTunnelEndsWithItsReader(t *testing.T) {
	endless := func(t *testing.T) (addr string, ended chan error) {
		ended = make(chan error, 1)
		return upstream(t, func(c net.Conn) {
			_, err := io.Copy(c, zeros{})
			ended <- err
		}), ended
	}
	t.Run("that leaves", func(t *testing.T) {
		addr, ended := endless(t)
		p := startProxy(t, Config{})
		c := p.tunnelTo(addr)
		io.ReadFull(c, make([]byte, 1<<20))
		c.Close()
		if err := <-ended; err == nil {
			t.Error("upstream's write did not fail")
		}
		s := p.next()
		if s.State != storage.ClientAborted || !strings.Contains(s.Error, "the client broke the connection") {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
		if b := s.Sides[storage.Response].Body; b.Complete || b.Size < 1<<20 {
			t.Errorf("the response's body is %d bytes, complete: %v; want what passed, not complete", b.Size, b.Complete)
		}
	})
	t.Run("that stalls", func(t *testing.T) {
		addr, ended := endless(t)
		p := startProxy(t, Config{Limits: Limits{StallTime: 200 * time.Millisecond}})
		p.tunnelTo(addr)
		if err := <-ended; err == nil {
			t.Error("upstream's write did not fail")
		}
		if s := p.next(); s.State != storage.ClientAborted || !strings.Contains(s.Error, "the client accepted no bytes for too long") {
			t.Errorf("session is %v, %q", s.State, s.Error)
		}
	})
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A client that half-closes and vanishes leaves nothing behind, although upstream stays silent.
func TestTunnelEndsWhenAHalfClosedPeerVanishes(t *testing.T) {
	p := startProxy(t, Config{}) // its end finds goroutines that are left
	near, far := tcpPair(t)      // client, and the proxy's end of it
	near2, far2 := tcpPair(t)    // upstream, and the proxy's end of it
	rec := p.store.Begin(storage.Session{Method: http.MethodConnect, Host: "example.com:1"})
	c, up := newConn(far, &client{}), newUpstream(far2, "", storage.Setup{}, nil)
	closeWrite(near)
	go func() {
		io.ReadAll(near2) // the half-close has passed
		breakOff(near)    // as keepalive finds it when the socket is gone
	}()
	state, why := relayRaw(context.Background(), c, up, rec, time.Minute, 10*time.Millisecond)
	rec.End(state, why)
	if state != storage.ClientAborted || !strings.Contains(why, "vanished") {
		t.Errorf("the tunnel ended as %v, %q", state, why)
	}
	near2.Close()
}

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l := listenLocal(t)
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestTunnelsLeaveNoGoroutines(t *testing.T) {
	addr := upstream(t, func(c net.Conn) { io.Copy(c, c) })
	p := startProxy(t, Config{})
	before := goroutines()
	for range 20 {
		c := p.tunnelTo(addr)
		io.WriteString(c, "\x00")
		io.ReadFull(c, make([]byte, 1))
		c.Close()
	}
	p.all(20)
	if left := goroutinesLeft(before); left != "" {
		t.Errorf("goroutines were left behind, with the proxy still up:\n%s", left)
	}
}

// A stopped proxy ends its tunnels, and says so on their sessions.
func TestTunnelOfAStoppedProxyIsInterrupted(t *testing.T) {
	addr := upstream(t, func(c net.Conn) { io.Copy(c, c) })
	p := startProxy(t, Config{})
	c := p.tunnelTo(addr)
	io.WriteString(c, "\x00")
	io.ReadFull(c, make([]byte, 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.p.Shutdown(ctx)
	if s := p.next(); s.State != storage.Interrupted {
		t.Errorf("session is %v, %q", s.State, s.Error)
	}
}

func TestConnectThatIsRefused(t *testing.T) {
	l := listenLocal(t)
	closed := l.Addr().String()
	l.Close()
	p := startProxy(t, Config{})
	for _, test := range []struct {
		authority string
		status    int
		want      string
	}{
		{closed, http.StatusBadGateway, "connection refused"},
		{"127.0.0.1:0", http.StatusBadRequest, "not a host and a port"},
		{"127.0.0.1", http.StatusBadRequest, "not a host and a port"},
		{"127.0.0.1:x", http.StatusBadRequest, "not a host and a port"},
	} {
		t.Run(test.authority, func(t *testing.T) {
			_, res := p.connect(test.authority)
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != test.status || !strings.Contains(string(body), test.want) {
				t.Errorf("the client got %s %q, want %d with %q", res.Status, body, test.status, test.want)
			}
			s := p.wantFailed(test.want)
			if s.Status != test.status || p.body(s.ID, storage.Response) != string(body) {
				t.Errorf("session has status %d and another answer than the client", s.Status)
			}
		})
	}
}
