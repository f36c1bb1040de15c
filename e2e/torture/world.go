package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millpond/e2e/harness"
)

// world is one data directory with its history: what was done to it, and what was acknowledged.
type world struct {
	name    string // begins the names of its exchanges
	binary  string
	dir     string        // the data directory
	disk    *harness.Disk // what it is on; nil for a directory of this machine
	args    []string
	origin  *upstream
	seed    uint64
	most    int64         // bytes: where there are more, the oldest sessions are deleted
	short   bool          // as in plan
	fault   string        // as in plan
	slack   time.Duration // within which what had ended may be lost; 0: 100 ms, and what this machine is late
	ledger  *ledger
	figures *figures
	log     func(format string, args ...any)

	random *rand.Rand
	cycles int
	p      *harness.Program // runs, and is checked; nil for none
	harmed bool             // what was done to the data directory since the last start is damage
}

// start runs the program, under another one where tracer is not empty.
func (w *world) start(tracer ...string) (*harness.Program, error) {
	line := append(append(tracer, w.binary, "--data", w.dir, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"), w.args...)
	return harness.Run(line[0], line[1:]...)
}

// verify has the program look through a data directory that nothing serves.
func (w *world) verify(when string) {
	if w.harmed {
		return // the next start mends that
	}
	if _, err := os.Stat(w.dir); errors.Is(err, fs.ErrNotExist) {
		return // it was ended before it had made anything
	}
	out, err := exec.Command(w.binary, "verify", "--full", "--data", w.dir).CombinedOutput()
	if err != nil {
		w.ledger.violated("verify %s: %v: %s", when, err, out)
	}
}

// restart starts the program if it does not run, and compares what it has with the ledger.
func (w *world) restart() error {
	if w.p != nil {
		return nil
	}
	began := time.Now()
	p, err := w.start()
	if err != nil {
		w.ledger.violated("after cycle %d it does not start: %v", w.cycles, err)
		return err
	}
	w.p, w.harmed = p, false
	started := time.Now()
	err = w.check(p, 5, w.random)
	w.log("  started in %v, checked in %v", started.Sub(began).Round(time.Millisecond), time.Since(started).Round(time.Millisecond))
	return err
}

// stop ends a program that nobody uses.
func (w *world) stop() error {
	if w.p == nil {
		return nil
	}
	p := w.p
	w.p = nil
	return p.Stop()
}

// whole compares everything there is with the ledger, and then has the program look through all of it.
func (w *world) whole() error {
	if err := w.stop(); err != nil {
		return err
	}
	p, err := w.start()
	if err != nil {
		return err
	}
	w.p, w.harmed = p, false
	if err := w.check(p, 1<<30, w.random); err != nil {
		return err
	}
	if err := w.stop(); err != nil {
		return err
	}
	w.verify("at the end")
	return nil
}

// fate is how a program ends now that is killed.
func (w *world) fate(l *load) *fate {
	f := &fate{at: time.Now(), slack: w.slack}
	if f.slack == 0 {
		f.slack = 100*time.Millisecond + 2*l.lateness(f.at)
	}
	return f
}

// kill is SIGKILL at a random moment.
func (w *world) kill(for_ time.Duration) error {
	if err := w.restart(); err != nil {
		return err
	}
	l, err := w.startLoad(w.p)
	if err != nil {
		return err
	}
	time.Sleep(for_)
	return w.killNow(l)
}

func (w *world) killNow(l *load) error {
	f := w.fate(l)
	w.p.Kill()
	w.ended(l, f)
	w.figures.kills.Add(1)
	w.verify(fmt.Sprintf("after kill %d", w.cycles))
	return nil
}

func (w *world) ended(l *load, f *fate) {
	w.p = nil
	l.end(f)
}

// killStarting is SIGKILL while the program starts, which is while it recovers.
func (w *world) killStarting(after time.Duration) error {
	if err := w.stop(); err != nil {
		return err
	}
	cmd := exec.Command(w.binary, append([]string{"--data", w.dir, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}, w.args...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	w.figures.killsStarting.Add(1)
	w.verify("after a kill while it started")
	return nil
}

// tracedCalls are those at which the program is killed: each is a step of a commit, a deletion or a recovery.
var tracedCalls = []struct {
	calls string
	most  int // what a thread makes of them in a load
}{
	{"fdatasync", 30}, {"fsync", 6}, {"/^rename", 4}, {"linkat", 3}, {"pwrite64", 200}, {"unlinkat", 4}, {"ftruncate", 2}, {"mkdirat", 3}, {"openat", 60}, {"close", 60},
}

// killTraced is SIGKILL at a chosen system call, at the start or later. Where that does not come it is one like another.
func (w *world) killTraced(for_ time.Duration) error {
	if err := w.stop(); err != nil {
		return err
	}
	at := tracedCalls[w.random.IntN(len(tracedCalls))]
	nth := 1 + w.random.IntN(at.most)
	// strace counts the calls of each thread; with --seccomp-bpf it would miscount them.
	p, err := w.start("strace", "-D", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+at.calls, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", at.calls, nth))
	if err != nil {
		w.figures.killsTraced.Add(1)
		w.log("  %s %d: killed while it started", at.calls, nth)
		w.verify("after a kill at " + at.calls + " while it started")
		return nil
	}
	w.p, w.harmed = p, false
	l, err := w.startLoad(p)
	if err != nil {
		return err
	}
	came := true
	select {
	case <-p.Exited():
	case <-time.After(for_):
		came = false
	}
	f := &fate{at: time.Now(), slack: max(time.Second, w.slack), unclear: time.Second}
	p.Kill()
	w.ended(l, f)
	w.figures.killsTraced.Add(1)
	w.log("  %s %d: came %t", at.calls, nth, came)
	w.verify("after a kill at " + at.calls)
	return nil
}

// cutPower cuts the power of the disk under load. more is how long the program lives on without noticing, and fails is what fails before, or "".
func (w *world) cutPower(for_, more time.Duration, fails string) error {
	if err := w.restart(); err != nil {
		return err
	}
	l, err := w.startLoad(w.p)
	if err != nil {
		return err
	}
	time.Sleep(for_)
	f := &fate{power: true}
	if fails != "" {
		detach, err := w.inject(fails)
		if err != nil {
			return err
		}
		defer detach()
		f.from, f.to = time.Now().Add(-time.Second), time.Now().Add(time.Hour)
		time.Sleep(500 * time.Millisecond)
	}
	f.at = time.Now()
	if err := w.disk.CutPower(); err != nil {
		return err
	}
	time.Sleep(more)
	// Clients are not to notice that the disk is gone: what failed before this moment counts.
	gone := time.Now()
	w.p.Kill()
	cut := f.at
	f.at = gone
	w.ended(l, f)
	f.at = cut
	w.figures.powerCuts.Add(1)
	if err := errors.Join(w.disk.Unmount(), w.disk.Mount()); err != nil {
		return err
	}
	if fails == "" {
		w.verify(fmt.Sprintf("after power cut %d", w.cycles))
		return nil
	}
	// What the index says may never have been synced, and files be gone that it names: the next start makes it again from the log.
	if err := errors.Join(w.restart(), w.stop()); err != nil {
		return err
	}
	w.verify(fmt.Sprintf("after power cut %d, a start and a stop", w.cycles))
	return nil
}

// forget removes the index, or damages it: it is made again from the log.
func (w *world) forget() error {
	if err := w.stop(); err != nil {
		return err
	}
	path := filepath.Join(w.dir, "index.db")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	w.figures.indexes.Add(1)
	w.harmed = true
	switch w.random.IntN(3) {
	case 0:
		return os.Remove(path)
	case 1:
		return os.Truncate(path, w.random.Int64N(info.Size()))
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(strings.Repeat("damage", 2_000)), w.random.Int64N(max(1, info.Size()-12_000)))
	return err
}
