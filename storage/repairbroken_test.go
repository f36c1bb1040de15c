package storage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// brokenFiles fails every change after the first n.
type brokenFiles struct {
	Files
	left *int
}

var errBrokenOff = errors.New("broken off")

func (b brokenFiles) change() error {
	if *b.left--; *b.left < 0 {
		return errBrokenOff
	}
	return nil
}

func (b brokenFiles) OpenFile(name string, flag int) (File, error) {
	if flag&os.O_CREATE != 0 {
		if err := b.change(); err != nil {
			return nil, err
		}
	}
	f, err := b.Files.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return brokenFile{f, b}, nil
}

func (b brokenFiles) Rename(from, to string) error {
	return errors.Join(b.change(), func() error {
		if *b.left < 0 {
			return nil
		}
		return b.Files.Rename(from, to)
	}())
}

func (b brokenFiles) Remove(name string) error {
	if err := b.change(); err != nil {
		return err
	}
	return b.Files.Remove(name)
}

func (b brokenFiles) SyncDir(name string) error {
	if err := b.change(); err != nil {
		return err
	}
	return b.Files.SyncDir(name)
}

type brokenFile struct {
	File
	of brokenFiles
}

func (f brokenFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.of.change(); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], at)
		return n, err
	}
	return f.File.WriteAt(p, at)
}

func (f brokenFile) Truncate(size int64) error {
	if err := f.of.change(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// TestRepairThatIsBrokenOff breaks off a repair of many things at each of its changes in turn; another then does what is left.
func TestRepairThatIsBrokenOff(t *testing.T) {
	c := newRepairCase(t)
	damage := func(dir string) {
		path, at := find(t, dir, []byte("/session-12"), true)
		change(t, path, at, []byte("/SESSION")...)
		path, at = find(t, dir, c.kept[c.noted].body, true)
		change(t, path, at, 1, 2, 3, 4)
		change(t, filepath.Join(dir, segmentName(3)), 0, 1, 2, 3)
		chunks, _ := filepath.Glob(filepath.Join(dir, "chunks", "*", "*"))
		change(t, chunks[0], 0, 1, 2, 3)
		if err := os.Remove(filepath.Join(dir, segmentName(4))); err != nil {
			t.Fatal(err)
		}
	}
	want := c.copy(t)
	damage(want)
	whole, _ := repairAll(t, want)
	wantLost := c.check(t, want)
	step := 2
	if testing.Short() {
		step = 26
	}
	for n := 0; ; n += step {
		dir := c.copy(t)
		damage(dir)
		v, err := newVerifier(dir, true, lockDir, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		left := n
		v.files = brokenFiles{v.files, &left}
		v.begin()
		_, err = v.repair()
		v.close()
		if err == nil {
			if n == 0 {
				t.Error("nothing was broken off")
			}
			return
		}
		if !errors.Is(err, errBrokenOff) {
			t.Fatalf("after %d changes: %v", n, err)
		}
		if n%3 == 2 { // Millpond may run in between
			if err := openTest(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			Repair(dir, func(string) {})
			checkRepaired(t, dir, nil)
			os.RemoveAll(dir)
			continue
		}
		var lines []string
		done, err := Repair(dir, func(line string) { lines = append(lines, line) })
		if err != nil || done.Left > 0 {
			t.Fatalf("after %d changes: %+v, %v: %s", n, done, err, strings.Join(lines, "\n"))
		}
		checkRepaired(t, dir, lines)
		if lost := c.check(t, dir); !slices.Equal(lost, wantLost) {
			t.Errorf("after %d changes: sessions %v lost bytes, want %v:\n%s", n, lost, wantLost, strings.Join(lines, "\n"))
		}
		if t.Failed() {
			t.Fatalf("after %d changes (a whole repair: %+v)", n, whole)
		}
		os.RemoveAll(dir)
	}
}
