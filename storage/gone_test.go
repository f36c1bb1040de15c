package storage

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDataDirectoryRemoved: where somebody removes it while a store is open, status and log say so, nothing passes for durable, and what is put back stays as it is.
func TestDataDirectoryRemoved(t *testing.T) {
	const told = "the data directory was removed or replaced: nothing is kept until Millpond is restarted"
	whole := t.TempDir()
	s := openTest(t, whole)
	ids := fillLog(t, s, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyTo := func(t *testing.T, dir string) {
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		remove func(dir string) error
		after  func(t *testing.T, dir string)
	}{
		"removed":                {os.RemoveAll, func(*testing.T, string) {}},
		"removed and made again": {os.RemoveAll, func(t *testing.T, dir string) { copyTo(t, dir) }},
		"emptied and filled again": {func(dir string) error {
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			for _, name := range names {
				if err == nil {
					err = os.RemoveAll(name)
				}
			}
			return err
		}, copyTo},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			copyTo(t, dir)
			s, logs := openLogged(t, dir)
			before := fillLog(t, s, 2)
			if problem := s.Status().Problem; problem != "" {
				t.Fatal(problem)
			}
			if err := test.remove(dir); err != nil {
				t.Fatal(err)
			}
			test.after(t, dir)
			if problem := s.Status().Problem; problem != told { // also before anything is captured
				t.Errorf("the problem is %q", problem)
			}
			back := map[string][32]byte{}
			if _, err := os.Stat(dir); err == nil {
				back = tree(t, dir)
			}
			var last uint64
			for _, size := range []int{100, 5 << 20, 100} {
				r := s.Begin(Session{Method: "GET", Host: "example.com"})
				w := r.Body(Response)
				give(w, noise(r.ID(), size))
				w.Complete()
				r.End(Done, "")
				last = r.ID()
			}
			if err := s.Annotate(before[0], func(s *Session) { s.Note = "a note" }); err == nil {
				t.Error("a note passes for kept")
			}
			time.Sleep(3 * commitInterval)
			if st := s.Status(); st.Problem != told || st.DurableUntil != before[1] || st.LastID != last {
				t.Errorf("got %+v", st)
			}
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), told) {
				t.Errorf("close: %v", err)
			}
			if log := logs.String(); strings.Count(log, told) != 1 || strings.Contains(log, "kept again") {
				t.Errorf("the log says %s", log)
			}
			if len(back) == 0 {
				if _, err := os.Stat(dir); err == nil {
					t.Error("it is there again")
				}
				return
			}
			if now := tree(t, dir); !maps.Equal(now, back) {
				t.Errorf("%d files were put back, and are changed: now %d", len(back), len(now))
			}
			mustVerify(t, dir)
			checkKept(t, openTest(t, dir), ids)
		})
	}
}
