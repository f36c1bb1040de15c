package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func chunkFiles(t *testing.T, s *Store) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "chunks", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func put(s *Store, body []byte) *Recording {
	r := s.Begin(Session{Method: "GET", Host: "example.com"})
	give(r.Body(Response), body)
	r.Body(Response).Complete()
	r.End(Done, "")
	return r
}

func TestEqualBodiesAreStoredOnce(t *testing.T) {
	s := openTest(t, t.TempDir())
	small, large := noise(1, 5000), noise(2, 10<<20)
	var recs []*Recording
	for range 3 {
		recs = append(recs, put(s, small), put(s, large))
		waitDurable(t, s)
	}
	if got := chunkFiles(t, s); got != 3 {
		t.Errorf("got %d chunks for three equal bodies of 10 MiB, want 3", got)
	}
	first, err := s.Session(recs[0].ID())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs[2:] {
		session, err := s.Session(r.ID())
		if err != nil {
			t.Fatal(err)
		}
		if b := session.Sides[Response].Body; b.Size == 5000 && b.Extents[0].Slot != first.Sides[Response].Body.Extents[0].Slot {
			t.Errorf("session %d has its own copy of a recent body", r.ID())
		}
	}
	ids := []uint64{recs[0].ID(), recs[1].ID(), recs[2].ID(), recs[3].ID()}
	if n, err := s.Delete(context.Background(), ids); n != 4 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	checkBody(t, s, recs[4].ID(), Response, small)
	checkBody(t, s, recs[5].ID(), Response, large)
	if _, err := s.Delete(context.Background(), []uint64{recs[5].ID()}); err != nil {
		t.Fatal(err)
	}
	if got := chunkFiles(t, s); got != 0 {
		t.Errorf("got %d chunks when no body is left, want 0", got)
	}
}

func TestDeletedSessionsFreeSegments(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	s.log.mu.Lock()
	s.log.limit = 100_000
	s.log.mu.Unlock()
	for i := range uint64(100) {
		put(s, noise(i, 10_000))
	}
	kept := put(s, noise(1000, 10_000))
	open := s.Begin(Session{Host: "open"})
	open.Body(Response).Write(noise(1001, 10_000))
	waitDurable(t, s)
	n, err := s.DeleteThrough(context.Background(), kept.ID()-1)
	if err != nil || n != 100 {
		t.Fatalf("got %d, %v", n, err)
	}
	if first, last := segmentRange(t, s); first+3 < last {
		t.Errorf("segments %d to %d are left of one session", first, last)
	}
	if st := s.Status(); st.Sessions != 2 || st.Open != 1 {
		t.Errorf("got %+v", st)
	}
	checkBody(t, s, kept.ID(), Response, noise(1000, 10_000))
	open.End(Done, "")
	s = rebuild(t, s)
	checkBody(t, s, kept.ID(), Response, noise(1000, 10_000))
	checkBody(t, s, open.ID(), Response, noise(1001, 10_000))
	if st := s.Status(); st.Sessions != 2 {
		t.Errorf("after rebuilding: got %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

func TestOpenSessionIsDeletedAtItsEnd(t *testing.T) {
	for _, large := range []bool{false, true} {
		t.Run(fmt.Sprint("large ", large), func(t *testing.T) {
			s := openTest(t, t.TempDir())
			r := s.Begin(Session{Host: "open"})
			size := 1000
			if large {
				size = 6 << 20
			}
			write(r.Body(Response), noise(1, size))
			s.commit()
			if n, err := s.Delete(context.Background(), []uint64{r.ID()}); n != 1 || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
			gone := func(s *Store) {
				t.Helper()
				_, rowErr := s.Row(r.ID())
				_, bodyErr := s.Body(r.ID(), Response)
				if !errors.Is(rowErr, fs.ErrNotExist) || !errors.Is(bodyErr, fs.ErrNotExist) {
					t.Errorf("got %v, %v", rowErr, bodyErr)
				}
				if err := s.Scan(0, 1<<63, func(row *Row) bool {
					t.Errorf("row %+v", *row)
					return true
				}); err != nil {
					t.Error(err)
				}
			}
			gone(s)
			write(r.Body(Response), noise(2, 1000)) // the relay goes on
			s.commit()
			gone(s)
			r.Body(Response).Complete()
			r.End(Done, "")
			waitDurable(t, s)
			gone(s)
			if got := chunkFiles(t, s); got != 0 {
				t.Errorf("%d chunks are left", got)
			}
			gone(rebuild(t, s))
		})
	}
}

// TestSegmentLeftByACrashIsRemoved puts a segment back that the index has let go of, as a crash before its unlinking leaves it.
func TestSegmentLeftByACrashIsRemoved(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.log.mu.Lock()
	s.log.limit = 50_000
	s.log.mu.Unlock()
	var ids []uint64
	for i := range uint64(20) {
		ids = append(ids, put(s, noise(i, 10_000)).ID())
	}
	waitDurable(t, s)
	name := filepath.Join(s.dir, segmentName(1))
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(context.Background(), ids); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ix, err := openIndex(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ix.setClean(false), ix.close()); err != nil {
		t.Fatal(err)
	}
	s = rebuild(t, openTest(t, s.dir))
	if st := s.Status(); st.Sessions != 0 {
		t.Errorf("%d deleted sessions are back", st.Sessions)
	}
}

// While the index is made again it may know an ended session as an open one: what is put on the session then must not make that its last state.
func TestNothingIsAmendedFromAnIndexThatIsBehind(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := s.Begin(Session{Method: "GET", Host: "example.com"})
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	begun := s.index.snapshot().Applied
	give(r.Body(Response), noise(1, 3000))
	r.Body(Response).Complete()
	r.End(Done, "")
	waitDurable(t, s)
	makeAgain := func(to position, partial bool) {
		t.Helper()
		s.committing.Lock()
		defer s.committing.Unlock()
		s.rebuildTo = to
		s.index.partial.Store(true)
		if err := s.finishIndex(); err != nil {
			t.Fatal(err)
		}
		s.index.partial.Store(partial)
	}
	s.damage = errors.New("a test has it made again")
	makeAgain(begun, true)
	pin := func() error { return s.Annotate(r.ID(), func(session *Session) { session.Pinned = true }) }
	if err := pin(); !errors.Is(err, errPartial) {
		t.Errorf("pinned from an index that is behind: %v", err)
	}
	makeAgain(s.log.end(), false)
	if err := pin(); err != nil {
		t.Error(err)
	}
	if row, err := s.Row(r.ID()); err != nil || row.State != Done || !row.Pinned {
		t.Errorf("got %+v, %v", row, err)
	}
	checkBody(t, s, r.ID(), Response, noise(1, 3000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}
