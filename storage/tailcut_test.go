package storage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// TestGivenUpTailIsCut: what a failed sync had the log give up is not left in its segment, where it would count again once the next one is gone.
func TestGivenUpTailIsCut(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	first := record(s, bytesOf(1, 3000))
	eventually(t, "it is durable", durable(s, first.ID()))
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "log", "000001"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	good := size()
	disk.Fail(storagetest.Sync, syscall.EIO)
	second := record(s, bytesOf(2, 3000))
	eventually(t, "a sync has failed", func() bool { return strings.HasPrefix(s.Status().Problem, "the disk failed") })
	if size() <= good {
		t.Fatal("nothing was written that is given up")
	}
	disk.Heal()
	eventually(t, "it is durable", durable(s, second.ID()))
	if got := size(); got != good {
		t.Errorf("the segment has %d bytes, of which %d count", got, good)
	}
	verify(t, s, dir)
}

// killedWithSegments makes a store of which sessions lie in several log segments and one in chunks, and ends it as a kill would.
func killedWithSegments(t *testing.T) (dir string, chunked []byte) {
	t.Helper()
	s, disk, from := openFaulty(t, storage.Wait)
	chunked = bytesOf(7, 5<<20)
	large := record(s, chunked)
	eventually(t, "it is durable", durable(s, large.ID()))
	for i := range uint64(3) {
		disk.Fail(storagetest.Sync, syscall.EIO) // so that the next segment begins
		r := record(s, bytesOf(10+i, 3000))
		eventually(t, "a sync has failed", func() bool { return strings.HasPrefix(s.Status().Problem, "the disk failed") })
		disk.Heal()
		eventually(t, "it is durable", durable(s, r.ID()))
		eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" }) // else the next would take it for its own
	}
	return storage.Killed(t, from), chunked
}

// TestUnreadableSegmentIsKeptAside: a start after a kill that makes a lost index again removes no segment because nothing of it can be read.
func TestUnreadableSegmentIsKeptAside(t *testing.T) {
	dir, _ := killedWithSegments(t)
	segments, err := filepath.Glob(filepath.Join(dir, "log", "*"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("got %v, %v", segments, err)
	}
	bad := segments[1]
	old, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, bytes.Repeat([]byte{'Z'}, len(old)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
		t.Fatal(err)
	}
	s, err := storage.OpenStore(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept, err := os.ReadFile(filepath.Join(dir, "damaged", "log-"+filepath.Base(bad)))
	if err != nil || len(kept) != len(old) {
		t.Errorf("%d of %d bytes are kept aside, %v", len(kept), len(old), err)
	}
}

// TestNoChunkGoesWhileOneIsMissing: where the index names a chunk that is not there, a chunk that it does not name may be the one that it should.
func TestNoChunkGoesWhileOneIsMissing(t *testing.T) {
	for _, missing := range []bool{true, false} {
		dir, _ := killedWithSegments(t)
		chunks, err := filepath.Glob(filepath.Join(dir, "chunks", "*", "*"))
		if err != nil || len(chunks) != 2 {
			t.Fatalf("got %v, %v", chunks, err)
		}
		other := filepath.Join(filepath.Dir(chunks[0]), strings.Repeat("ab", 32))
		if err := os.WriteFile(other, []byte("a chunk that nothing names"), 0o600); err != nil {
			t.Fatal(err)
		}
		if missing {
			if err := os.Remove(chunks[0]); err != nil {
				t.Fatal(err)
			}
		}
		s, err := storage.OpenStore(storage.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(other); (err == nil) != missing {
			t.Errorf("one is missing: %v, the other: %v", missing, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// noRename is a disk on which no file can be renamed.
type noRename struct{ storage.Files }

func (noRename) Rename(string, string) error { return syscall.EIO }

// TestStartThatIsKilledNamesNoChunkTooEarly: a start that ends before it has given a chunk its name leaves the next one to do it.
func TestStartThatIsKilledNamesNoChunkTooEarly(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fail(storagetest.Rename, syscall.EIO)
	body := bytesOf(1, 9<<20)
	r := record(s, body)
	eventually(t, "the end is in the log", func() bool {
		after, _ := crash(t, dir)
		session, err := after.Session(r.ID())
		return err == nil && session.State == storage.Done && session.Sides[storage.Response].Body.Complete
	})
	copied := storage.Killed(t, dir)
	files, err := storage.OpenDir(copied)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := storage.OpenStore(storage.Config{Dir: copied, Files: noRename{files}}); err == nil {
		s.Close()
		t.Fatal("it starts without its chunks")
	}
	after, err := storage.OpenStore(storage.Config{Dir: copied})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	checkRead(t, after, r.ID(), body)
}
