package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readOnly returns an empty directory that this user cannot write: root, whom permissions do not stop, gets one on a read-only file system.
func readOnly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	err := unix.Mount(dir, dir, "", unix.MS_BIND, "")
	if errors.Is(err, unix.EPERM) {
		t.Skip("it takes the right to mount")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDataDirectoryThatCannotBeWritten: the error says what to do.
func TestDataDirectoryThatCannotBeWritten(t *testing.T) {
	dir := readOnly(t)
	for _, data := range []string{dir, filepath.Join(dir, "new")} {
		for _, args := range [][]string{{"serve", "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}, {"ca"}} {
			out, errOut, code := output(t, append(args, "--data", data)...)
			if code != 1 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, "make "+data+" and what is in it writable") || !strings.Contains(errOut, "--data") {
				t.Errorf("%s: exit %d, %s%s", args[0], code, out, errOut)
			}
		}
	}
}
