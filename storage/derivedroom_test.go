package storage

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestDerivedLimit(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	for _, test := range []struct {
		text string
		want string
		err  error
	}{{"123", "123", nil}, {"1234", "1234", nil}, {"12345", "1234", ErrDerivedLimit}} {
		r, err := d.open(derivedKey{1, test.text}, 4, func(_ context.Context, w io.Writer) error {
			if n, err := io.WriteString(w, test.text); n != len(test.want) {
				t.Errorf("wrote %d, %v", n, err)
			}
			return nil // a writer whose error is not looked at
		})
		if err != nil {
			t.Fatal(err)
		}
		await(t, r)
		if got := text(t, r); got != test.want || !errors.Is(r.Err(), test.err) {
			t.Errorf("%q: got %q, %v; want %q, %v", test.text, got, r.Err(), test.want, test.err)
		}
		r.Close()
	}
}

func TestDerivedDropsWhatWasNotUsedForLongest(t *testing.T) {
	dir := openTestDir(t)
	d := openDerived(t, dir, 25)
	ten := writes("0123456789")
	derive(t, d, 1, ten).Close()
	derive(t, d, 2, ten).Close()
	derive(t, d, 1, noMake(t)).Close() // now 2 is the older one
	derive(t, d, 3, ten).Close()
	if d.total != 20 || filesIn(t, dir) != 2 {
		t.Errorf("%d bytes in %d files, want 20 in 2", d.total, filesIn(t, dir))
	}
	derive(t, d, 1, noMake(t)).Close()
	derive(t, d, 3, noMake(t)).Close()

	reading := derive(t, d, 2, ten) // 1 goes
	large := derive(t, d, 4, writes(strings.Repeat("x", 100)))
	if got := text(t, reading); got != "0123456789" {
		t.Errorf("what is read was dropped: %q", got)
	}
	large.Close()
	reading.Close() // now it may go, and does: 4 alone is over the limit, but was used last
	derive(t, d, 4, noMake(t)).Close()
	if d.total != 100 || filesIn(t, dir) != 1 {
		t.Errorf("%d bytes in %d files, want 100 in 1", d.total, filesIn(t, dir))
	}
	derive(t, d, 5, ten).Close()
	if d.total != 10 || filesIn(t, dir) != 1 {
		t.Errorf("%d bytes in %d files, want 10 in 1", d.total, filesIn(t, dir))
	}
}

func TestDerivedCountIsBounded(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	for id := range uint64(derivedCount + 10) {
		derive(t, d, id, writes("")).Close()
	}
	if got := len(d.byKey); got != derivedCount {
		t.Errorf("%d are kept, want %d", got, derivedCount)
	}
	derive(t, d, derivedCount+9, noMake(t)).Close()

	var readers []*DerivedReader
	for id := range uint64(derivedCount) {
		readers = append(readers, derive(t, d, 10+id, writes("")))
	}
	if _, err := d.open(derivedKey{0, "one more"}, 1, noMake(t)); !errors.Is(err, errDerivedBusy) {
		t.Errorf("with all in use: %v", err)
	}
	for _, r := range readers {
		r.Close()
	}
	derive(t, d, 1, writes("")).Close()
}

// lowDisk is a disk that says how much space it has.
type lowDisk struct {
	*Dir
	free  atomic.Uint64
	total uint64
	full  atomic.Bool
}

func (l *lowDisk) Space() (free, total uint64, err error) { return l.free.Load(), l.total, nil }

func (l *lowDisk) OpenFile(name string, flag int) (File, error) {
	f, err := l.Dir.OpenFile(name, flag)
	return lowFile{f, l}, err
}

type lowFile struct {
	File
	disk *lowDisk
}

func (f lowFile) WriteAt(p []byte, off int64) (int, error) {
	if f.disk.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

func TestDerivedLeavesSpaceToCaptures(t *testing.T) {
	disk := &lowDisk{Dir: openTestDir(t), total: 100 << 30}
	d := openDerived(t, disk, 1<<30)
	disk.free.Store(derivedReserve)
	derive(t, d, 1, writes("old")).Close()
	derive(t, d, 2, writes("old")).Close()

	disk.free.Store(derivedReserve - 1)
	r := derive(t, d, 3, noMake(t))
	if !errors.Is(r.Err(), ErrDiskLow) || !strings.Contains(r.Err().Error(), "1023 MB left") {
		t.Errorf("error is %v", r.Err())
	}
	r.Close()
	if n := filesIn(t, disk); n != 0 {
		t.Errorf("%d files were not dropped for space", n)
	}

	disk.free.Store(derivedReserve)
	r = derive(t, d, 3, func(_ context.Context, w io.Writer) error { // not remembered: there is space now
		block := make([]byte, 1<<20)
		for i := range 16 {
			if i == 6 {
				disk.free.Store(0) // a capture took it
			}
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(r.Err(), ErrDiskLow) || r.Size() != 6<<20 {
		t.Errorf("%d bytes, %v", r.Size(), r.Err())
	}
	r.Close()
	if d.total != 0 || filesIn(t, disk) != 0 {
		t.Errorf("left %d bytes in %d files", d.total, filesIn(t, disk))
	}

	small := &lowDisk{Dir: openTestDir(t), total: 64 << 20}
	small.free.Store(small.total / 20)
	d = openDerived(t, small, 1<<30)
	r = derive(t, d, 1, writes("a small disk has copies too"))
	if r.Err() != nil {
		t.Error(r.Err())
	}
	r.Close()
}

func TestDerivedOnAFullDisk(t *testing.T) {
	disk := &lowDisk{Dir: openTestDir(t), total: 100 << 30}
	disk.free.Store(50 << 30)
	d := openDerived(t, disk, 1<<20)
	disk.full.Store(true)
	r := derive(t, d, 1, writes("text"))
	if !errors.Is(r.Err(), syscall.ENOSPC) || r.Size() != 0 {
		t.Errorf("%d bytes, %v", r.Size(), r.Err())
	}
	r.Close()
	disk.full.Store(false)
	r = derive(t, d, 1, writes("text"))
	if got := text(t, r); got != "text" || r.Err() != nil {
		t.Errorf("after space was made: %q, %v", got, r.Err())
	}
	r.Close()
}
