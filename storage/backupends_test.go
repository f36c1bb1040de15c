package storage_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/migrations"
	"millpond/storage"
	"millpond/storage/storagetest"
)

func TestBackupRefused(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	fill(t, s, 12)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "log"), link); err != nil {
		t.Skip(err)
	}
	full, unfinished := t.TempDir(), t.TempDir()
	for _, name := range []string{filepath.Join(full, "a"), filepath.Join(unfinished, "millpond.part")} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for to, why := range map[string]string{
		full:                             "is not empty",
		unfinished:                       "not finished",
		dir:                              "is not empty",
		filepath.Join(dir, "backup"):     "inside the data directory",
		filepath.Join(dir, "a", "b"):     "inside the data directory",
		filepath.Join(link, "a"):         "inside the data directory",
		filepath.Join(dir, "format"):     "choose another directory",
		filepath.Join(dir, "log", "new"): "inside the data directory",
	} {
		for who, backUp := range map[string]func() error{
			"running": func() error { _, err := s.Backup(context.Background(), storage.BackupTo{Dir: to}); return err },
		} {
			if err := backUp(); !errors.Is(err, storage.ErrBackup) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s to %s: %v, want %q", who, to, err, why)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
		t.Error("a refused backup left a directory")
	}
}

func TestBackupToFullDisk(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := openStore(t, dir)
	bodies := fill(t, s, 24)
	files, err := storage.OpenDir(to)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	disk := storagetest.NewDisk(files)

	disk.SetSpace(3<<20, 100<<20)
	copied := false
	_, err = s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: disk, Copy: true, Progress: func(storage.BackupProgress) { copied = true }})
	if !errors.Is(err, storage.ErrBackup) || !strings.Contains(err.Error(), "3 MB are free") || copied {
		t.Errorf("told before: %v", err)
	}
	empty(t, to)

	disk.SetSpace(1<<40, 1<<40)
	for _, room := range []int64{0, 100, 1 << 20, 10 << 20} {
		disk.Fill(room)
		if _, err = s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: disk, Copy: true}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with room for %d: %v", room, err)
		}
		empty(t, to)
	}
	for _, op := range []storagetest.Op{storagetest.Sync, storagetest.Rename} {
		for nth := 1; ; nth *= 2 {
			to := t.TempDir()
			files, err := storage.OpenDir(to)
			if err != nil {
				t.Fatal(err)
			}
			disk := storagetest.NewDisk(files)
			disk.FailNth(op, nth, syscall.EIO)
			_, err = s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: disk})
			files.Close()
			if err == nil {
				if nth < 5 {
					t.Errorf("it does not fail with %v %d", op, nth)
				}
				break // there are not as many
			}
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%v %d: %v", op, nth, err)
			}
			empty(t, to)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	verifyAll(t, dir)
	holds(t, dir, bodies)
}

// Where the data directory's disk becomes full while a backup keeps deleted sessions' room, the backup gives way.
func TestBackupGivesWay(t *testing.T) {
	s, disk, _ := openFaulty(t, storage.Wait)
	bodies := fill(t, s, 24)
	to := t.TempDir()
	release := stallAt(t, s, to, 0)
	if _, err := s.DeleteThrough(context.Background(), uint64(len(bodies))); err != nil {
		t.Fatal(err)
	}
	disk.SetSpace(0, 1<<40)
	record(s, bytesOf(99, 20<<20)) // is refused, once what was granted before is used up
	for deadline := time.Now().Add(20 * time.Second); s.Status().Problem == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the disk never became full")
		}
	}
	if err := release(); err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("got %v", err)
	}
	empty(t, to)
}

func TestBackupEnds(t *testing.T) {
	for how, end := range map[string]func(*storage.Store, context.CancelFunc){
		"when it is told to":            func(_ *storage.Store, cancel context.CancelFunc) { cancel() },
		"when the store is closed":      func(s *storage.Store, _ context.CancelFunc) { go s.Close() },
		"and another one waits for it ": nil,
	} {
		t.Run(how, func(t *testing.T) {
			dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
			s := openStore(t, dir)
			fill(t, s, 12)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := false
			_, err := s.Backup(ctx, storage.BackupTo{Dir: to, Copy: true, Progress: func(storage.BackupProgress) {
				if ended {
					return
				}
				ended = true
				if end == nil {
					if _, err := s.Backup(ctx, storage.BackupTo{Dir: filepath.Join(t.TempDir(), "b")}); !errors.Is(err, storage.ErrBackup) {
						t.Errorf("a second one: %v", err)
					}
					return
				}
				end(s, cancel)
				time.Sleep(200 * time.Millisecond) // until Close has come to it
			}})
			if end == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			empty(t, to)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// snapshots is a target that keeps what a kill before each rename would leave.
type snapshots struct {
	storage.Files
	t    *testing.T
	dir  string
	kept []string
}

func (s *snapshots) Rename(from, to string) error {
	at := s.t.TempDir()
	if err := os.CopyFS(at, os.DirFS(s.dir)); err != nil {
		s.t.Error(err)
	}
	s.kept = append(s.kept, at)
	return s.Files.Rename(from, to)
}

// A backup that was broken off is not taken for data, wherever that was.
func TestBrokenOffBackupIsNotData(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := openStore(t, dir)
	fill(t, s, 12)
	files, err := storage.OpenDir(to)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	target := &snapshots{Files: files, t: t, dir: to}
	if _, err := s.Backup(context.Background(), storage.BackupTo{Dir: to, Files: target}); err != nil {
		t.Fatal(err)
	}
	if len(target.kept) < 5 {
		t.Errorf("%d renames", len(target.kept))
	}
	for _, at := range target.kept {
		if _, err := storage.OpenStore(storage.Config{Dir: at}); !errors.Is(err, migrations.ErrNotData) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Backup(context.Background(), storage.BackupTo{Dir: at}); !errors.Is(err, storage.ErrBackup) || !strings.Contains(err.Error(), "not finished") {
			t.Errorf("over it: %v", err)
		}
	}
}

func TestKilledDuringBackup(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	bodies := fill(t, s, 24)
	s.Close()
	for n := range 4 {
		to := filepath.Join(t.TempDir(), "backup")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MILLPOND_BACKUP_OF="+dir, "MILLPOND_BACKUP_TO="+to)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		word := make([]byte, len("copying"))
		if _, err := io.ReadFull(out, word); string(word) != "copying" {
			t.Fatalf("got %q, %v", word, err)
		}
		time.Sleep(time.Duration(n*150) * time.Millisecond)
		cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := storage.OpenStore(storage.Config{Dir: to}); !errors.Is(err, migrations.ErrNotData) {
			t.Errorf("killed after %d ms: %v", n*150, err)
		}
		verifyAll(t, dir)
		holds(t, dir, bodies)
	}
}

// A repair of the original writes nothing into files that its backup has too.
func TestRepairLeavesBackup(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := openStore(t, dir)
	for n := range uint64(120) {
		record(s, bytesOf(n, 200_000))
	}
	becomeDurable(t, s, 120)
	if _, err := s.Backup(context.Background(), storage.BackupTo{Dir: to}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join("log", "000001")
	f, err := os.OpenFile(filepath.Join(dir, segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 100_000), 3_000_000); err != nil {
		t.Fatal(err)
	}
	f.Close()
	before, err := os.ReadFile(filepath.Join(to, segment))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := storage.Repair(dir, func(string) {}); err != nil || done.Wrong == 0 || done.Left != 0 {
		t.Fatal(done, err)
	}
	repaired, err := os.ReadFile(filepath.Join(dir, segment))
	if err != nil || string(repaired) == string(before) {
		t.Errorf("the repair changed nothing: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(to, segment)); err != nil || string(after) != string(before) {
		t.Errorf("the repair changed the backup: %v", err)
	}
}
