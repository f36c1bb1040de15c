package storage

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millpond/migrations"
)

// indexOf keeps the index of a closed store, to be put back later.
func indexOf(t *testing.T, dir string) (putBack func(dir string)) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	return func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, indexName), old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepairOfAnOlderIndex puts an index back from before most sessions were deleted, and segments rewritten or removed: repair keeps what a start keeps, moves
// nothing sound aside, and what was deleted stays so.
func TestRepairOfAnOlderIndex(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, s *Store, ids []uint64) (kept []uint64){
		"segments are rewritten": func(t *testing.T, s *Store, ids []uint64) []uint64 { return deleteBut(t, s, ids, 16) },
		"segments are gone": func(t *testing.T, s *Store, ids []uint64) []uint64 {
			more := fillLog(t, s, 120)
			return append(deleteBut(t, s, ids, len(ids))[1:], append(ids[:1:1], more...)...)
		},
		"all of the former is gone, the deletion too": func(t *testing.T, s *Store, ids []uint64) []uint64 {
			first := fillLog(t, s, 120)
			if _, err := s.Delete(t.Context(), append(ids, first...)); err != nil {
				t.Fatal(err)
			}
			return fillLog(t, s, 60)
		},
		"chunks are gone": func(t *testing.T, s *Store, ids []uint64) []uint64 {
			large := largeSession(t, s)
			if _, err := s.Delete(t.Context(), []uint64{large, large - 1}); err != nil {
				t.Fatal(err)
			}
			return ids
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			smallSegments(s)
			ids := fillLog(t, s, 150)
			if name == "chunks are gone" {
				largeSession(t, s)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			putBack := indexOf(t, dir)
			s = openTest(t, dir)
			smallSegments(s)
			kept := remove(t, s, ids)
			waitCleaned(t, s)
			checkKept(t, s, kept)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustVerify(t, dir)
			putBack(dir)

			told := strings.Join(verifyAll(t, dir), "\n")
			if name != "chunks are gone" && (!strings.Contains(told, "index: it does not fit the log") || strings.Contains(told, "nothing names it")) {
				t.Errorf("verify says %s", told)
			}
			done, lines := repairAll(t, dir)
			if done.Wrong == 0 || done.Lost > 0 || done.MayMiss {
				t.Errorf("%+v:\n%s", done, strings.Join(lines, "\n"))
			}
			if aside, err := os.ReadDir(filepath.Join(dir, damagedDir)); err == nil {
				t.Errorf("moved aside: %v\n%s", aside, strings.Join(lines, "\n"))
			}
			s = openTest(t, dir)
			checkKept(t, s, kept)
		})
	}
}

// TestRepairOfAnIndexOfALaterLog puts a log back from before segments were rewritten.
func TestRepairOfAnIndexOfALaterLog(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	smallSegments(s)
	ids := fillLog(t, s, 150)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(older, os.DirFS(filepath.Join(dir, "log"))); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	deleteBut(t, s, ids, 16)
	waitCleaned(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "log"), os.DirFS(older)); err != nil {
		t.Fatal(err)
	}
	if done, lines := repairAll(t, dir); done.Lost > 0 || done.MayMiss {
		t.Errorf("%+v:\n%s", done, strings.Join(lines, "\n"))
	}
	s = openTest(t, dir)
	checkKept(t, s, ids)
}

// largeSession records a session with a body in chunks.
func largeSession(t *testing.T, s *Store) uint64 {
	t.Helper()
	r := s.Begin(Session{Method: "GET", Host: "example.com", Path: "/large"})
	give(r.Body(Response), noise(r.ID(), 5<<20))
	r.Body(Response).Complete()
	r.End(Done, "")
	waitDurable(t, s)
	return r.ID()
}

// TestWithoutAnIndex removes or empties the index: that is told, chunks are read all the same, and repair says what was lost.
func TestWithoutAnIndex(t *testing.T) {
	c := newRepairCase(t)
	chunks := func(dir string) []string {
		found, _ := filepath.Glob(filepath.Join(dir, "chunks", "*", "*"))
		return found
	}
	for name, test := range map[string]struct {
		lose func(index string) error
		told string
	}{
		"gone":  {os.Remove, "index: it is gone; the next start makes it again from the log"},
		"empty": {func(index string) error { return os.Truncate(index, 0) }, "index: it is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.copy(t)
			if err := test.lose(filepath.Join(dir, indexName)); err != nil {
				t.Fatal(err)
			}
			var told []string
			looked, err := Verify(dir, false, func(p string) { told = append(told, p) })
			if err != nil || len(told) != 1 || !strings.HasPrefix(told[0], test.told) || looked.Segments == 0 {
				t.Errorf("verify says %q, %+v, %v", told, looked, err)
			}
			if told := verifyAll(t, dir); len(told) != 1 {
				t.Errorf("verify --full says %q", told)
			}
			damaged := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(damaged, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}

			if done, lines := repairAll(t, dir); done.Lost > 0 {
				t.Errorf("%+v:\n%s", done, strings.Join(lines, "\n"))
			}
			if lost := c.check(t, dir); len(lost) > 0 {
				t.Errorf("sessions %v lost something", lost)
			}

			files := chunks(damaged)
			change(t, files[0], 5, 1, 2, 3)
			if err := os.Remove(files[1]); err != nil {
				t.Fatal(err)
			}
			all := strings.Join(verifyAll(t, damaged), "\n")
			for _, file := range files[:2] {
				if !strings.Contains(all, "chunk "+filepath.Base(file)+": ") {
					t.Errorf("chunk %s is not told of:\n%s", filepath.Base(file), all)
				}
			}
			done, lines := repairAll(t, damaged)
			if lost := c.check(t, damaged); done.Lost == 0 || len(lost) != done.Lost {
				t.Errorf("sessions %v lost something, %+v:\n%s", lost, done, strings.Join(lines, "\n"))
			}
		})
	}
	fresh := t.TempDir()
	if err := migrations.Migrate(fresh, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if told := verifyAll(t, fresh); len(told) > 0 { // a first start that was broken off
		t.Errorf("of one that was never used: %q", told)
	}
	if err := openTest(t, fresh).Close(); err != nil {
		t.Fatal(err)
	}
	if told := verifyAll(t, fresh); len(told) > 0 {
		t.Errorf("of one without sessions: %q", told)
	}
}
