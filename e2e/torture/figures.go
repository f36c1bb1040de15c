package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// figures are what was done, and the worst that was seen.
type figures struct {
	kills, killsStarting, killsTraced, powerCuts, faults, indexes atomic.Int64

	exchanges, sessions, durables, bytes, deleted, noted atomic.Int64

	mu        sync.Mutex
	killLoss  int64         // bytes of a body that passed and are not kept
	youngest  time.Duration // the longest before a kill that a session ended which is not whole
	powerLoss time.Duration
}

func (f *figures) lostInKill(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killLoss = max(f.killLoss, n)
}

func (f *figures) lostInPower(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.powerLoss = max(f.powerLoss, d)
}

// endedYoung notes how long before a kill a session ended that is not whole.
func (f *figures) endedYoung(end *fate, age time.Duration) {
	if end.power || end.unclear > 0 || !end.from.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.youngest = max(f.youngest, age)
}

func (f *figures) allKills() int64 {
	return f.kills.Load() + f.killsStarting.Load() + f.killsTraced.Load()
}

func (f *figures) all() int64 { return f.allKills() + f.powerCuts.Load() + f.faults.Load() }

// line is a short account of what was done.
func (f *figures) line() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("%d exchanges, %d sessions and %.0f MB compared, %d deleted, %d noted; worst loss %d bytes, %v of a young session, %v by power",
		f.exchanges.Load(), f.sessions.Load(), float64(f.bytes.Load())/1e6, f.deleted.Load(), f.noted.Load(), f.killLoss, f.youngest.Round(time.Millisecond), f.powerLoss.Round(time.Millisecond))
}

// markdown tells what was done, for docs/reliability.md.
func (r *result) markdown() string {
	var b strings.Builder
	part := ""
	for name, value := range map[string]string{"only": r.plan.only, "fault": r.plan.fault} {
		if value != "" {
			part += fmt.Sprintf(" --%s %s", name, value)
		}
	}
	fmt.Fprintf(&b, "%s; it ran for %v, seed %d: `npm run torture -- --kills %d --power %d --faults %d%s`.\n\n",
		r.machine, r.took.Round(time.Second), r.plan.seed, r.plan.kills, r.plan.power, r.plan.faults, part)
	b.WriteString("| what | figure |\n|---|---:|\n")
	row := func(what string, figure any) { fmt.Fprintf(&b, "| %s | %v |\n", what, figure) }
	row("SIGKILL under load, at a random moment", r.kills.Load())
	row("SIGKILL at a chosen system call", r.killsTraced.Load())
	row("SIGKILL while it starts", r.killsStarting.Load())
	row("power cuts", r.powerCuts.Load())
	row("faults of the disk under load", r.faults.Load())
	row("index removed, cut short or overwritten before a start", r.indexes.Load())
	row("exchanges that clients made to their end", r.exchanges.Load())
	row("sessions reported durable before an end", r.durables.Load())
	row("sessions deleted, pinned or noted and acknowledged", fmt.Sprintf("%d, %d", r.deleted.Load(), r.noted.Load()))
	row("sessions compared after a restart", r.sessions.Load())
	row("bytes of bodies compared", fmt.Sprintf("%.1f GB", float64(r.bytes.Load())/1e9))
	row("the most that a SIGKILL took of an open body (1 MiB is promised), bytes", r.killLoss)
	row("the longest that a session had ended which a SIGKILL left interrupted (100 ms are promised, on a machine that is not late itself)", r.youngest.Round(time.Millisecond))
	row("the most that a power cut took of an open body (5 s are promised, and the syncs)", r.powerLoss.Round(time.Millisecond))
	row("**violations**", fmt.Sprintf("**%d**", len(r.violations)))
	for _, why := range r.notRun {
		fmt.Fprintf(&b, "\nNot run: %s\n", why)
	}
	return b.String()
}
