package storage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// fullDisk has no room until the ballast is removed.
type fullDisk struct{ *storagetest.Disk }

// Mkdir finds what there is, as a disk does that is full.
func (d fullDisk) Mkdir(name string) error { return d.Disk.Files.Mkdir(name) }

func (d fullDisk) Remove(name string) error {
	err := d.Disk.Remove(name)
	if name == "ballast" && err == nil {
		d.Fill(2 << 20)
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
		copied = t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
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
		disk := fullDisk{storagetest.NewDisk(files)}
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

// TestDeletionOnAFullDisk deletes where the disk has no room for the record of that but the ballast's.
func TestDeletionOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := fullDisk{storagetest.NewDisk(files)}
	s, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := record(s, bytesOf(1, 1000))
	eventually(t, "it is durable", durable(s, r.ID()))
	disk.Fill(0)
	if n, err := s.Delete(context.Background(), []uint64{r.ID()}); n != 1 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
	verify(t, s, dir)
}
