package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// inject makes system calls of the running program fail or be slow, as strace -e inject says it: "fdatasync:error=EIO". detach ends that, and may be called twice.
func (w *world) inject(what string) (detach func(), err error) {
	calls, _, _ := strings.Cut(what, ":")
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-p", fmt.Sprint(w.p.PID()), "-e", "trace="+calls, "-e", "inject="+what)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.p.PID()))
		if err != nil {
			break // the program is gone
		}
		if !strings.Contains(string(text), "TracerPid:\t0\n") {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return nil, fmt.Errorf("strace did not attach")
		}
	}
	done := false
	return func() {
		if !done {
			done = true
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
	}, nil
}

const readFault = "pread64:error=EIO"

// faults are what a disk does that fails or is slow.
var faults = []string{
	"pwrite64:error=EIO",
	"pwrite64:error=EIO:when=2+3",
	"pwrite64:error=ENOSPC",
	"fdatasync,fsync:error=EIO",
	"fdatasync:error=EIO:when=2+5",
	"fsync:error=EIO",
	"renameat,renameat2,linkat:error=EIO",
	"unlinkat:error=EIO",
	"ftruncate,mkdirat:error=EIO",
	readFault,
	"pwrite64,fdatasync,fsync,renameat,renameat2,linkat,unlinkat,mkdirat,ftruncate:error=EIO",
	"fdatasync,fsync:delay_exit=200000",
	"fdatasync,fsync:delay_exit=2000000",
}

// endure lets the disk fail under load for some time, and perhaps heal; then the program is killed.
func (w *world) endure(what string, heals bool) error {
	return w.endureAny(what, heals, func() (func(), error) { return w.inject(what) })
}

// endureAny is endure with a fault that begin puts in place, and whose end it returns.
func (w *world) endureAny(what string, heals bool, begin func() (func(), error)) error {
	if err := w.restart(); err != nil {
		return err
	}
	l, err := w.startLoad(w.p)
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	from := time.Now().Add(-time.Second) // what ended just before is not written
	end, err := begin()
	if err != nil {
		return err
	}
	defer end()
	before := l.count()
	time.Sleep(time.Duration(700+w.random.IntN(800)) * time.Millisecond)
	for deadline := time.Now().Add(20 * time.Second); l.count() == before && time.Now().Before(deadline); { // others use the machine, too
		time.Sleep(10 * time.Millisecond)
	}
	passed := l.count() - before
	if passed == 0 {
		w.ledger.violated("%s: nothing passed meanwhile", what)
	}
	to := time.Now().Add(time.Hour)
	if heals {
		end()
		to, err = w.awaitWell(l)
		if err != nil {
			w.ledger.violated("after %s: %v", what, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	f := w.fate(l)
	f.slack = max(f.slack, time.Second) // strace makes everything slow, and lets go slowly
	f.from, f.to = from, to
	w.p.Kill()
	end()
	w.ended(l, f)
	w.figures.faults.Add(1)
	w.log("  %s (heals: %t): %d exchanges meanwhile", what, heals, passed)
	w.verify("after " + what)
	return nil
}

// awaitWell waits until the program says that it captures, and returns when that was. It needs a commit to know.
func (w *world) awaitWell(l *load) (time.Time, error) {
	time.Sleep(500 * time.Millisecond)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s, err := l.api.status(context.Background())
		if err != nil {
			return time.Now(), err
		}
		if s.Store.Problem == "" {
			return time.Now(), nil
		}
		if time.Now().After(deadline) {
			return time.Now(), fmt.Errorf("20 s later it says: %s", s.Store.Problem)
		}
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered
}

// fill takes the world's disk to its last byte, but for so many, under load.
func (w *world) fill(leave uint64, heals bool) error {
	path := filepath.Join(w.disk.At, "ballast")
	return w.endureAny(fmt.Sprintf("a disk with %d MiB left", leave>>20), heals, func() (func(), error) {
		var s syscall.Statfs_t
		if err := syscall.Statfs(w.disk.At, &s); err != nil {
			return nil, err
		}
		free := s.Bavail * uint64(s.Bsize)
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		if free > leave {
			_ = syscall.Fallocate(int(f.Fd()), 0, 0, int64(free-leave)) // as far as it goes
		}
		_ = f.Close()
		return func() { _ = os.Remove(path) }, nil
	})
}

// damage makes every third page of the index invalid while it is in use: whoever reads one meets that, as with a disk that gives other bytes than were written.
// Only pages that say what they are are chosen: what goes on inside longer values nobody could notice.
func (w *world) damage() error {
	return w.endureAny("an index with damaged pages", true, func() (func(), error) {
		f, err := os.OpenFile(filepath.Join(w.dir, "index.db"), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		w.harmed = true // where nobody meets it, the next start does
		size := int64(os.Getpagesize())
		var head [10]byte // the number of the page, and its kind: 1 for a branch, 2 for a leaf
		for n := int64(2); ; n++ {
			if _, err := f.ReadAt(head[:], n*size); err != nil {
				return func() {}, nil // the end
			}
			kind := binary.NativeEndian.Uint16(head[8:])
			if int64(binary.NativeEndian.Uint64(head[:])) != n || kind != 1 && kind != 2 || w.random.IntN(3) > 0 {
				continue
			}
			if _, err := f.WriteAt([]byte{0x40}, n*size+8); err != nil {
				return nil, err
			}
		}
	})
}
