package e2e

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// mount mounts a file system for the test, and returns where. Where that cannot be done, as without root, the test says that it was not run.
func mount(t *testing.T, args ...string) (at string) {
	t.Helper()
	at = t.TempDir()
	t.Cleanup(func() { unmount(t, at) })
	mountAt(t, at, args...)
	return at
}

func mountAt(t *testing.T, at string, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: mounting a disk for the test needs root")
	}
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: a disk cannot be mounted here: %v %s", err, out)
	}
}

// unmount unmounts what is mounted there, if anything is. Whoever still reads from it is given a moment.
func unmount(t *testing.T, at string) {
	t.Helper()
	var out []byte
	for range 50 {
		if exec.Command("mountpoint", "-q", at).Run() != nil {
			return
		}
		var err error
		if out, err = exec.Command("umount", at).CombinedOutput(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond) // that it is no longer busy has no event
	}
	t.Errorf("unmount %s: %s", at, out)
}
