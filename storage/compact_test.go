package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func init() {
	if dir := os.Getenv("MILLPOND_COMPACT"); dir != "" {
		for {
			if _, err := Compact(context.Background(), dir, slog.New(slog.DiscardHandler), func(CompactPlan) {}); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println("compacted")
		}
	}
}

// state is what the store says of everything that it keeps.
type state struct {
	picture
	shares  map[string][]byte
	setting []byte
}

func stateOf(t *testing.T, s *Store) state {
	t.Helper()
	all := state{picture: takePicture(t, s)}
	all.index = nil // a stop adds a record to the log
	var err error
	if all.shares, err = s.Shares(); err != nil {
		t.Fatal(err)
	}
	if all.setting, err = s.Setting("out"); err != nil {
		t.Fatal(err)
	}
	return all
}

func compareStates(t *testing.T, got, want state) {
	t.Helper()
	comparePictures(t, got.picture, want.picture)
	if !reflect.DeepEqual(got.shares, want.shares) || !bytes.Equal(got.setting, want.setting) {
		t.Errorf("got %d shares and the setting %q, want %d and %q", len(got.shares), got.setting, len(want.shares), want.setting)
	}
}

// wasteful fills an index of which little is used, and returns what the store says. It is left open.
func wasteful(t *testing.T, dir string) (*Store, state) {
	t.Helper()
	s := openTest(t, dir)
	for n := range 300 {
		r := s.Begin(Session{Method: "GET", Host: fmt.Sprint(n, ".example"), Path: "/"})
		r.Body(Response).Write(noise(uint64(n), 100*n))
		r.Body(Response).Complete()
		r.End(Done, "")
	}
	waitDurable(t, s)
	err := errors.Join(s.PutSetting("out", []byte("a setting")), s.index.update(func(tx *bbolt.Tx) error { // in one commit
		for n := range 250 {
			if err := tx.Bucket(bucketShares).Put([]byte(fmt.Sprint("share ", n)), noise(uint64(n), 60_000)); err != nil {
				return err
			}
		}
		return nil
	}))
	for n := range 200 {
		err = errors.Join(err, s.DeleteShare(fmt.Sprint("share ", n)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, stateOf(t, s)
}

func indexSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func leftOver(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, "index.db?*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestCompactWhenClosed(t *testing.T) {
	dir := t.TempDir()
	s, want := wasteful(t, dir)
	before := indexSize(t, dir)
	if err := s.CloseCompacting(context.Background()); err != nil {
		t.Fatal(err)
	}
	leftOver(t, dir)
	s = openTest(t, dir)
	compareStates(t, stateOf(t, s), want)
	used := uint64(0)
	if err := s.index.view(func(tx *bbolt.Tx) error { used = usedSize(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	after := indexSize(t, dir)
	t.Logf("%d bytes before, %d after, %d used", before, after, used)
	if before < 4*int64(used) || after > 2*int64(used) {
		t.Errorf("the index had %d bytes, and has %d, of which %d are used", before, after, used)
	}
	if err := s.CloseCompacting(context.Background()); err != nil { // there is nothing to do
		t.Fatal(err)
	}
	if now := indexSize(t, dir); now < after {
		t.Errorf("it was compacted again: %d bytes after %d", now, after)
	}
	if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

// A stop that is to be quick leaves the index as it is.
func TestCompactBrokenOff(t *testing.T) {
	dir := t.TempDir()
	s, want := wasteful(t, dir)
	before := indexSize(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.CloseCompacting(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(ctx, dir, slog.New(slog.DiscardHandler), func(CompactPlan) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	files, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := compactIndex(ctx, files, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if now := indexSize(t, dir); now != before {
		t.Errorf("%d bytes, want %d", now, before)
	}
	leftOver(t, dir)
	compareStates(t, stateOf(t, openTest(t, dir)), want)
}

// steps is a file layer that keeps what a kill before, or after, each change of a name would leave.
type steps struct {
	Files
	t    *testing.T
	dir  string
	kept map[string]string
}

func (s *steps) keep(step string) {
	if s.t == nil {
		return
	}
	at := s.t.TempDir()
	if err := os.CopyFS(at, os.DirFS(s.dir)); err != nil {
		s.t.Error(err)
	}
	s.kept[step] = at
}

func (s *steps) Rename(from, to string) error {
	s.keep("before " + from + " becomes " + to)
	err := s.Files.Rename(from, to)
	s.keep("after " + from + " became " + to)
	return err
}

func (s *steps) Remove(name string) error {
	s.keep("before " + name + " goes")
	err := s.Files.Remove(name)
	s.keep("after " + name + " went")
	return err
}

func TestCompactKilledAtEachStep(t *testing.T) {
	dir := t.TempDir()
	s, want := wasteful(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	watched := &steps{Files: files, t: t, dir: dir, kept: make(map[string]string)}
	if _, err := compactIndex(context.Background(), watched, dir); err != nil {
		t.Fatal(err)
	}
	half := t.TempDir() // while the copy is written
	if err := os.CopyFS(half, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, indexCompact), noise(1, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	watched.kept["while it is copied"] = half
	if len(watched.kept) != 9 {
		t.Errorf("%d steps", len(watched.kept))
	}
	for step, at := range watched.kept {
		if _, err := Verify(at, false, func(p string) { t.Errorf("%s, before a start: %s", step, p) }); err != nil {
			t.Errorf("%s, before a start: %v", step, err)
		}
		s := openTest(t, at)
		compareStates(t, stateOf(t, s), want)
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		leftOver(t, at)
		if _, err := Verify(at, true, func(p string) { t.Errorf("%s: %s", step, p) }); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
}

// small is a disk that says how little it has left.
type small struct {
	Files
	free uint64
}

func (s small) Space() (free, total uint64, err error) { return s.free, 1 << 40, nil }

func TestCompactOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	s, want := wasteful(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := compactIndex(context.Background(), small{files, 1 << 20}, dir); err == nil || !strings.Contains(err.Error(), "1 MB are free") {
		t.Errorf("got %v", err)
	}
	leftOver(t, dir)
	if after, err := os.ReadFile(filepath.Join(dir, "index.db")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the index changed: %v", err)
	}
	var p CompactPlan
	done, err := Compact(context.Background(), dir, slog.New(slog.DiscardHandler), func(told CompactPlan) { p = told })
	if err != nil {
		t.Fatal(err)
	}
	if p.Size != uint64(len(before)) || p.Free == 0 || done.Before < done.After || done.After > p.Need-segmentSize || done.LogAfter == 0 || done.LogAfter > done.LogBefore {
		t.Errorf("told %+v, did %+v", p, done)
	}
	s = openTest(t, dir)
	if _, err := Compact(context.Background(), dir, slog.New(slog.DiscardHandler), func(CompactPlan) {}); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is open: %v", err)
	}
	compareStates(t, stateOf(t, s), want)
	if _, err := Compact(context.Background(), t.TempDir(), slog.New(slog.DiscardHandler), func(CompactPlan) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestCompactKilled(t *testing.T) {
	dir := t.TempDir()
	s, want := wasteful(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MILLPOND_COMPACT="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		word := make([]byte, len("compacted"))
		if n, err := out.Read(word); string(word) != "compacted" {
			t.Errorf("got %q, %v", word[:n], err)
		}
		time.Sleep(time.Duration(n*35) * time.Millisecond)
		cmd.Process.Kill()
		_ = cmd.Wait()
		s := openTest(t, dir)
		compareStates(t, stateOf(t, s), want)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
			t.Error(err)
		}
	}
}
