package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// promptly checks that no timer stands in the way: it would delay every piece, so the quickest tells, however busy the machine is. That no piece waits for a
// later one is tested by its sender, which sends none until the one before has arrived.
func promptly(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	if quickest := slices.Min(took); quickest > 100*time.Millisecond {
		t.Errorf("%s: all of them took more than 100 ms: %v", what, took)
	}
}

// stuck is how long a byte may be under way before it counts as one that waits for a later one.
const stuck = 20 * time.Second

// sender is a body that the test sends piece by piece.
type sender struct {
	pieces chan []byte // closed: the body ends
	sent   chan time.Time
	end    func()
}

// newSender returns a sender that is ended at the test's end at the latest.
func newSender(t *testing.T) *sender {
	s := &sender{pieces: make(chan []byte), sent: make(chan time.Time)}
	s.end = sync.OnceFunc(func() { close(s.pieces) })
	t.Cleanup(s.end)
	return s
}

// pass sends a piece, waits until all of it has arrived at r, and returns how long that took. Nothing more is sent meanwhile: a relay that waits for more is stuck.
func (s *sender) pass(t *testing.T, piece []byte, r io.Reader) time.Duration {
	t.Helper()
	began := make(chan time.Time, 1)
	go func() {
		s.pieces <- piece
		began <- <-s.sent
	}()
	got := make([]byte, len(piece))
	if n, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, piece) {
		t.Fatalf("of a piece of %d bytes, %d arrived before the next was sent, %v", len(piece), n, err)
	}
	return time.Since(<-began)
}

// ServeHTTP writes each piece at once. The framing and the media type are said in the query.
func (s *sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	media := r.URL.Query().Get("type")
	w.Header().Set("Content-Type", media)
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
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Type: " + media + "\r\nConnection: close\r\n\r\n")
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

// open asks for the address and returns the body, which ends with an error when it was stuck.
func open(t *testing.T, client *http.Client, address string) io.ReadCloser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res.Body
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
				s := newSender(t)
				origin.Handle("GET "+name, s)
				body := open(t, p.Client(t, protocol), origin.URL(protocol, fmt.Sprintf("%s?framing=%s&size=%d&type=text/plain", name, framing, len(whole))))
				var took []time.Duration
				sent := 0
				for _, piece := range pieces {
					took = append(took, s.pass(t, piece, body))
					sent += len(piece)
					if sent < len(whole) { // with its length declared, a body ends with its last byte
						checkPartly(t, p, name, whole[:sent])
					}
				}
				promptly(t, "pieces at the client", took)
				s.end()
				if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
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
			defer w.Close()
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
				select {
				case at := <-arrived:
					took = append(took, at.Sub(began))
				case <-time.After(stuck):
					t.Fatal("a byte waits for the next")
				}
			}
			promptly(t, "bytes at the origin", took[1:]) // the first waits for the connection, too
			_ = w.Close()
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

// Server-sent events reach a client at once. Each is sent when the one before has arrived.
func TestEventsAreThereAtOnce(t *testing.T) {
	p, origin := harness.StartBoth(t)
	for _, protocol := range harness.Protocols {
		for _, framing := range framings[protocol].down {
			if framing == harness.Fixed || framing == harness.Odd {
				continue // nobody knows how long a stream of events is
			}
			t.Run(fmt.Sprintf("%s/%s", protocol, framing), func(t *testing.T) {
				name := fmt.Sprintf("/events-of/%s-%s", protocol, framing)
				s := newSender(t)
				origin.Handle("GET "+name, s)
				body := open(t, p.Client(t, protocol), origin.URL(protocol, fmt.Sprintf("%s?framing=%s&type=text/event-stream", name, framing)))
				var took []time.Duration
				for i := range 20 {
					took = append(took, s.pass(t, fmt.Appendf(nil, "data: %d\n\n", i), body))
				}
				promptly(t, "events", took)
			})
		}
	}
}
