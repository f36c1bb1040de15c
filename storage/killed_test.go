package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Killed copies the data directory of a store that is open as a SIGKILL would leave it. A copy is not made at one moment: it is made anew until no file
// changed from before it until after it, so the store has to come to rest.
func Killed(t testing.TB, dir string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		to := filepath.Join(t.TempDir(), "data")
		before, err := stamps(dir)
		if err == nil {
			err = os.CopyFS(to, os.DirFS(dir))
		}
		var after map[string]string
		if err == nil {
			after, err = stamps(dir)
		}
		switch {
		case err == nil && maps.Equal(before, after):
			return to
		case err != nil && !errors.Is(err, fs.ErrNotExist): // a file that was renamed or removed meanwhile
			t.Fatal(err)
		}
		os.RemoveAll(to)
	}
	t.Fatal("the data directory does not come to rest")
	return ""
}

// stamps returns size and time of change of each file, by its path.
func stamps(dir string) (map[string]string, error) {
	all := make(map[string]string)
	return all, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && !e.IsDir() {
			all[path] = fmt.Sprint(info.Size(), info.ModTime())
		}
		return err
	})
}
