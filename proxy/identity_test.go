package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"millpond/storage"
)

// sizes are those around what buffers, the log and chunks hold.
var sizes = []int{0, 1, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145, 4<<20 - 1, 4 << 20, 4<<20 + 1, 9 << 20}

// chunkedBody frames a body in chunks of odd and even sizes, with extensions and trailers.
func chunkedBody(body string, trailers string) string {
	var out strings.Builder
	steps := []int{1, 16, 4096, 70_000, 3, 1 << 20}
	for i := 0; len(body) > 0; i++ {
		n := min(steps[i%len(steps)], len(body))
		fmt.Fprintf(&out, "%X;ext=\"%d\"\r\n%s\r\n", n, i, body[:n])
		body = body[n:]
	}
	out.WriteString("000\r\n" + trailers + "\r\n")
	return out.String()
}

func TestResponsesKeepTheirBytes(t *testing.T) {
	const trailers = "X-Sum: caf\xe9\r\nx-EMPTY:\r\n"
	for _, how := range []string{"length", "chunked", "until close"} {
		t.Run(how, func(t *testing.T) {
			h := startHarness(t, Config{})
			var answers []string
			for _, n := range sizes {
				body := pattern(n)
				switch how {
				case "length":
					answers = append(answers, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, body))
				case "chunked":
					answers = append(answers, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunkedBody(body, trailers))
				default:
					answers = append(answers, "HTTP/1.1 200 OK\r\n\r\n"+body)
				}
			}
			addr := serveEach(t, func(u *peerConn) {
				for {
					raw, err := readHead(u.r, 1<<20)
					if err != nil {
						return
					}
					var i int
					fmt.Sscanf(string(raw), "GET /%d ", &i)
					if _, err := io.WriteString(u, answers[i]); err != nil || how == "until close" {
						return
					}
				}
			})
			c := h.dial()
			for i, n := range sizes {
				if how == "until close" {
					c = h.dial()
				}
				c.send(fmt.Sprintf("GET http://%s/%d HTTP/1.1\r\nHost: %s\r\n\r\n", addr, i, addr))
				got := make([]byte, len(answers[i]))
				if m, err := io.ReadFull(c.r, got); err != nil || string(got) != answers[i] {
					t.Fatalf("%d bytes: the client got %d of %d bytes, %v", n, m, len(answers[i]), err)
				}
				if how == "until close" {
					c.expectEnd()
				}
				s := h.session(uint64(i + 1))
				if s.State != storage.Done {
					t.Errorf("%d bytes: %v, %s", n, s.State, s.Error)
				}
				h.expectBody(s, storage.Response, pattern(n))
				if how == "chunked" && string(s.Sides[storage.Response].Trailers) != trailers+"\r\n" {
					t.Errorf("trailers: got %q", s.Sides[storage.Response].Trailers)
				}
			}
		})
	}
}

func TestUploadsKeepTheirBytes(t *testing.T) {
	const trailers = "X-Sum: caf\xe9\r\n"
	for _, how := range []string{"length", "chunked"} {
		t.Run(how, func(t *testing.T) {
			h := startHarness(t, Config{})
			var bodies []string
			for _, n := range sizes {
				if how == "length" {
					bodies = append(bodies, pattern(n))
				} else {
					bodies = append(bodies, chunkedBody(pattern(n), trailers))
				}
			}
			type arrival struct{ head, body string }
			arrived := make(chan arrival, 1)
			addr := serveEach(t, func(u *peerConn) {
				for i := 0; ; i++ {
					raw, err := readHead(u.r, 1<<20)
					if err != nil {
						return
					}
					body := make([]byte, len(bodies[i]))
					if _, err := io.ReadFull(u.r, body); err != nil {
						t.Errorf("upload %d: %v", i, err)
						return
					}
					arrived <- arrival{string(raw), string(body)}
					u.send("HTTP/1.1 204 No Content\r\n\r\n")
				}
			})
			c := h.dial()
			for i, n := range sizes {
				fields := fmt.Sprintf("Host: %s\r\nContent-Length: %d\r\n\r\n", addr, n)
				if how == "chunked" {
					fields = fmt.Sprintf("Host: %s\r\nTransfer-Encoding: chunked\r\n\r\n", addr)
				}
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(c, fmt.Sprintf("POST http://%s/ HTTP/1.1\r\n", addr)+fields+bodies[i])
					sent <- err
				}()
				got := <-arrived
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				if got.head != "POST / HTTP/1.1\r\n"+fields || got.body != bodies[i] {
					t.Errorf("%d bytes: the origin got another body (%d bytes) or the head %q", n, len(got.body), got.head)
				}
				c.expect("HTTP/1.1 204 No Content\r\n\r\n")
				s := h.session(uint64(i + 1))
				if s.State != storage.Done || s.Timing.RequestSent.IsZero() {
					t.Errorf("%d bytes: %v, %s, sent at %v", n, s.State, s.Error, s.Timing.RequestSent)
				}
				h.expectBody(s, storage.Request, pattern(n))
				if how == "chunked" && string(s.Sides[storage.Request].Trailers) != trailers+"\r\n" {
					t.Errorf("trailers: got %q", s.Sides[storage.Request].Trailers)
				}
			}
		})
	}
}

// TestBothDirectionsAtOnce echoes a body while it is being sent, which takes a relay that waits for neither side.
func TestBothDirectionsAtOnce(t *testing.T) {
	h := startHarness(t, Config{})
	const n = 8 << 20
	addr := serveEach(t, func(u *peerConn) {
		u.head()
		u.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n))
		io.CopyN(u, u.r, n)
	})
	c := h.dial()
	body := []byte(pattern(n))
	go c.Write(append([]byte(fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", addr, addr, n)), body...))
	c.head()
	got := sha256.New()
	if _, err := io.CopyN(got, c.r, n); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(body); !bytes.Equal(got.Sum(nil), want[:]) {
		t.Error("the echo is another")
	}
	s := h.session(1)
	h.expectBody(s, storage.Request, string(body))
	h.expectBody(s, storage.Response, string(body))
}
