package main

import (
	"fmt"
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

func (r *result) markdown() string { return r.line() + "\n" }

func insert(path, text string) error { return nil }
