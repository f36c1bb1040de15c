// Torture proves the durability that docs/architecture.md promises: it runs the real program under load, notes from outside what was
// acknowledged, kills it, cuts the power of its disk, makes the disk fail, and compares what is there after the next start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millpond/e2e/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := torture(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

// plan is how much of everything is done.
type plan struct {
	binary string
	dir    string // where the disks and data directories are made
	seed   uint64
	kills  int
	power  int
	faults int           // rounds of all faults
	most   time.Duration // the kills and power cuts end then
	slack  time.Duration
	only   string
	fault  string
	short  bool // only some of the faults
	keep   string
	log    func(format string, args ...any)
}

func torture(ctx context.Context, args []string, out io.Writer) error {
	p := plan{log: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }}
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	flags.StringVar(&p.binary, "millpond", "bin/millpond", "the Millpond to torture")
	flags.StringVar(&p.dir, "dir", os.TempDir(), "where its data are; 3 GB are needed")
	flags.Uint64Var(&p.seed, "seed", uint64(time.Now().Unix()), "what all choices come from")
	flags.IntVar(&p.kills, "kills", 1000, "how often it is killed")
	flags.IntVar(&p.power, "power", 100, "how often the power of its disk is cut")
	flags.IntVar(&p.faults, "faults", 2, "how often each fault of a disk is tried")
	flags.DurationVar(&p.most, "for", 2*time.Hour, "end early after so long")
	flags.StringVar(&p.only, "only", "", "one part of it: power, fault, full or kill")
	flags.StringVar(&p.fault, "fault", "", "only the faults whose name holds this")
	flags.StringVar(&p.keep, "keep", "", "copy a data directory that is wrong into this directory")
	write := flags.String("write", "", "put the figures into this Markdown file, between its marks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := p.run(ctx)
	if err != nil {
		return err
	}
	text := r.markdown()
	fmt.Fprint(out, text)
	if *write != "" {
		if err := harness.Insert(*write, "torture", text); err != nil {
			return err
		}
	}
	if n := len(r.violations); n > 0 {
		return fmt.Errorf("%d violations", n)
	}
	return nil
}

// missing tells why kills at system calls, or disks, cannot be had here; nil where they can.
func missing(dir string) (strace, disk error) {
	if out, err := exec.Command("strace", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		strace = fmt.Errorf("strace does not work here: %w %s", err, out)
	}
	small := filepath.Join(dir, "try")
	d, err := harness.NewDisk(small, 8<<20)
	if err != nil {
		return strace, err
	}
	return strace, errors.Join(d.Unmount(), os.RemoveAll(small))
}

// result is what came of a plan.
type result struct {
	figures
	plan       plan
	began      time.Time
	took       time.Duration
	machine    string
	notRun     []string
	violations []string
}

// run does what the plan says. Its violations are in the result; an error is what kept it from going on.
func (p *plan) run(ctx context.Context) (*result, error) {
	r := &result{plan: *p, began: time.Now(), machine: harness.Machine(ctx)}
	dir, err := os.MkdirTemp(p.dir, "torture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	origin, err := startUpstream()
	if err != nil {
		return nil, err
	}
	defer origin.Close()
	ca, err := origin.Authority.WriteFile(dir)
	if err != nil {
		return nil, err
	}
	noStrace, noDisk := missing(dir)
	ctx, cancel := context.WithTimeout(ctx, p.most)
	defer cancel()

	in := func(name string, n uint64) *world {
		return &world{
			name: name, short: p.short, fault: p.fault, binary: p.binary, dir: filepath.Join(dir, name), args: []string{"--upstream-ca", ca}, origin: origin, seed: p.seed + n,
			most: 150 << 20, slack: p.slack, ledger: newLedger(), figures: &r.figures, log: p.log, random: rand.New(rand.NewPCG(p.seed, n)),
		}
	}
	onDisk := func(name string, n uint64, size int64) (*harness.Disk, error) {
		d, err := harness.NewDisk(filepath.Join(dir, name+"-disk"), size)
		return d, err
	}
	// finish adds the violations, and compares everything at the end.
	finish := func(w *world, err error) error {
		if w.broken() && p.keep != "" {
			if out, err := exec.Command("cp", "-a", w.dir, filepath.Join(p.keep, w.name)).CombinedOutput(); err != nil {
				p.log("keep the data directory: %v: %s", err, out)
			}
		}
		if err == nil {
			err = w.whole()
		}
		if w.p != nil {
			w.p.Kill()
		}
		for _, v := range w.ledger.violations {
			p.log("VIOLATION in %s: %s", w.name, v)
		}
		r.violations = append(r.violations, w.ledger.violations...)
		if w.disk != nil {
			err = errors.Join(err, w.disk.Unmount())
		}
		return err
	}

	does := func(part string) bool { return p.only == "" || p.only == part }
	if p.power > 0 && noDisk == nil && does("power") {
		w := in("power", 1)
		if w.disk, err = onDisk("power", 1, 2<<30); err != nil {
			return nil, err
		}
		w.dir = filepath.Join(w.disk.At, "data")
		if err := finish(w, w.cutAll(ctx, p.power, noStrace == nil)); err != nil {
			return nil, err
		}
	} else if noDisk != nil {
		r.notRun = append(r.notRun, noDisk.Error())
	}
	if noStrace != nil {
		r.notRun = append(r.notRun, noStrace.Error())
	}
	if p.faults > 0 && noDisk == nil && noStrace == nil && does("fault") {
		w := in("fault", 2)
		if w.disk, err = onDisk("fault", 2, 1<<30); err != nil {
			return nil, err
		}
		w.dir = filepath.Join(w.disk.At, "data")
		if err := finish(w, w.failAll(ctx, p.faults)); err != nil {
			return nil, err
		}
	}
	if p.faults > 0 && noDisk == nil && does("full") {
		w := in("full", 3)
		if w.disk, err = onDisk("full", 3, 300<<20); err != nil {
			return nil, err
		}
		w.dir, w.most = filepath.Join(w.disk.At, "data"), 30<<20
		if err := finish(w, w.fillAll(ctx, p.faults)); err != nil {
			return nil, err
		}
	}
	if p.kills > 0 && does("kill") {
		w := in("kill", 4)
		if err := finish(w, w.killAll(ctx, p.kills, noStrace == nil)); err != nil {
			return nil, err
		}
	}
	r.took = time.Since(r.began)
	return r, nil
}

// some is a random time between two.
func (w *world) some(low, high time.Duration) time.Duration {
	return low + time.Duration(w.random.Int64N(int64(high-low)))
}

// stopAt ends a plan early at the first violation, which is then to be looked at.
func (w *world) broken() bool { return len(w.ledger.violations) > 0 }

// killAll kills the program so often, on one data directory.
func (w *world) killAll(ctx context.Context, n int, traced bool) error {
	for i := 0; i < n && ctx.Err() == nil && !w.broken(); i++ {
		var err error
		switch k := w.random.IntN(20); {
		case k < 4 && traced:
			err = w.killTraced(w.some(1000*time.Millisecond, 2*time.Second))
		case k < 6 && i > 0:
			err = w.killStarting(w.some(time.Millisecond, 250*time.Millisecond))
		default:
			err = w.kill(w.some(200*time.Millisecond, time.Second))
		}
		if err == nil && i%15 == 14 {
			err = w.forget()
		}
		if err != nil {
			return err
		}
		w.log("kill %d of %d: %s", i+1, n, w.figures.line())
	}
	return nil
}

// cutAll cuts the power so often, on one disk. One cut in twelve is late enough to see what an open body loses.
func (w *world) cutAll(ctx context.Context, n int, traced bool) error {
	for i := 0; i < n && ctx.Err() == nil && !w.broken(); i++ {
		long, fails := w.some(200*time.Millisecond, 1200*time.Millisecond), ""
		switch {
		case i%12 == 11:
			long = w.some(7*time.Second, 9*time.Second)
		case i%4 == 3 && traced:
			fails = "fdatasync:error=EIO:when=1+2"
		}
		if err := w.cutPower(long, w.some(0, 400*time.Millisecond), fails); err != nil {
			return err
		}
		if i%10 == 9 {
			if err := errors.Join(w.restart(), w.stop()); err != nil {
				return err
			}
			w.verify("after the power was cut and a stop")
		}
		w.log("power cut %d of %d: %s", i+1, n, w.figures.line())
	}
	return nil
}

// failAll tries each fault so often, on one disk.
func (w *world) failAll(ctx context.Context, n int) error {
	some := faults
	if w.short {
		some = []string{faults[0], faults[3], readFault, faults[w.random.IntN(len(faults))]}
	}
	for round := range n {
		for _, what := range some {
			if !strings.Contains(what, w.fault) {
				continue
			}
			if ctx.Err() != nil || w.broken() {
				return nil
			}
			if err := w.endure(what, round%2 == 0); err != nil {
				return err
			}
		}
		if err := w.damage(); err != nil {
			return err
		}
	}
	return nil
}

// fillAll fills one disk up so often, to its last byte or nearly so.
func (w *world) fillAll(ctx context.Context, n int) error {
	for i := 0; i < 3*n && ctx.Err() == nil && !w.broken(); i++ {
		if err := w.fill([]uint64{0, 36 << 20, 12 << 20}[i%3], i%2 == 0); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(w.disk.At, "ballast")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
