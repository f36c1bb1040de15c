package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"testing"
	"testing/iotest"
)

func TestBodyReaderIsAReaderAt(t *testing.T) {
	s := openTest(t, t.TempDir())
	sizes := []int{0, 10, 20_000, smallBody + 10}
	if testing.Short() {
		sizes = sizes[:3] // bytes are read one by one
	}
	for _, size := range sizes {
		body := noise(uint64(size), size)
		r := s.Begin(Session{})
		write(r.Body(Response), body)
		testReader(t, s, r.ID(), body, "recorded")
		r.Body(Response).Complete()
		r.End(Done, "")
		waitDurable(t, s)
		testReader(t, s, r.ID(), body, "stored")
	}
}

func testReader(t *testing.T, s *Store, id uint64, want []byte, how string) {
	t.Helper()
	b, err := s.Body(id, Response)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := iotest.TestReader(io.NewSectionReader(b, 0, b.Size()), want); err != nil {
		t.Errorf("body of %d bytes, %s: %v", len(want), how, err)
	}
	if n, err := b.ReadAt(make([]byte, 10), b.Size()); n != 0 || err != io.EOF {
		t.Errorf("read at the end: got %d, %v", n, err)
	}
	if n, err := b.ReadAt(make([]byte, 10), max(b.Size()-3, 0)); n != min(3, len(want)) || err != io.EOF {
		t.Errorf("read over the end: got %d, %v", n, err)
	}
}

// TestBodyIsReadWhileItGrows follows a body from its first byte to its last, across memory, log, incoming files and chunks.
func TestBodyIsReadWhileItGrows(t *testing.T) {
	s := openTest(t, t.TempDir())
	body := noise(1, 9<<20)
	r := s.Begin(Session{})
	var followers sync.WaitGroup
	for i := range 3 {
		b, err := s.Body(r.ID(), Response)
		if err != nil {
			t.Fatal(err)
		}
		followers.Go(func() {
			got, buf := []byte{}, make([]byte, 10_000*(1+i*i*i))
			for {
				grown, final := b.Grown(), b.Final()
				n, err := b.ReadAt(buf, int64(len(got)))
				got = append(got, buf[:n]...)
				if err != nil && err != io.EOF {
					t.Error(err)
					return
				}
				if n == 0 && final {
					break
				}
				if n == 0 {
					<-grown
				}
			}
			if !bytes.Equal(got, body) || !b.Complete() {
				session, _ := s.Session(r.ID())
				t.Errorf("follower %d: got %d bytes, want %d; %s", i, len(got), len(body), session.Sides[Response].Body.Missing)
			}
		})
	}
	for i, rest := 0, body; len(rest) > 0; i++ {
		n := min(len(rest), 1+(i*104_729)%150_000)
		write(r.Body(Response), rest[:n])
		rest = rest[n:]
		if i%20 == 0 {
			s.commit()
		}
	}
	r.Body(Response).Complete()
	r.End(Done, "")
	followers.Wait()
}

func TestScanJoinsStoredAndLive(t *testing.T) {
	s := openTest(t, t.TempDir())
	var recs []*Recording
	for i := range 300 {
		r := s.Begin(Session{Method: "GET", Path: fmt.Sprint("/", i), Flags: []string{FlagReused, "unheard_of"}})
		recs = append(recs, r)
	}
	for i, r := range recs {
		if i%3 == 0 {
			r.End(Done, "")
		}
	}
	waitDurable(t, s)
	for i, r := range recs {
		if i%3 == 1 {
			r.End(Failed, "no route to host")
		}
	}
	var up, down []uint64
	first, last := recs[0].ID(), recs[299].ID()
	if err := s.Scan(first+5, last, func(r *Row) bool {
		up = append(up, r.ID)
		if i := int(r.ID - first); r.Path != fmt.Sprint("/", i) || r.Method != "GET" || len(r.Flags) != 2 || r.State != []State{Done, Failed, Open}[i%3] {
			t.Errorf("row %+v", *r)
		}
		return len(up) < 280
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.ScanDown(0, last+1, func(r *Row) bool {
		down = append(down, r.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for i, id := range up {
		if id != first+5+uint64(i) {
			t.Fatalf("rising: row %d has id %d", i, id)
		}
	}
	for i, id := range down {
		if id != last-uint64(i) {
			t.Fatalf("falling: row %d has id %d", i, id)
		}
	}
	if len(up) != 280 || len(down) != 300 {
		t.Errorf("got %d rows rising, %d falling", len(up), len(down))
	}
}

func TestIDsAreNeverGivenTwice(t *testing.T) {
	dir := t.TempDir()
	last := uint64(0)
	for round := range 3 {
		s, err := OpenStore(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			r := s.Begin(Session{})
			if want := last + 1; r.ID() != want {
				t.Errorf("round %d: got id %d, want %d: a clean end leaves no gap", round, r.ID(), want)
			}
			last = r.ID()
			r.End(Done, "")
		}
		waitDurable(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			if s, err = OpenStore(Config{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.DeleteThrough(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			s = rebuild(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSharesAndNotesLast(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := s.Begin(Session{Host: "example.com"})
	if err := s.Annotate(r.ID(), func(s *Session) { s.Note, s.Host = "while open", "changed" }); err != nil {
		t.Fatal(err)
	}
	r.End(Done, "")
	waitDurable(t, s)
	if err := s.Annotate(r.ID(), func(s *Session) { s.Pinned, s.Color, s.Host = true, "red", "changed" }); err != nil {
		t.Fatal(err)
	}
	if err := s.Annotate(99, func(*Session) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("annotate an unknown session: %v", err)
	}
	for id, record := range map[string]string{"a": "1", "b": "2"} {
		if err := s.PutShare(id, []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteShare("b"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	row, err := s.Row(r.ID())
	if err != nil || row.Note != "while open" || !row.Pinned || row.Color != "red" || row.Host != "example.com" {
		t.Errorf("got row %+v, %v", row, err)
	}
	all, err := s.Shares()
	if err != nil || len(all) != 1 || string(all["a"]) != "1" {
		t.Errorf("got shares %q, %v", all, err)
	}
	if _, err := s.Share("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleted share: %v", err)
	}
}
