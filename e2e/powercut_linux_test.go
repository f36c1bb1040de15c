package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millpond/e2e/harness"
)

// The power is cut during ten downloads: what was reported durable before, and while the cut was not noticed, is whole, and nothing is
// named that is not there.
func TestPowerCutDuringDownloads(t *testing.T) {
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 1<<30); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: no ext4 for a power cut: %v %s", err, out)
	}
	at := mount(t, "-o", "loop", image)

	origin := harness.StartOrigin(t)
	args := origin.Trusted(t)
	dir := filepath.Join(at, "data")
	var rounds []*traffic
	for _, prefix := range []string{"cut-0", "cut-1"} {
		p := harness.Start(t, dir, args...)
		tr := startTraffic(t, p, origin, prefix, 10*time.Second)
		tr.killed = time.Now() // of what ended since, a power cut may leave nothing: only what was durable counts
		tr.awaitBusy(t)
		shutDown(t, at)
		tr.awaitReports(3) // which must not be of what the disk no longer takes
		p.Kill()
		tr.wait()
		rounds = append(rounds, tr)

		unmount(t, at)
		mountAt(t, at, "-o", "loop", image)
		p = harness.Start(t, dir, args...)
		for _, tr := range rounds {
			tr.check(t, p, 1<<62)
		}
		stop(t, p)
		checkVerified(t, dir)
	}
	for _, tr := range rounds {
		if len(tr.durable) == 0 {
			t.Errorf("%s: nothing was reported durable", tr.prefix)
		}
	}
}

// shutDown ends a file system as a power cut does: nothing more reaches its device, and its journal is not written out.
// See ioctl_xfs_goingdown(2), which ext4 has too.
func shutDown(t *testing.T, at string) {
	t.Helper()
	const (
		fsIocShutdown = 0x8004587d // _IOR('X', 125, __u32)
		noLogFlush    = 2
	)
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), fsIocShutdown, noLogFlush); err != nil {
		t.Fatalf("cut the power: %v", err)
	}
}
