package e2e

import (
	"errors"
	"testing"

	"millpond/e2e/harness"
)

// mount mounts a file system for the test, and returns where. Where that cannot be done, as without root, the test says that it was not run.
func mount(t *testing.T, args ...string) (at string) {
	t.Helper()
	at = t.TempDir()
	t.Cleanup(func() {
		if err := harness.Unmount(at); err != nil {
			t.Error(err)
		}
	})
	if err := harness.Mount(at, args...); errors.Is(err, harness.ErrNoDisk) {
		t.Skipf("NOT RUN: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return at
}
