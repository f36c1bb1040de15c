package storage_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// fullDisk has no room until the ballast is removed.
type fullDisk struct {
	*storagetest.Disk

	gives int64 // by that, in bytes
}

// Mkdir finds what there is, as a disk does that is full.
func (d fullDisk) Mkdir(name string) error { return d.Disk.Files.Mkdir(name) }

func (d fullDisk) Remove(name string) error {
	err := d.Disk.Remove(name)
	if name == "ballast" && err == nil {
		d.Fill(d.gives)
	}
	return err
}

// TestStartOnAFullDisk opens what a crash left, on a disk that another has filled since: sessions can be read, and deleted. Without ballast, the
// error says what to do.
func TestStartOnAFullDisk(t *testing.T) {
	s, _, dir := openFaulty(t, storage.Wait)
	body := bytesOf(1, 100_000)
	r := record(s, body)
	eventually(t, "it is durable", durable(s, r.ID()))
	open := s.Begin(storage.Session{Method: "GET"})
	open.Body(storage.Response).Write(bytesOf(2, 3<<20))
	var copied string
	eventually(t, "the open session is in the log", func() bool {
		var after *storage.Store
		after, copied = crash(t, dir)
		_, err := after.Row(open.ID())
		after.Close()
		copied = storage.Killed(t, dir)
		return err == nil
	})
	for _, ballast := range []bool{true, false} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(copied)); err != nil {
			t.Fatal(err)
		}
		if !ballast {
			if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
				t.Fatal(err)
			}
		}
		files, err := storage.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		disk := fullDisk{storagetest.NewDisk(files), 2 << 20}
		disk.Fill(0)
		after, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk})
		if !ballast {
			if err == nil || !strings.Contains(err.Error(), "make some MB of room") {
				t.Errorf("without ballast: error is %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { after.Close() })
		checkRead(t, after, r.ID(), body)
		if p := after.Status().Problem; !strings.HasPrefix(p, "the disk is full") {
			t.Errorf("problem %q", p)
		}
		if n, err := after.DeleteThrough(context.Background(), open.ID()); n != 2 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		verify(t, after, dir)

		disk.Heal()
		if files, err = storage.OpenDir(dir); err != nil {
			t.Fatal(err)
		}
		if after, err = storage.OpenStore(storage.Config{Dir: dir, Files: files}); err != nil {
			t.Fatal(err)
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "ballast")); err != nil {
			t.Errorf("the ballast is not back: %v", err)
		}
	}
}

// openFull opens a store on a disk whose ballast gives so many bytes.
func openFull(t *testing.T, gives int64) (*storage.Store, fullDisk, string) {
	t.Helper()
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := fullDisk{storagetest.NewDisk(files), gives}
	s, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, disk, dir
}

func checkDelete(t *testing.T, s *storage.Store, r *storage.Recording) {
	t.Helper()
	if n, err := s.Delete(context.Background(), []uint64{r.ID()}); n != 1 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
}

// send has a part of the response pass, as a relay does.
func send(r *storage.Recording, p []byte) {
	w := r.Body(storage.Response)
	for part := range slices.Chunk(p, storage.BufferSize) {
		w.Write(part)
		w.Wait(context.Background())
	}
}

// TestDeletionOnAFullDisk deletes where the disk has no room for the record of that but the ballast's.
func TestDeletionOnAFullDisk(t *testing.T) {
	s, disk, dir := openFull(t, 2<<20)
	r := record(s, bytesOf(1, 1000))
	eventually(t, "it is durable", durable(s, r.ID()))
	disk.Fill(0)
	checkDelete(t, s, r)
	verify(t, s, dir)
}

// TestSettingOnAFullDisk puts a setting where the disk has no room for it but the ballast's.
func TestSettingOnAFullDisk(t *testing.T) {
	s, disk, _ := openFull(t, 2<<20)
	disk.Fill(0)
	if err := s.PutSetting("out", []byte("a setting")); err != nil {
		t.Error(err)
	}
	if got, err := s.Setting("out"); string(got) != "a setting" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestBodiesLeaveTheBallast: what bodies were granted before the disk was full is not taken from what the ballast gave, and sessions that begin are not kept.
func TestBodiesLeaveTheBallast(t *testing.T) {
	s, disk, dir := openFull(t, 1<<20)
	first, second := record(s, bytesOf(1, 1000)), record(s, bytesOf(2, 1000))
	eventually(t, "they are durable", durable(s, second.ID()))
	large := bytesOf(3, 3<<20)
	open := s.Begin(storage.Session{Method: "GET"})
	send(open, large[:1<<20])
	eventually(t, "its start is on disk", func() bool {
		info, err := os.Stat(filepath.Join(dir, "incoming", "1"))
		return err == nil && info.Size() == 1<<20
	})
	disk.Fill(0)
	checkDelete(t, s, first)
	send(open, large[1<<20:])
	eventually(t, "the body is cut", func() bool {
		session, err := s.Session(open.ID())
		return err == nil && strings.HasSuffix(session.Sides[storage.Response].Body.Missing, "the disk is full")
	})
	checkDelete(t, s, second)
	if err := s.PutSetting("out", []byte("a setting")); err != nil {
		t.Error(err)
	}
	if _, err := s.Session(record(s, nil).ID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a session that begins then: %v", err)
	}
	verify(t, s, dir)
}

// TestBodiesInMemoryDoNotBarADeletion: the log has more of bodies in memory than the ballast gives, and a deletion follows them.
func TestBodiesInMemoryDoNotBarADeletion(t *testing.T) {
	s, disk, dir := openFull(t, 64<<10)
	old := record(s, bytesOf(1, 1000))
	eventually(t, "it is durable", durable(s, old.ID()))
	release := disk.Stall(storagetest.Write)
	defer release()
	var held []*storage.Recording
	for i := range uint64(20) {
		held = append(held, record(s, bytesOf(10+i, 40_000)))
	}
	<-disk.Stalled()
	disk.Fill(0)
	release()
	checkDelete(t, s, old)
	for i, r := range held {
		eventually(t, "it is durable", durable(s, r.ID()))
		checkPrefix(t, s, r.ID(), bytesOf(10+uint64(i), 40_000), "the disk is full")
	}
	verify(t, s, dir)
}
