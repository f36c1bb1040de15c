package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A snapshot on a read-only file system is verified and backed up as any other, with and without a lock file. What would change it says why it cannot.
func TestReadOnlyFileSystem(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	ids := fillLog(t, s, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, locked := range []bool{true, false} {
		if !locked {
			if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
				t.Fatal(err)
			}
		}
		shown := t.TempDir()
		err := unix.Mount(dir, shown, "", unix.MS_BIND, "")
		if errors.Is(err, unix.EPERM) {
			t.Skip("it takes the right to mount")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(shown, unix.MNT_DETACH)
		if err := unix.Mount("", shown, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, shown)
		copied := filepath.Join(t.TempDir(), "copy")
		if _, err := BackupStopped(context.Background(), shown, BackupTo{Dir: copied, Lacks: func(lack string) { t.Error(lack) }}); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, copied)
		opened := openTest(t, copied)
		checkKept(t, opened, ids)
		if _, err := Repair(shown, func(string) {}); !errors.Is(err, syscall.EROFS) {
			t.Errorf("repair: %v", err)
		}
		if _, err := OpenStore(Config{Dir: shown}); !errors.Is(err, syscall.EROFS) {
			t.Errorf("open: %v", err)
		}
	}
}
