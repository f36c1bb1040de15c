package storage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// retainStep and retainBytes bound what one commit deletes for a limit: it holds up the commits of what is captured for some milliseconds.
	retainStep  = 256
	retainBytes = 4 << 20

	// keptBytes is how much of the newest sessions, and the newest in any case, stays whatever Limits.Bytes says, and keptSessions how many, or half of Limits.Sessions where that is less, whatever that says: else,
	// where pinned ones alone are beyond a limit, all others would go as they come.
	keptBytes    = segmentSize
	keptSessions = 100

	// rowWeight is about what a session takes beside its bodies, in bytes.
	rowWeight = 1 << 10

	retainPause = time.Second // between two looks where nothing could be deleted, or where only Limits.Age could have it
)

// Limits say how much is kept. What is beyond one goes, the oldest first, but for what is pinned, shared or open. Zero is no limit.
type Limits struct {
	Bytes    uint64        // that log, bodies and index may take of the disk
	Age      time.Duration // since a session ended
	Sessions uint64
}

// Retention tells what the limits do.
type Retention struct {
	Limits
	Used uint64 // bytes that count against Limits.Bytes: derived copies, which go first, do not, nor does the room that the index has to spare, nor what is not known yet to be no copy

	Next        uint64    // the oldest session that may go; 0 for none
	NextStarted time.Time // of that

	Stuck bool // a limit is exceeded, and nothing may go: what is left is pinned, shared, open, or newest
	Short bool // the disk is too small for Limits.Bytes: it is full before
}

// retention deletes what is beyond the limits. Its goroutine is the retainer; it looks after each commit.
type retention struct {
	wake  chan struct{} // has a value when there may be something to do
	state atomic.Pointer[retentionState]

	limits atomic.Pointer[Limits]

	mu   sync.Mutex
	held func() map[uint64]bool // sessions that stay as if they were pinned; nil for none

	// Every session before cursor is pinned, gone, or one of passed, which may go later. So a step does not look at a million pinned ones.
	cursor uint64
	passed map[uint64]struct{}

	// by the retainer
	newest  uint64    // sessions from it on were among the newest when newestKept last looked
	byBytes bool      // so it looked
	aged    time.Time // when age was last looked at
	peeked  time.Time
}

// retentionState is what the retainer last saw.
type retentionState struct {
	next  uint64
	since time.Time
	stuck bool
}

func newRetention() *retention {
	r := &retention{wake: make(chan struct{}, 1), passed: make(map[uint64]struct{})}
	r.state.Store(&retentionState{})
	r.limits.Store(&Limits{})
	return r
}

// look has the retainer look soon.
func (r *retention) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Retain sets the limits, at once and until the next call. Without a call there are none.
func (s *Store) Retain(l Limits) {
	s.retention.limits.Store(&l)
	s.retention.look()
}

// HoldBack has the limits spare the sessions that held returns, which is called often and must be quick.
func (s *Store) HoldBack(held func() map[uint64]bool) {
	s.retention.mu.Lock()
	defer s.retention.mu.Unlock()
	s.retention.held = held
}

// unpinned tells that a session may go again.
func (r *retention) unpinned(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id < r.cursor {
		r.passed[id] = struct{}{}
	}
}

// retention tells what the limits do.
func (s *Store) retentionNow(used, free uint64) Retention {
	r := s.retention
	limits, state := *r.limits.Load(), r.state.Load()
	return Retention{
		Limits: limits, Used: used, Next: state.next, NextStarted: state.since, Stuck: state.stuck,
		Short: limits.Bytes > 0 && free > 0 && limits.Bytes > used+free,
	}
}

// retainer keeps to the limits until ctx is done.
func (s *Store) retainer(ctx context.Context) {
	r := s.retention
	tick := time.NewTicker(retainPause)
	defer tick.Stop()
	for {
		for s.retain(ctx) {
		}
		wake := r.wake
		if r.state.Load().stuck {
			wake = nil // what comes changes little, and finding out costs a look at the newest
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
	}
}

// excess is what is beyond the limits.
type excess struct {
	bytes    bool
	sessions uint64    // so many
	kept     uint64    // and so many of the newest stay
	before   time.Time // what ended before; zero: nothing
}

// retain deletes some sessions that are beyond the limits. It reports whether there may be more.
func (s *Store) retain(ctx context.Context) bool {
	r := s.retention
	if ctx.Err() != nil {
		return false
	}
	over, err := s.excess()
	if err != nil {
		return false // the index is made again
	}
	ids, err := s.choose(over)
	if err == nil && len(ids) > 0 {
		_, err = s.deleteSome(ctx, ids, s.spared)
		if err != nil {
			r.mu.Lock()
			for _, id := range ids {
				r.passed[id] = struct{}{}
			}
			r.mu.Unlock()
			return false // the store says what is wrong, and the next look comes in a second at the latest
		}
		s.sayState(false)
		return true
	}
	s.sayState(err == nil && (over.bytes || over.sessions > 0))
	return false
}

// excess finds out what is beyond the limits. Derived copies go first, and never have a session go.
func (s *Store) excess() (over excess, err error) {
	r := s.retention
	limits := *r.limits.Load()
	if limits.Bytes > 0 {
		use, err := s.use()
		if err != nil {
			return over, err
		}
		if use.settled()+use.derived > limits.Bytes && use.derived > 0 {
			s.derived.dropIdle()
		}
		over.bytes = use.settled() > limits.Bytes && !s.cleanPending()
	}
	if rows := s.index.snapshot().Rows; limits.Sessions > 0 && rows > limits.Sessions {
		over.sessions, over.kept = rows-limits.Sessions, min(keptSessions, (limits.Sessions+1)/2)
	}
	if now := s.now(); limits.Age > 0 && (now.Sub(r.aged) >= retainPause || now.Before(r.aged)) {
		over.before, r.aged = now.Add(-limits.Age), now
	}
	return over, nil
}

// spared reports whether a session that was chosen is to stay all the same.
func (s *Store) spared(id uint64) bool {
	row, err := s.Row(id)
	return err != nil || row.Pinned || row.State == Open
}

// choose returns the oldest sessions that are to go, as many as one step deletes, and moves the cursor past them.
func (s *Store) choose(over excess) (ids []uint64, err error) {
	if !over.bytes && over.sessions == 0 && over.before.IsZero() {
		return nil, nil
	}
	r := s.retention
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes := uint64(0)
	var failed error
	newest := func(id uint64) bool {
		if id >= r.newest || r.byBytes != over.bytes {
			r.byBytes = over.bytes
			r.newest, failed = s.newestKept(over)
		}
		return id >= r.newest
	}
	err = s.walk(func(row *Row) verdict {
		aged := !over.before.IsZero() && !row.Started.IsZero() && row.Started.Add(row.Duration).Before(over.before)
		beyond := (over.bytes || uint64(len(ids)) < over.sessions) && !newest(row.ID)
		switch {
		case failed != nil || len(ids) == retainStep || bytes > retainBytes:
			return enough
		case !aged && !beyond:
			if over.before.IsZero() || !row.Started.Before(over.before) {
				return enough
			}
			return waits // one that began later may have ended earlier
		}
		ids = append(ids, row.ID)
		bytes += row.RequestBytes + row.ResponseBytes
		return goes
	})
	return ids, errors.Join(err, failed)
}

// newestKept returns from which session on the newest stay.
func (s *Store) newestKept(over excess) (first uint64, err error) {
	bytes, count := uint64(0), uint64(0)
	first = s.live.newest() + 1
	err = s.ScanDown(0, first, func(row *Row) bool {
		bytes += row.RequestBytes + row.ResponseBytes + rowWeight
		count++
		if over.bytes && bytes > keptBytes && count > 1 || !over.bytes && count > over.kept {
			return false
		}
		first = row.ID
		return true
	})
	return first, err
}

// verdict is what becomes of a session that may go.
type verdict uint8

const (
	goes   verdict = iota
	waits          // it is looked at again
	enough         // so does it, and no more are looked at
)

// walk shows the sessions that may go, the oldest first, until judge says enough. r.mu is held.
func (s *Store) walk(judge func(*Row) verdict) error {
	r := s.retention
	var held map[uint64]bool
	if r.held != nil {
		held = r.held()
	}
	passed := make([]uint64, 0, len(r.passed))
	for id := range r.passed {
		if !held[id] {
			passed = append(passed, id)
		}
	}
	slices.Sort(passed)
	for _, id := range passed {
		row, err := s.Row(id)
		if err != nil || row.Pinned { // it is gone, or it is unpinned one day
			delete(r.passed, id)
			continue
		}
		if row.State == Open {
			continue
		}
		switch judge(&row) {
		case goes:
			delete(r.passed, id)
		case enough:
			return nil
		}
	}
	return s.Scan(r.cursor, s.live.newest()+1, func(row *Row) bool {
		if !row.Pinned && (held[row.ID] || row.State == Open) {
			r.passed[row.ID] = struct{}{}
		} else if !row.Pinned {
			switch judge(row) {
			case waits:
				r.passed[row.ID] = struct{}{}
			case enough:
				return false
			}
		}
		r.cursor = row.ID + 1
		return true
	})
}

// sayState notes what a look found, and from time to time which session would go next.
func (s *Store) sayState(stuck bool) {
	r := s.retention
	state := *r.state.Load()
	if now := time.Now(); now.Sub(r.peeked) >= retainPause || state.stuck != stuck {
		r.peeked = now
		state.next, state.since = 0, time.Time{}
		r.mu.Lock()
		if *r.limits.Load() != (Limits{}) {
			_ = s.walk(func(row *Row) verdict { // what cannot be read is found out elsewhere
				state.next, state.since = row.ID, row.Started
				return enough
			})
		}
		r.mu.Unlock()
	}
	if stuck && !state.stuck {
		s.logger.Warn("a limit is exceeded, and nothing may go: what is left is pinned, shared, open or newest", "limits", *r.limits.Load())
	}
	state.stuck = stuck
	r.state.Store(&state)
}
