package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

func init() {
	if dir := os.Getenv("MILLPOND_BACKUP_OF"); dir != "" {
		backUpUntilKilled(dir)
	}
}

// backUpUntilKilled backs up the store in dir to a slow disk, and says when it has begun to copy.
func backUpUntilKilled(dir string) {
	to := os.Getenv("MILLPOND_BACKUP_TO")
	s, err := storage.OpenStore(storage.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	files, err := storage.OpenDir(to)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	disk := storagetest.NewDisk(files)
	disk.Delay(20 * time.Millisecond)
	_, err = s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: disk, Copy: true, Progress: func(storage.BackupProgress) { fmt.Println("copying") }})
	fmt.Println("done", err)
	os.Exit(0)
}

func openStore(t *testing.T, dir string) *storage.Store {
	t.Helper()
	s, err := storage.OpenStore(storage.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// verify reads every byte of a store that is closed.
func verifyAll(t *testing.T, dir string) {
	t.Helper()
	if _, err := storage.Verify(dir, true, func(p string) { t.Errorf("%s: %s", dir, p) }); err != nil {
		t.Errorf("%s: %v", dir, err)
	}
}

func becomeDurable(t *testing.T, s *storage.Store, id uint64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); s.Status().DurableUntil < id; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("session %d is not durable: %+v", id, s.Status())
		}
	}
}

// sumOf is the SHA-256 of a response's body as it is read; "" where the session is not there.
func sumOf(t *testing.T, s *storage.Store, id uint64) string {
	t.Helper()
	b, err := s.Body(id, storage.Response)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Errorf("session %d: %v", id, err)
		return ""
	}
	defer b.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(b, 0, b.Size())); err != nil {
		t.Errorf("session %d: %v", id, err)
	}
	return string(h.Sum(nil))
}

// holds checks that a store holds these sessions, whole and with their bodies. It opens the store, and closes it.
func holds(t *testing.T, dir string, bodies map[uint64]string) {
	t.Helper()
	s := openStore(t, dir)
	for id, want := range bodies {
		session, err := s.Session(id)
		if err != nil {
			t.Errorf("%s: session %d: %v", dir, id, err)
			continue
		}
		if b := session.Sides[storage.Response].Body; session.State != storage.Done || !b.Complete {
			t.Errorf("%s: session %d: %s, %+v", dir, id, session.State, b)
		}
		if got := sumOf(t, s, id); got != want {
			t.Errorf("%s: session %d: its body has the hash %x, want %x", dir, id, got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: %v", dir, err)
	}
}

// sizes of bodies: none, in the log, as chunks.
func sizeOf(n int) int { return []int{0, 100, 40_000, 200_000, 300_000, 5_000_000}[n%6] }

// fill records n sessions and returns the hashes of their bodies, once they are durable.
func fill(t *testing.T, s *storage.Store, n int) map[uint64]string {
	t.Helper()
	bodies := make(map[uint64]string)
	last := uint64(0)
	for i := range n {
		body := bytesOf(uint64(i), sizeOf(i))
		last = record(s, body).ID()
		sum := sha256.Sum256(body)
		bodies[last] = string(sum[:])
	}
	becomeDurable(t, s, last)
	return bodies
}

// otherDisk returns an empty directory on another file system than t.TempDir's.
func otherDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "millpond")
	if err != nil {
		t.Skip("no other file system: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	probe := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Link(probe, filepath.Join(dir, "probe")) == nil {
		t.Skip("/dev/shm is on the file system of temporary files")
	}
	return dir
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// A backup while sessions are recorded and deleted holds every session that was durable when it began.
func TestBackupUnderLoad(t *testing.T) {
	for name, target := range map[string]func(*testing.T) string{
		"the same disk": func(t *testing.T) string { return filepath.Join(t.TempDir(), "new", "backup") },
		"another disk":  otherDisk,
	} {
		rounds := 3
		if testing.Short() {
			rounds = 1
		}
		t.Run(name, func(t *testing.T) { testBackupUnderLoad(t, rounds, target) })
	}
}

func testBackupUnderLoad(t *testing.T, rounds int, target func(*testing.T) string) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ca"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"key.pem", "cert.pem"} {
		if err := os.WriteFile(filepath.Join(dir, "ca", name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, dir)
	if err := errors.Join(s.PutShare("a share", []byte("its record")), s.PutSetting("out", []byte("a setting")), s.ControlledAt("127.0.0.1:1", "secret")); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 60)

	var mu sync.Mutex
	bodies := make(map[uint64]string) // of those that are never deleted
	var stop atomic.Bool
	var load sync.WaitGroup
	for worker := range 3 {
		load.Go(func() {
			var doomed []uint64
			for n := worker; !stop.Load(); n += 3 {
				body := bytesOf(uint64(n%50), sizeOf(n)) // some repeat
				id := record(s, body).ID()
				sum := sha256.Sum256(body)
				if n%2 == 0 {
					mu.Lock()
					bodies[id] = string(sum[:])
					mu.Unlock()
				} else if doomed = append(doomed, id); len(doomed) > 5 {
					if _, err := s.Delete(context.Background(), doomed[:3]); err != nil {
						t.Error(err)
					}
					doomed = doomed[3:]
				}
			}
		})
	}
	load.Go(func() { // a body that grows all the time
		r := s.Begin(storage.Session{Method: "GET", Host: "open"})
		w := r.Body(storage.Response)
		for n := uint64(0); !stop.Load(); n++ {
			b := storage.NewBuffer()
			w.Give(b, copy(b.B, bytesOf(n, 30_000)))
			w.Wait(context.Background())
			time.Sleep(time.Millisecond)
		}
		r.End(storage.Failed, "the test is over")
	})
	for range rounds {
		more := s.Status().LastID + 30
		becomeDurable(t, s, more)
		until := s.Status().DurableUntil
		want := make(map[uint64]string)
		mu.Lock()
		for id, sum := range bodies {
			if id <= until {
				want[id] = sum
			}
		}
		mu.Unlock()
		to := target(t)
		done, err := s.Backup(context.Background(), storage.BackupTo{Dir: to})
		if err != nil {
			t.Fatal(err)
		}
		if done.Copied == 0 || done.Copied < done.ToCopy/2 || done.Linked != done.ToLink || done.Sessions < uint64(len(want)) || len(want) == 0 {
			t.Errorf("%d sessions: %+v", len(want), done)
		}
		t.Logf("%d sessions: %+v", len(want), done)
		verifyAll(t, to)
		holds(t, to, want)
		verifyAll(t, to)
		again := openStore(t, to)
		share, _ := again.Share("a share")
		setting, _ := again.Setting("out")
		if string(share) != "its record" || string(setting) != "a setting" {
			t.Errorf("got share %q, setting %q", share, setting)
		}
		again.Close()
		if key, err := os.ReadFile(filepath.Join(to, "ca", "key.pem")); string(key) != "key.pem" {
			t.Errorf("got %q, %v", key, err)
		}
		for _, name := range []string{"control", "millpond.part"} {
			if _, err := os.Lstat(filepath.Join(to, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		err = filepath.WalkDir(to, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				if info, _ := d.Info(); info.Mode().Perm()&0o077 != 0 && name != to {
					t.Errorf("%s has mode %v", name, info.Mode())
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	load.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "control")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the control file after a clean stop: %v", err)
	}
	verifyAll(t, dir)
	holds(t, dir, bodies)
}

// stallAt begins a backup whose target lets the first n files through and then stalls.
func stallAt(t *testing.T, s *storage.Store, to string, n int) (release func() error) {
	t.Helper()
	files, err := storage.OpenDir(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	disk := storagetest.NewDisk(files)
	begun := make(chan struct{})
	done := make(chan error, 1)
	var free func()
	once := sync.OnceFunc(func() {
		free = disk.Stall(storagetest.Create)
		close(begun)
	})
	go func() {
		_, err := s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: disk, Copy: true, Progress: func(storage.BackupProgress) { once() }})
		done <- err
	}()
	<-begun
	t.Cleanup(free)
	<-disk.Stalled()
	return func() error { free(); return <-done }
}

// What is deleted while a backup runs is in the backup, and gets off the disk at its end; a chunk that comes back meanwhile stays.
func TestDeletedDuringBackup(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := openStore(t, dir)
	bodies := fill(t, s, 24)
	back := bytesOf(1234, 5_000_000)
	id := record(s, back).ID()
	sum := sha256.Sum256(back)
	bodies[id] = string(sum[:])
	becomeDurable(t, s, id)
	release := stallAt(t, s, to, 0)
	if n, err := s.DeleteThrough(context.Background(), id); err != nil || n != len(bodies) {
		t.Fatal(n, err)
	}
	again := record(s, back).ID()
	becomeDurable(t, s, again)
	if got := sumOf(t, s, again); got != string(sum[:]) {
		t.Errorf("the body that came back has the hash %x", got)
	}
	chunks := func() int {
		all, _ := filepath.Glob(filepath.Join(dir, "chunks", "*", "*"))
		return len(all)
	}
	held := chunks()
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if left := chunks(); left != 2 || held <= left {
		t.Errorf("%d chunks during the backup, %d after it, want 2", held, left)
	}
	verifyAll(t, to)
	holds(t, to, bodies)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	verifyAll(t, dir)
	holds(t, dir, map[uint64]string{again: string(sum[:])})
	verifyAll(t, dir)
}

// What a backup kept from being removed goes at the next start where the process is killed before its end.
func TestKilledDuringBackupWithDeletions(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := openStore(t, dir)
	bodies := fill(t, s, 12)
	release := stallAt(t, s, to, 0)
	if _, err := s.DeleteThrough(context.Background(), uint64(len(bodies))); err != nil {
		t.Fatal(err)
	}
	killed := storage.Killed(t, dir)
	if err := release(); err != nil {
		t.Fatal(err)
	}
	openStore(t, killed).Close()
	verifyAll(t, killed)
	if left, _ := filepath.Glob(filepath.Join(killed, "chunks", "*", "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// The original and its backup have files in common, and nothing else: deleting in one leaves the other.
func TestBackupIsIndependent(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := openStore(t, dir)
	bodies := fill(t, s, 100)
	done, err := s.Backup(context.Background(), storage.BackupTo{Dir: to})
	if err != nil || done.Linked == 0 || done.Linked != done.ToLink {
		t.Fatal(done, err)
	}
	before := map[uint64]string{}
	for id, sum := range bodies {
		before[id] = sum
		if id%2 == 0 {
			if _, err := s.Delete(context.Background(), []uint64{id}); err != nil {
				t.Fatal(err)
			}
			delete(bodies, id)
		}
	}
	for id, sum := range fill(t, s, 5) { // and new ones in the same place of the log
		bodies[id] = sum
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verifyAll(t, to)
	holds(t, to, before)
	b := openStore(t, to)
	if _, err := b.DeleteThrough(context.Background(), 1<<60); err != nil {
		t.Fatal(err)
	}
	fill(t, b, 5)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	verifyAll(t, to)
	verifyAll(t, dir)
	holds(t, dir, bodies)
}

// A store that no process has open is copied as it is, also after a kill.
func TestBackupOfStoppedStore(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	bodies := fill(t, s, 30)
	r := s.Begin(storage.Session{Method: "GET", Host: "open"})
	w := r.Body(storage.Response)
	for n := range uint64(100) {
		b := storage.NewBuffer()
		w.Give(b, copy(b.B, bytesOf(n, len(b.B))))
		w.Wait(context.Background())
	}
	if _, err := storage.BackupStopped(context.Background(), dir, storage.BackupTo{Dir: filepath.Join(t.TempDir(), "no")}); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("while it is open: %v", err)
	}
	becomeDurable(t, s, r.ID()-1)
	time.Sleep(300 * time.Millisecond)
	killed := storage.Killed(t, dir)
	r.End(storage.Done, "")
	s.Close()
	for _, state := range []string{"killed", "killed while the index was compacted"} {
		if state != "killed" {
			if err := os.Rename(filepath.Join(killed, "index.db"), filepath.Join(killed, "index.db.old")); err != nil {
				t.Fatal(err)
			}
		}
		for _, copies := range []bool{false, true} {
			to := filepath.Join(t.TempDir(), "backup")
			done, err := storage.BackupStopped(context.Background(), killed, storage.BackupTo{Dir: to, Copy: copies})
			if err != nil || done.Sessions != uint64(len(bodies)+1) || copies != (done.Linked == 0) {
				t.Fatal(done, err)
			}
			holds(t, to, bodies)
			b := openStore(t, to)
			if session, err := b.Session(r.ID()); err != nil || session.State != storage.Interrupted || session.Sides[1].Body.Size == 0 {
				t.Errorf("the open session: %+v, %v", session, err)
			}
			b.Close()
			verifyAll(t, to)
		}
	}
	openStore(t, killed).Close()
	verifyAll(t, killed)
	holds(t, killed, bodies)
	if _, err := storage.BackupStopped(context.Background(), t.TempDir(), storage.BackupTo{Dir: filepath.Join(t.TempDir(), "no")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

// TestBackupOfDamagedStore: what is gone is told, and what there is is backed up.
func TestBackupOfDamagedStore(t *testing.T) {
	whole := t.TempDir()
	s := openStore(t, whole)
	fill(t, s, 30)
	s.Close()
	first := func(t *testing.T, pattern string) string {
		t.Helper()
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		return names[0]
	}
	log := func(t *testing.T, dir string) string { return first(t, filepath.Join(dir, "log", "*")) }
	chunk := func(t *testing.T, dir string) string { return first(t, filepath.Join(dir, "chunks", "*", "*")) }
	remove := func(find func(*testing.T, string) string) func(*testing.T, string) error {
		return func(t *testing.T, dir string) error { return os.Remove(find(t, dir)) }
	}
	shorten := func(find func(*testing.T, string) string) func(*testing.T, string) error {
		return func(t *testing.T, dir string) error { return os.Truncate(find(t, dir), 1000) }
	}
	index := func(_ *testing.T, dir string) string { return filepath.Join(dir, "index.db") }
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string) error
		told   string
	}{
		"nothing":         {func(*testing.T, string) error { return nil }, ""},
		"no segment":      {remove(log), "log/000001: it is gone"},
		"a short segment": {shorten(log), "log/000001: 1000 bytes long, want "},
		"no log":          {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, "log")) }, "log/000001: it is gone"},
		"no chunk":        {remove(chunk), ": it is gone"},
		"a short chunk":   {shorten(chunk), ": 1000 bytes long, want "},
		"no chunks":       {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, "chunks")) }, ": it is gone"},
		"no index":        {remove(index), "index.db: it is gone"},
		"a short index":   {shorten(index), "index.db: "},
		"a damaged index": {func(t *testing.T, dir string) error {
			f, err := os.OpenFile(index(t, dir), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(bytes.Repeat([]byte("Z"), 60_000), 20_000)
			return errors.Join(err, f.Close())
		}, "index.db: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
			if err := errors.Join(os.CopyFS(dir, os.DirFS(whole)), test.damage(t, dir)); err != nil {
				t.Fatal(err)
			}
			var told []string
			_, err := storage.BackupStopped(t.Context(), dir, storage.BackupTo{Dir: to, Lacks: func(problem string) { told = append(told, problem) }})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(told, "\n"); (test.told == "") != (all == "") || !strings.Contains(all, test.told) {
				t.Errorf("it says %q, want %q", all, test.told)
			}
			if _, err := os.Stat(filepath.Join(to, "format")); err != nil {
				t.Errorf("no backup: %v", err)
			}
		})
	}
}
