package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// crash copies the data directory as it is, as a SIGKILL would leave it, and opens the copy.
func crash(t *testing.T, dir string) (*storage.Store, string) {
	t.Helper()
	copied := storage.Killed(t, dir)
	s, err := storage.OpenStore(storage.Config{Dir: copied})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, copied
}

// TestCrashBeforeChunksAreNamed ends between the synced record that names a chunk and the renaming of its file.
func TestCrashBeforeChunksAreNamed(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fail(storagetest.Rename, syscall.EIO)
	body := bytesOf(1, 9<<20)
	r := record(s, body)
	eventually(t, "a rename has failed", func() bool { return strings.HasPrefix(s.Status().Problem, "the disk failed") })

	var after *storage.Store
	var copied string
	eventually(t, "the end is in the log", func() bool {
		after, copied = crash(t, dir)
		session, err := after.Session(r.ID())
		return err == nil && session.State == storage.Done && session.Sides[storage.Response].Body.Complete
	})
	checkRead(t, after, r.ID(), body)
	if left, _ := filepath.Glob(filepath.Join(copied, "incoming", "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	verify(t, after, copied)

	disk.Heal()
	eventually(t, "it is durable", durable(s, r.ID()))
	checkRead(t, s, r.ID(), body)
	verify(t, s, dir)
}

// TestDeletedOpenSessionsStayDeleted ends while sessions are open that were deleted, by id or up to a cutoff.
func TestDeletedOpenSessionsStayDeleted(t *testing.T) {
	s, _, dir := openFaulty(t, storage.Wait)
	var open []*storage.Recording
	for i := range uint64(3) {
		r := s.Begin(storage.Session{Method: "GET"})
		r.Body(storage.Response).Write(bytesOf(i, 3<<20))
		open = append(open, r)
	}
	ended := record(s, bytesOf(9, 1000))
	eventually(t, "it is durable", durable(s, ended.ID()))
	if n, err := s.DeleteThrough(context.Background(), open[0].ID()); n != 1 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if n, err := s.Delete(context.Background(), []uint64{open[1].ID()}); n != 1 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	eventually(t, "the third body has reached the disk", func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "incoming", "*"))
		return len(files) == 3
	})
	after, copied := crash(t, dir)
	for i, r := range open {
		session, err := after.Session(r.ID())
		switch {
		case i < 2 && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("session %d is back: %v", r.ID(), err)
		case i == 2 && (err != nil || session.State != storage.Interrupted || session.Sides[storage.Response].Body.Size < 2<<20):
			t.Errorf("session %d: state %s, %d bytes, %v", r.ID(), session.State, session.Sides[storage.Response].Body.Size, err)
		}
	}
	checkRead(t, after, ended.ID(), bytesOf(9, 1000))
	if next := after.Begin(storage.Session{}).ID(); next <= ended.ID() {
		t.Errorf("id %d is given again", next)
	}
	verify(t, after, copied)
}

// TestSlowBodySurvivesACrash: bytes that came a while ago survive, also where no mark was due by their number.
func TestSlowBodySurvivesACrash(t *testing.T) {
	s, _, dir := openFaulty(t, storage.Wait)
	body := bytesOf(1, 700_000)
	r := s.Begin(storage.Session{Method: "GET"})
	r.Body(storage.Response).Write(body)
	eventually(t, "a crash costs nothing", func() bool {
		after, _ := crash(t, dir)
		session, err := after.Session(r.ID())
		if err != nil || session.Sides[storage.Response].Body.Size < uint64(len(body)) {
			return false
		}
		checkRead(t, after, r.ID(), body)
		return true
	})
}

// TestSessionsThatEndDuringASyncSurviveAKill: a sync of the disk takes long, and what ends meanwhile is written all the same.
func TestSessionsThatEndDuringASyncSurviveAKill(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	release := disk.Stall(storagetest.Sync)
	defer release()
	record(s, bytesOf(1, 1000))
	<-disk.Stalled() // the committer is in a sync, and stays there

	small, large := record(s, bytesOf(2, 3000)), record(s, bytesOf(4, 9<<20))
	slow := s.Begin(storage.Session{Method: "GET"}) // goes on
	slow.Body(storage.Response).Write(bytesOf(3, 700_000))
	var after *storage.Store
	var copied string
	eventually(t, "what was given is written", func() bool {
		after, copied = crash(t, dir)
		session, err := after.Session(slow.ID())
		if err != nil || session.Sides[storage.Response].Body.Size < 700_000 {
			return false
		}
		row, err := after.Row(small.ID())
		row2, err2 := after.Row(large.ID())
		return err == nil && err2 == nil && row.State == storage.Done && row2.State == storage.Done
	})
	checkRead(t, after, large.ID(), bytesOf(4, 9<<20))
	checkRead(t, after, small.ID(), bytesOf(2, 3000))
	checkRead(t, after, slow.ID(), bytesOf(3, 700_000))
	verify(t, after, copied)
	if s.Status().DurableUntil >= small.ID() {
		t.Error("it is called durable before it is synced")
	}
	release()
	eventually(t, "they are durable", func() bool { return durable(s, small.ID())() && durable(s, large.ID())() })
	slow.End(storage.Done, "")
	eventually(t, "it is durable", durable(s, slow.ID()))
	verify(t, s, dir)
}

// TestBodiesAreHashedAfterACrash ends before the digest of a large body is made: the next start makes it up, once nothing is recorded.
func TestBodiesAreHashedAfterACrash(t *testing.T) {
	s, _, dir := openFaulty(t, storage.Wait)
	busy := s.Begin(storage.Session{Method: "GET"}) // a large body that goes on keeps the others from being hashed
	busy.Body(storage.Response).Write(bytesOf(1, 1<<20))
	body := bytesOf(2, 9<<20)
	r := record(s, body)
	eventually(t, "it is durable", durable(s, r.ID()))
	if session, err := s.Session(r.ID()); err != nil || session.Sides[storage.Response].Body.SHA256 != nil {
		t.Fatalf("it is hashed already, %v", err)
	}
	after, _ := crash(t, dir)
	eventually(t, "the bodies are hashed", func() bool {
		for id, body := range map[uint64][]byte{busy.ID(): bytesOf(1, 1<<20), r.ID(): body} {
			session, err := after.Session(id)
			sum := sha256.Sum256(body)
			if err != nil || !bytes.Equal(session.Sides[storage.Response].Body.SHA256, sum[:]) {
				return false
			}
		}
		return true
	})
}

// TestIDsToldBeforeTheLogIsWrittenAreNotGivenAgain ends several times before the first record of a process is on disk: views told its ids.
func TestIDsToldBeforeTheLogIsWrittenAreNotGivenAgain(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fail(storagetest.Write|storagetest.Create, syscall.EIO)
	told := s.Begin(storage.Session{}).ID()
	for range 3 {
		copied := storage.Killed(t, dir)
		files, err := storage.OpenDir(copied)
		if err != nil {
			t.Fatal(err)
		}
		disk := storagetest.NewDisk(files)
		after, err := storage.OpenStore(storage.Config{Dir: copied, Files: disk})
		if err != nil {
			t.Fatal(err)
		}
		disk.Fail(storagetest.Write|storagetest.Create, syscall.EIO)
		t.Cleanup(func() { disk.Heal(); after.Close() })
		if id := after.Begin(storage.Session{}).ID(); id <= told {
			t.Errorf("id %d is given after %d was", id, told)
		} else {
			told, dir = id, copied
		}
	}
	disk.Heal()
}

// TestBodyThatTheDiskNeverTookSurvivesACrash: the first write of a large body fails, and its session goes on. Nothing is named that has no bytes.
func TestBodyThatTheDiskNeverTookSurvivesACrash(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	r := s.Begin(storage.Session{Method: "GET"})
	eventually(t, "it is in the log", func() bool {
		after, _ := crash(t, dir)
		_, err := after.Session(r.ID())
		return err == nil
	})
	disk.FailNth(storagetest.Write, 1, syscall.EIO)
	r.Body(storage.Response).Write(bytesOf(1, 600_000))
	eventually(t, "a write has failed", func() bool {
		row, err := s.Row(r.ID())
		return err == nil && slices.Contains(row.Flags, storage.FlagCut)
	})
	next := record(s, bytesOf(2, 1000))
	eventually(t, "the next session is durable", durable(s, next.ID()))
	if found, err := filepath.Glob(filepath.Join(dir, "chunks", "*", "*")); len(found) > 0 || err != nil {
		t.Errorf("there are chunks: %v, %v", found, err)
	}
	after, copied := crash(t, dir)
	if session, err := after.Session(r.ID()); err != nil || session.State != storage.Interrupted || session.Sides[storage.Response].Body.Size > 0 {
		t.Errorf("got %s, %+v, %v", session.State, session.Sides[storage.Response].Body, err)
	}
	verify(t, after, copied)
}
