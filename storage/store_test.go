package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// bodySizes are the sizes around each limit of the store: nothing, a recent body, a small body, a chunk, more than two chunks.
var bodySizes = []int{
	0, 1, recentBody - 1, recentBody, recentBody + 1, smallBody - 1, smallBody, smallBody + 1,
	chunkSize - 1, chunkSize, chunkSize + 1, 9 << 20,
}

func openTest(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenStore(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// noise returns bytes that repeat nowhere, the same for the same seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	newNoiseReader(seed).Read(b)
	return b
}

func newNoiseReader(seed uint64) io.Reader {
	var key [32]byte
	copy(key[:], fmt.Sprint(seed))
	return rand.NewChaCha8(key)
}

func give(w *BodyWriter, p []byte) {
	for len(p) > 0 {
		b := NewBuffer()
		n := copy(b.B, p)
		w.Give(b, n)
		w.Wait(context.Background())
		p = p[n:]
	}
}

// write writes p in odd splits.
func write(w *BodyWriter, p []byte) {
	for i := 0; len(p) > 0; i++ {
		n := min(len(p), 1+(i*7919)%100_000)
		w.Write(p[:n])
		w.Wait(context.Background())
		p = p[n:]
	}
}

// readBody reads a body whole, in reads of an odd size.
func readBody(t testing.TB, s *Store, id uint64, side Side) []byte {
	t.Helper()
	b, err := s.Body(id, side)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(got)) != b.Size() {
		t.Fatalf("read %d bytes of a body of %d", len(got), b.Size())
	}
	return got
}

// waitDurable waits until every ended session is durable.
func waitDurable(t testing.TB, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.Status().DurableUntil < s.Status().LastID; {
		if time.Now().After(deadline) {
			t.Fatalf("not durable: %+v", s.Status())
		}
		s.commit()
	}
}

func checkBody(t testing.TB, s *Store, id uint64, side Side, want []byte) {
	t.Helper()
	if got := readBody(t, s, id, side); !bytes.Equal(got, want) {
		t.Errorf("%s body of session %d: got %d bytes, %x; want %d bytes, %x", side, id, len(got), sha256.Sum256(got), len(want), sha256.Sum256(want))
	}
	sum, err := s.SHA256(context.Background(), id, side)
	if want := sha256.Sum256(want); err != nil || !bytes.Equal(sum, want[:]) {
		t.Errorf("SHA-256 of %s body of session %d: got %x, %v; want %x", side, id, sum, err, want)
	}
}

func TestBodiesOfEverySize(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	bodies := make(map[uint64][]byte)
	for i, size := range bodySizes {
		for j, put := range []func(*BodyWriter, []byte){give, write} {
			if j == 1 && (size > chunkSize+1 || testing.Short()) {
				continue // enough was written in odd splits
			}
			body := noise(uint64(2*i+j), size)
			r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/", size)})
			for side := range Side(2) {
				put(r.Body(side), body)
				r.Body(side).Complete()
			}
			checkLive(t, s, r.ID(), body)
			r.End(Done, "")
			bodies[r.ID()] = body
		}
	}
	check := func(s *Store) {
		t.Helper()
		for id, body := range bodies {
			checkBody(t, s, id, Request, body)
			checkBody(t, s, id, Response, body)
			got, err := s.Session(id)
			if err != nil {
				t.Fatal(err)
			}
			if b := got.Sides[Response].Body; got.State != Done || !b.Complete || b.Size != uint64(len(body)) || b.Passed != b.Size {
				t.Errorf("session %d: state %s, body %+v", id, got.State, b)
			}
		}
	}
	waitDurable(t, s)
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
		t.Fatal(err)
	}
	check(openTest(t, dir))
}

func checkLive(t *testing.T, s *Store, id uint64, want []byte) {
	t.Helper()
	if got := readBody(t, s, id, Response); !bytes.Equal(got, want) {
		t.Errorf("body of open session %d: got %d bytes, want %d", id, len(got), len(want))
	}
}

func TestUnknownSession(t *testing.T) {
	s := openTest(t, t.TempDir())
	_, sessionErr := s.Session(7)
	_, rowErr := s.Row(7)
	_, bodyErr := s.Body(7, Response)
	for _, err := range []error{sessionErr, rowErr, bodyErr} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
	}
}
