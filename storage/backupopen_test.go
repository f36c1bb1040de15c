package storage_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"millpond/storage"
)

// TestOpenSessionInABackup: what was open while the backup was made says that, also in a backup of the backup. What a Millpond that serves the backup is killed with
// says that it was ended.
func TestOpenSessionInABackup(t *testing.T) {
	const killed, backedUp = "Millpond was ended before the session was", "The backup was made before the session ended"
	begin := func(s *storage.Store) *storage.Recording {
		r := s.Begin(storage.Session{Method: "GET", Host: "open"})
		w := r.Body(storage.Response)
		b := storage.NewBuffer()
		w.Give(b, copy(b.B, bytesOf(r.ID(), 20_000)))
		w.Wait(context.Background())
		becomeDurable(t, s, record(s, nil).ID()) // and so is what it has by then
		return r
	}
	check := func(dir string, want map[uint64]string) {
		t.Helper()
		verifyAll(t, dir)
		s := openStore(t, dir)
		for id, why := range want {
			if session, err := s.Session(id); err != nil || session.State != storage.Interrupted || session.Error != why {
				t.Errorf("%s: session %d: %+v, %v, want %q", dir, id, session, err, why)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "backup")); err == nil {
			t.Errorf("%s: its mark is there after a start", dir)
		}
	}
	s := openStore(t, t.TempDir())
	r := begin(s)
	defer r.End(storage.Done, "")
	to := filepath.Join(t.TempDir(), "backup")
	again := filepath.Join(t.TempDir(), "again")
	repaired := filepath.Join(t.TempDir(), "repaired")
	if _, err := s.Backup(t.Context(), storage.BackupTo{Dir: to}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{again, repaired} {
		if _, err := storage.BackupStopped(t.Context(), to, storage.BackupTo{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(repaired, "index.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Repair(repaired, func(string) {}); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{r.ID(): backedUp}
	check(to, want)
	check(again, want)
	check(repaired, want)

	served := openStore(t, again)
	after := begin(served)
	defer after.End(storage.Done, "")
	want[after.ID()] = killed
	check(storage.Killed(t, again), want)
}
