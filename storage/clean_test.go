package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// waitCleaned waits until no segment is to be rewritten.
func waitCleaned(t testing.TB, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.cleaning.mu.Lock()
		rest := len(s.cleaning.todo) + len(s.cleaning.later)
		busy := s.cleaning.busy
		s.cleaning.mu.Unlock()
		if rest == 0 && !busy {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d segments are still to be rewritten", rest)
		}
	}
}

// smallSegments has the log begin a segment each 100 KB.
func smallSegments(s *Store) {
	s.log.mu.Lock()
	s.log.limit = 100_000
	s.log.mu.Unlock()
}

// fillLog records sessions with bodies of 3,000 bytes, each its own, and returns their ids in order.
func fillLog(t *testing.T, s *Store, n int) (ids []uint64) {
	t.Helper()
	for range n {
		r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/", len(ids))})
		give(r.Body(Response), noise(r.ID(), 3000))
		r.Body(Response).Complete()
		r.End(Done, "")
		ids = append(ids, r.ID())
	}
	waitDurable(t, s)
	return ids
}

// segmentRows returns what the index counts of each segment.
func segmentRows(t *testing.T, s *Store) map[uint64]segmentRow {
	t.Helper()
	all := make(map[uint64]segmentRow)
	if err := s.index.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketSegments).ForEach(func(k, v []byte) error {
			var row segmentRow
			row.decode(v)
			all[idOf(k)] = row
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func mustVerify(t *testing.T, dir string) {
	t.Helper()
	if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Fatal(err)
	}
}

// deleteBut deletes all but each nth session, and returns those that stay.
func deleteBut(t *testing.T, s *Store, ids []uint64, nth int) (kept []uint64) {
	t.Helper()
	var gone []uint64
	for i, id := range ids {
		if i%nth == 0 {
			kept = append(kept, id)
		} else {
			gone = append(gone, id)
		}
	}
	if n, err := s.Delete(context.Background(), gone); n != len(gone) || err != nil {
		t.Fatalf("deleted %d of %d, %v", n, len(gone), err)
	}
	return kept
}

// checkKept checks that these sessions are there with their bodies, and no others.
func checkKept(t *testing.T, s *Store, kept []uint64) {
	t.Helper()
	for _, id := range kept {
		if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id, 3000)) {
			t.Errorf("body of session %d: got %d other bytes", id, len(got))
		}
	}
	n := 0
	if err := s.Scan(0, 1<<63, func(*Row) bool { n++; return true }); err != nil {
		t.Fatal(err)
	}
	if n != len(kept) {
		t.Errorf("%d sessions, want %d", n, len(kept))
	}
}

// TestSparseSegmentsAreRewritten: after most sessions were deleted, at least half of each closed segment is live, no more was copied than freed,
// and what was opened before reads on. A rebuilt index is the same, and brings nothing back.
func TestSparseSegmentsAreRewritten(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	slow := s.Begin(Session{Method: "GET"}) // open meanwhile, with bytes in the first segment
	slow.Body(Response).Write(noise(1000, 3000))
	ids := fillLog(t, s, 300)
	opened, err := s.Body(ids[0], Response)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	growing, err := s.Body(slow.ID(), Response)
	if err != nil {
		t.Fatal(err)
	}
	defer growing.Close()

	kept := deleteBut(t, s, ids, 5)
	waitCleaned(t, s)
	rewritten := 0
	for n, row := range segmentRows(t, s) {
		if row.sparse() {
			t.Errorf("segment %d: %d of %d bytes are live", n, row.live, row.size)
		}
		if row.generation > 0 {
			rewritten++
		}
		if info, err := s.files.Stat(generationName(n, row.generation)); err != nil || row.sealed && uint64(info.Size()) != row.size {
			t.Errorf("segment %d: %v, want %d bytes", n, info, row.size)
		}
	}
	if rewritten < 5 {
		t.Errorf("%d segments were rewritten", rewritten)
	}
	if s.cleaning.copied == 0 || s.cleaning.copied > s.cleaning.freed {
		t.Errorf("%d bytes were copied, %d freed", s.cleaning.copied, s.cleaning.freed)
	}
	if files, err := s.files.ReadDir("log"); err != nil || len(files) != len(segmentRows(t, s)) {
		t.Errorf("%d files of %d segments, %v", len(files), len(segmentRows(t, s)), err)
	}
	s.handles.close() // so that nothing is read through a file that stayed open
	s.handles = newHandles(s.files)
	for id, r := range map[uint64]*BodyReader{ids[0]: opened, 1000: growing} {
		got := make([]byte, 3000)
		if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, noise(id, 3000)) {
			t.Errorf("a body that was opened before: %v", err)
		}
	}
	slow.End(Done, "")
	waitDurable(t, s)
	if _, err := s.Delete(context.Background(), []uint64{slow.ID()}); err != nil {
		t.Fatal(err)
	}
	checkKept(t, s, kept)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
	s = openTest(t, s.dir)
	checkKept(t, s, kept)
	waitCleaned(t, s)
	s = rebuild(t, s)
	checkKept(t, s, kept)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}

// snapshots copies the data directory after each change of a name in the log, as a kill there would leave it.
type snapshots struct {
	Files
	dir, into string
	mu        sync.Mutex
	taken     []string
}

func (f *snapshots) take(err error, op, name string) error {
	if err == nil && strings.HasPrefix(name, "log") {
		f.mu.Lock()
		defer f.mu.Unlock()
		to := filepath.Join(f.into, fmt.Sprintf("%03d-%s-%s", len(f.taken), op, filepath.Base(name)))
		if len(f.taken) < 60 && os.CopyFS(to, os.DirFS(f.dir)) == nil {
			f.taken = append(f.taken, to)
		}
	}
	return err
}

func (f *snapshots) OpenFile(name string, flag int) (File, error) {
	file, err := f.Files.OpenFile(name, flag)
	if flag&os.O_CREATE != 0 {
		f.take(err, "make", name)
	}
	return file, err
}

func (f *snapshots) Rename(from, to string) error {
	return f.take(f.Files.Rename(from, to), "rename", to)
}

func (f *snapshots) Remove(name string) error { return f.take(f.Files.Remove(name), "remove", name) }

func (f *snapshots) SyncDir(name string) error { return f.take(f.Files.SyncDir(name), "sync", name) }

// TestRewritingIsKilled ends at each step of rewriting segments: nothing is lost and nothing comes back, with the index and without it.
func TestRewritingIsKilled(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	smallSegments(s)
	ids := fillLog(t, s, 120)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	disk := &snapshots{Files: mustDir(t, dir), dir: dir, into: t.TempDir()}
	s, err := OpenStore(Config{Dir: dir, Files: disk, still: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	kept := deleteBut(t, s, ids, 10)
	disk.mu.Lock()
	disk.taken = nil
	disk.mu.Unlock()
	for _, n := range s.index.sparse() {
		if err := s.rewrite(context.Background(), n, (*segmentRow).sparse); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	for i, dir := range disk.taken {
		if i%8 > 3 { // four in a row are one rewriting: each second is enough
			continue
		}
		seen[strings.Split(filepath.Base(dir), "-")[1]] = true
		for _, index := range []bool{true, false} {
			copied := dir
			if index {
				copied = t.TempDir()
				if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
			}
			if !index {
				if err := os.Remove(filepath.Join(copied, "index.db")); err != nil {
					t.Fatal(err)
				}
			}
			s, err := OpenStore(Config{Dir: copied})
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			waitCleaned(t, s)
			checkKept(t, s, kept)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustVerify(t, copied)
			if left, _ := filepath.Glob(filepath.Join(copied, "log", "*"+unfinished)); len(left) > 0 {
				t.Errorf("%s: left over: %v", dir, left)
			}
			if t.Failed() {
				t.Fatalf("ended at %s, index kept: %v", filepath.Base(dir), index)
			}
		}
	}
	for _, op := range []string{"make", "rename", "sync", "remove"} {
		if !seen[op] {
			t.Errorf("never ended at a %s", op)
		}
	}
}

// TestDeletionsGoWithTheLastThatSpeaks: a deletion record stays as long as a segment may speak of what it deleted, and no longer, also where
// a session that stays keeps the segments.
func TestDeletionsGoWithTheLastThatSpeaks(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	kept := deleteBut(t, s, fillLog(t, s, 300), 10)
	waitCleaned(t, s)
	graves := 0
	if err := s.index.view(func(tx *bbolt.Tx) error {
		graves = tx.Bucket(bucketGraves).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if graves > 1 { // of the segment that the deletion is in
		t.Errorf("%d deletions are kept", graves)
	}
	s = rebuild(t, s)
	checkKept(t, s, kept)
}

// TestPolledBodyOutlivesItsSegment: a body that comes again and again is stored once, also when all else of its segment is deleted and that is rewritten.
func TestPolledBodyOutlivesItsSegment(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	poll := func() *Recording {
		r := s.Begin(Session{Method: "GET", Path: "/poll"})
		give(r.Body(Response), noise(1<<40, 3000))
		r.Body(Response).Complete()
		r.End(Done, "")
		return r
	}
	last := poll()
	where := make(map[slotID]bool)
	for range 20 {
		ids := fillLog(t, s, 60)
		old := last.ID()
		last = poll()
		waitDurable(t, s)
		if _, err := s.Delete(context.Background(), append(ids, old)); err != nil {
			t.Fatal(err)
		}
		waitCleaned(t, s)
		session, err := s.Session(last.ID())
		if err != nil {
			t.Fatal(err)
		}
		e := session.Sides[Response].Body.Extents[0]
		where[slotID{e.Segment, e.Slot}] = true
	}
	if len(where) != 1 {
		t.Errorf("the body is stored %d times", len(where))
	}
	if row := segmentRows(t, s)[1]; row.generation == 0 {
		t.Error("its segment was never rewritten")
	}
	if got := readBody(t, s, last.ID(), Response); !bytes.Equal(got, noise(1<<40, 3000)) {
		t.Error("its bytes are others")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}

// TestDamagedRecordKeepsItsSegment: a segment of which a live record is damaged stays as it is.
func TestDamagedRecordKeepsItsSegment(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	ids := fillLog(t, s, 60)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, noise(ids[0], 3000)[:40]) // it may be in several records
	b[at+20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, s.dir)
	deleteBut(t, s, ids, 10)
	waitCleaned(t, s)
	rows := segmentRows(t, s)
	if row := rows[1]; row.generation != 0 || !row.sparse() {
		t.Errorf("got %+v", row)
	}
	if rows[2].generation == 0 {
		t.Errorf("the next is not rewritten: %+v", rows[2])
	}
	if _, err := s.Body(ids[0], Response); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damage is not told: %v", err)
	}
}

// TestCleanLog: after it, what is not live is less than a thirty-second of each closed segment.
func TestCleanLog(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	kept := deleteBut(t, s, fillLog(t, s, 200), 2)
	waitCleaned(t, s)
	if err := s.CleanLog(context.Background()); err != nil {
		t.Fatal(err)
	}
	for n, row := range segmentRows(t, s) {
		if row.sealed && row.stored()+row.size/32+blockOfDisk < row.size {
			t.Errorf("segment %d: %d of %d bytes are live", n, row.live, row.size)
		}
	}
	checkKept(t, s, kept)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}
