package storage_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// A disk that is full for bodies has room for records: sessions go on being kept without bodies, and can be deleted.
func TestFullDiskHasRoomForRecords(t *testing.T) {
	const headroom = 32 << 20
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fill(headroom + 6<<20)
	large := bytesOf(1, 12<<20)
	cut := record(s, large)
	eventually(t, "the problem shows", func() bool { return strings.HasPrefix(s.Status().Problem, "the disk is full") })
	if size := checkPrefix(t, s, cut.ID(), large, "the disk is full"); size < 4<<20 || size > 6<<20 {
		t.Errorf("kept %d bytes where 6 MiB were free beyond the headroom", size)
	}
	eventually(t, "it is durable", durable(s, cut.ID()))

	// Records need what bodies leave; what fails to fit at first must not be all that was left.
	small := record(s, bytesOf(2, 1000))
	eventually(t, "it is durable", durable(s, small.ID()))
	checkPrefix(t, s, small.ID(), bytesOf(2, 1000), "the disk is full")
	if n, err := s.Delete(context.Background(), []uint64{cut.ID()}); n != 1 || err != nil {
		t.Errorf("delete from a full disk: %d, %v", n, err)
	}

	// A little room is not enough: the next body would be cut at once.
	disk.Fill(headroom + 6<<20)
	still := record(s, bytesOf(3, 1000))
	eventually(t, "it is durable", durable(s, still.ID()))
	checkPrefix(t, s, still.ID(), bytesOf(3, 1000), "the disk is full")
	disk.Fill(3 * headroom)
	eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" })
	after := record(s, bytesOf(4, 1<<20))
	eventually(t, "it is durable", durable(s, after.ID()))
	checkRead(t, s, after.ID(), bytesOf(4, 1<<20))
	verify(t, s, dir)
}

// When sessions without bodies have taken half of the headroom, no more are kept: the rest is for deletions.
func TestFullDiskKeepsRoomForDeletions(t *testing.T) {
	const headroom = 32 << 20
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.SetSpace(headroom, 1<<40)
	kept := record(s, bytesOf(1, 1000))
	eventually(t, "it is durable", durable(s, kept.ID()))
	disk.SetSpace(headroom/2-1, 1<<40)
	var last *storage.Recording
	eventually(t, "sessions are not kept", func() bool {
		last = record(s, nil)
		return strings.HasPrefix(s.Status().Problem, "the disk is full; ")
	})
	if _, err := s.Session(last.ID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a session that is not kept: %v", err)
	}
	if n, err := s.Delete(context.Background(), []uint64{kept.ID()}); n != 1 || err != nil {
		t.Errorf("delete from a full disk: %d, %v", n, err)
	}
	disk.Heal()
	eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" })
	after := record(s, bytesOf(2, 1000))
	eventually(t, "it is durable", durable(s, after.ID()))
	checkRead(t, s, after.ID(), bytesOf(2, 1000))
	verify(t, s, dir)
}

// TestProblemStaysWhileBodiesAreRefused: a disk that takes records and no files for bodies is a problem that does not come and go with each commit.
func TestProblemStaysWhileBodiesAreRefused(t *testing.T) {
	s, disk, _ := openFaulty(t, storage.Wait)
	before := record(s, bytesOf(1, 1000))
	eventually(t, "it is durable", durable(s, before.ID()))
	disk.Fail(storagetest.Create, syscall.ENOSPC)
	cut := record(s, bytesOf(2, 1<<20))
	eventually(t, "it is durable", durable(s, cut.ID()))
	for i := range uint64(3) {
		r := record(s, bytesOf(i, 1000))
		eventually(t, "it is durable", durable(s, r.ID()))
		if p := s.Status().Problem; !strings.HasPrefix(p, "the disk is full") {
			t.Errorf("problem %q", p)
		}
	}
	disk.Heal()
	eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" })
	after := record(s, bytesOf(3, 1<<20))
	eventually(t, "it is durable", durable(s, after.ID()))
	checkRead(t, s, after.ID(), bytesOf(3, 1<<20))
}

// What is full when Millpond starts is told from the start, not when the first body is refused.
func TestStartOnAFullDiskTellsOfIt(t *testing.T) {
	dir := t.TempDir()
	first, err := storage.OpenStore(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := storagetest.NewDisk(files)
	disk.SetSpace(1<<20, 1<<40)
	s, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p := s.Status().Problem; !strings.HasPrefix(p, "the disk is full") {
		t.Errorf("problem %q", p)
	}
	disk.Heal()
	eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" })
}

// A disk that fails on and on, each time with another file, does not fill the log of the program.
func TestTroubleThatGoesOnIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := storagetest.NewDisk(files)
	var out bytes.Buffer
	s, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	disk.Fail(storagetest.Create, syscall.EROFS)
	before := disk.Tried(storagetest.Create)
	record(s, bytesOf(1, 1000))
	eventually(t, "it was tried several times", func() bool { return disk.Tried(storagetest.Create) >= before+4 })
	disk.Heal()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "keep sessions"); n != 1 {
		t.Errorf("it was told %d times:\n%s", n, out.String())
	}
}
