package storagetest_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

func openDir(t *testing.T) storage.Files {
	t.Helper()
	dir, err := storage.OpenDir(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func openDisk(t *testing.T) *storagetest.Disk { return storagetest.NewDisk(openDir(t)) }

func TestDir(t *testing.T) { storagetest.Files(t, openDir) }

func TestDisk(t *testing.T) {
	storagetest.Files(t, func(t *testing.T) storage.Files { return openDisk(t) })
}

func create(t *testing.T, files storage.Files) storage.File {
	t.Helper()
	f, err := files.OpenFile("f", os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); files.Close() })
	return f
}

func TestStallHoldsUntilReleased(t *testing.T) {
	for name, end := range map[string]func(*storagetest.Disk, func()){
		"release": func(_ *storagetest.Disk, release func()) { release(); release() },
		"heal":    func(d *storagetest.Disk, release func()) { d.Heal(); release() },
	} {
		t.Run(name, func(t *testing.T) {
			d := openDisk(t)
			f := create(t, d)
			release := d.Stall(storagetest.Sync)
			if _, err := io.WriteString(f, "writes are not stalled"); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- f.Sync() }()
			if op := <-d.Stalled(); op != storagetest.Sync {
				t.Errorf("op %d waits, want Sync", op)
			}
			select {
			case err := <-done:
				t.Fatalf("Sync returned %v while stalled", err)
			default:
			}
			end(d, release)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if got := d.Count(storagetest.Sync); got != 1 {
				t.Errorf("%d syncs passed, want 1", got)
			}
		})
	}
}

func TestFailNthThenHeal(t *testing.T) {
	d := openDisk(t)
	f := create(t, d)
	d.FailNth(storagetest.Sync, 2, syscall.EIO)
	for i, want := range []error{nil, syscall.EIO, nil} {
		if err := f.Sync(); !errors.Is(err, want) {
			t.Errorf("sync %d: %v, want %v", i+1, err, want)
		}
	}
	d.Fail(storagetest.Write|storagetest.Create, syscall.ENOSPC)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	if err := d.Mkdir("d"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("mkdir: %v", err)
	}
	d.Heal()
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Error(err)
	}
	if got := storagetest.Content(t, d, "f"); got != "x" {
		t.Errorf("content is %q", got)
	}
}

func TestFullDiskTakesWhatFits(t *testing.T) {
	d := openDisk(t)
	f := create(t, d)
	d.Fill(6)
	if n, err := io.WriteString(f, "four"); n != 4 || err != nil {
		t.Errorf("write = %d, %v", n, err)
	}
	if n, err := io.WriteString(f, "four"); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write = %d, %v, want 2, ENOSPC", n, err)
	}
	if free, _, err := d.Space(); free != 0 || err != nil {
		t.Errorf("free = %d, %v", free, err)
	}
	if err := d.Mkdir("d"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("mkdir: %v", err)
	}
	d.Heal()
	if n, err := io.WriteString(f, "ur"); n != 2 || err != nil {
		t.Errorf("write = %d, %v", n, err)
	}
	if got := storagetest.Content(t, d, "f"); got != "fourfour" {
		t.Errorf("content is %q", got)
	}
}

func TestDelay(t *testing.T) {
	d := openDisk(t)
	f := create(t, d)
	synctest.Test(t, func(t *testing.T) {
		d.Delay(3 * time.Second)
		begun := time.Now()
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("a sync took %v, want 3s", took)
		}
	})
}
