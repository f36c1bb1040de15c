package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// promptly checks how long bytes were under way: 100 ms at most. The machine is shared, so a straggler is let pass.
func promptly(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(took))
	if len(sorted) == 0 {
		t.Errorf("%s: nothing came", what)
		return
	}
	if most := sorted[len(sorted)*3/4]; most > 100*time.Millisecond {
		t.Errorf("%s: three of four came within %v; want 100 ms", what, most)
	}
	if last := sorted[len(sorted)-1]; last > time.Second {
		t.Errorf("%s: one came after %v", what, last)
	}
}

// sender is a body that the test sends piece by piece.
type sender struct {
	pieces chan []byte // closed: the body ends
	sent   chan time.Time
}

func newSender() *sender { return &sender{make(chan []byte), make(chan time.Time)} }

// send sends a piece and returns the moment before it was written.
func (s *sender) send(piece []byte) time.Time {
	s.pieces <- piece
	return <-s.sent
}

// ServeHTTP writes each piece at once. The framing is said in the query.
func (s *sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	control := http.NewResponseController(w)
	write, flush := w.Write, control.Flush
	switch framing := harness.Framing(r.URL.Query().Get("framing")); framing {
	case harness.Fixed:
		w.Header().Set("Content-Length", r.URL.Query().Get("size"))
	case harness.Close:
		conn, rw, err := control.Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
		write, flush = rw.Write, rw.Flush
	}
	_ = flush()
	for piece := range s.pieces {
		now := time.Now()
		_, _ = write(piece)
		_ = flush()
		s.sent <- now
	}
}

// While an origin sends slowly, the client has each piece at once, and the dashboard has what has come so far.
func TestSlowBodyIsThereAtOnce(t *testing.T) {
	p, origin := harness.StartBoth(t)
	pieces := [][]byte{[]byte("a"), []byte("bc"), bytes.Repeat([]byte("d"), 1_000), bytes.Repeat([]byte("e"), 70_000), []byte("f"), bytes.Repeat([]byte("g"), 300_000), []byte("h")}
	whole := bytes.Join(pieces, nil)
	for _, protocol := range harness.Protocols {
		for _, framing := range framings[protocol].down {
			if framing == harness.Odd {
				continue // the origin's sender does not write it
			}
			t.Run(fmt.Sprintf("%s/%s", protocol, framing), func(t *testing.T) {
				name := fmt.Sprintf("/slow/%s-%s", protocol, framing)
				s := newSender()
				origin.Handle("GET "+name, s)
				res, err := p.Client(t, protocol).Get(origin.URL(protocol, fmt.Sprintf("%s?framing=%s&size=%d", name, framing, len(whole))))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				var took []time.Duration
				sent := 0
				for _, piece := range pieces {
					began := make(chan time.Time, 1)
					go func() { began <- s.send(piece) }()
					got := make([]byte, len(piece))
					if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.Equal(got, piece) {
						t.Fatalf("client got another piece, %v", err)
					}
					took = append(took, time.Since(<-began))
					sent += len(piece)
					if sent < len(whole) { // with its length declared, a body ends with its last byte
						checkPartly(t, p, name, whole[:sent])
					}
				}
				promptly(t, "pieces at the client", took)
				close(s.pieces)
				if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
					t.Errorf("client got %d bytes more, %v", len(rest), err)
				}
				if s := p.Await(t, name, harness.Ended); s.State != "done" || !s.Response.Body.Complete {
					t.Errorf("session is %s, %+v", s.State, s.Response.Body)
				}
			})
		}
	}
}

// checkPartly checks what the API tells and gives of a response body of which so much has passed.
func checkPartly(t *testing.T, p *harness.Program, filter string, passed []byte) {
	t.Helper()
	s := p.Await(t, filter, func(s harness.Summary) bool { return s.State == "open" && s.ResponseBytes == int64(len(passed)) })
	res, err := p.Call(t.Context(), http.MethodGet, harness.BodyURL(s.ID, "response"), "Range", fmt.Sprintf("bytes=0-%d", len(passed)+9))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusPartialContent || !bytes.Equal(got, passed) {
		t.Errorf("after %d bytes the API gives %d with %s, %v", len(passed), len(got), res.Status, err)
	}
}

// A client that sends slowly is heard at once, too.
func TestSlowUploadIsThereAtOnce(t *testing.T) {
	p, origin := harness.StartBoth(t)
	for _, protocol := range harness.Protocols {
		t.Run(string(protocol), func(t *testing.T) {
			arrived := make(chan time.Time)
			name := "/slowly/" + string(protocol)
			origin.HandleFunc("POST "+name, func(_ http.ResponseWriter, r *http.Request) {
				var one [1]byte
				for {
					if _, err := io.ReadFull(r.Body, one[:]); err != nil {
						return
					}
					arrived <- time.Now()
				}
			})
			r, w := io.Pipe()
			answered := make(chan error, 1)
			client := p.Client(t, protocol)
			go func() {
				res, err := client.Post(origin.URL(protocol, name), "text/plain", r)
				if err == nil {
					err = res.Body.Close()
				}
				answered <- err
			}()
			var took []time.Duration
			for range 10 {
				began := time.Now()
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				took = append(took, (<-arrived).Sub(began))
			}
			promptly(t, "bytes at the origin", took[1:]) // the first waits for the connection, too
			_ = w.Close()
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

// Server-sent events reach a client at once.
func TestEventsAreThereAtOnce(t *testing.T) {
	p, origin := harness.StartBoth(t)
	for _, protocol := range harness.Protocols {
		t.Run(string(protocol), func(t *testing.T) {
			res, err := p.Client(t, protocol).Get(origin.URL(protocol, "/events/"+string(protocol)+"?count=20&pace=30ms"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var took []time.Duration
			for event := range harness.Events(res.Body) {
				sent, err := strconv.ParseInt(event, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(time.Unix(0, sent)))
			}
			if len(took) != 20 {
				t.Errorf("%d events came; want 20", len(took))
			}
			promptly(t, "events", took)
		})
	}
}
