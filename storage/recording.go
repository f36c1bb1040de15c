package storage

import (
	"fmt"
	"slices"
	"sync"
)

// Recording is a session that is being captured. Its methods never fail and are safe for concurrent use.
type Recording struct {
	store   *Store
	id      uint64
	share   *share
	writers [streams]BodyWriter

	mu       sync.Mutex
	session  Session // but for its bodies, which are below
	bodies   [streams]body
	ended    bool
	deleted  bool
	finished bool  // its last record is in the log, or was given up
	noted    bool  // is on the store's list for the next commit
	unsaved  bool  // its fields are not in the log as they are
	begun    bool  // the log has a begun record
	flush    bool  // what is held in memory is due to be written
	naming   int   // incoming files that are full and not yet chunks
	lists    bool  // it has a list of messages
	weight   int64 // once it has ended: what it holds while it waits, in bytes
	unkept   bool  // there is no room for its record: it is shown while it is open, and forgotten

	// which goroutine works on it: at most one at a time
	queued, running, again bool

	chainAt place // of its certificates, once session.Certificates names them

	pinned []uint64 // segments it names by a reused slot, until the index knows
}

// ID returns the session's id.
func (r *Recording) ID() uint64 { return r.id }

// Change lets fn alter the session's fields (not its Bodies, id or state). fn must be quick.
func (r *Recording) Change(fn func(*Session)) {
	r.mu.Lock()
	if !r.ended {
		state := r.session.State
		fn(&r.session)
		r.session.ID, r.session.State = r.id, state
		r.unsaved = true
		r.note()
	}
	r.mu.Unlock()
	r.store.feeds.publish(r.id)
}

// Body returns the writer for one side. A side that never gets a byte needs no call but Complete.
func (r *Recording) Body(side Side) *BodyWriter { return &r.writers[side] }

// End ends the session; writers that are not Complete keep what they have. why is for people, empty for Done. Only the first call counts.
func (r *Recording) End(state State, why string) {
	r.closeReaders()
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended, r.unsaved = true, true
	r.bodies[messageList].complete = r.lists
	if state == Open {
		state = Done
	}
	r.session.State, r.session.Error = state, why
	if r.session.Timing.Ended.IsZero() {
		r.session.Timing.Ended = r.store.now()
	}
	for side := range r.bodies {
		r.bodies[side].wake()
	}
	if r.unkept {
		r.share.close()
		r.finished, r.deleted = true, true // who has it in hand is not to tell of it as of one that ended
		r.store.unkept.Add(1)
		r.store.live.forget([]*Recording{r})
	} else {
		r.weight = r.weigh()
		r.store.waiting.Add(r.weight)
	}
	r.note()
	r.schedule()
	r.mu.Unlock()
	r.store.feeds.publish(r.id)
}

// note puts the recording on the list of those the next commit looks at. r.mu is held.
func (r *Recording) note() {
	if !r.noted && !r.unkept {
		r.noted = true
		r.store.noted.add(r)
	}
}

// schedule has a storage worker look at the recording. r.mu is held.
func (r *Recording) schedule() {
	switch {
	case r.unkept:
	case r.running:
		r.again = true
	case !r.queued:
		r.queued = true
		r.store.ready.add(r)
	}
}

// snapshot returns the session as it is. r.mu is held.
func (r *Recording) snapshot() Session {
	s := r.session
	s.Flags = slices.Clone(s.Flags)
	for side := range s.Sides {
		m := &s.Sides[side]
		m.Informational = slices.Clone(m.Informational)
		m.Body = r.bodies[side].describe()
	}
	if s.Messages != nil {
		m := *s.Messages
		m.List = r.bodies[messageList].describe()
		s.Messages = &m
	}
	return s
}

// row returns the session's row. r.mu is held.
func (r *Recording) row() Row {
	for side := range r.session.Sides {
		r.session.Sides[side].Body.Passed = r.bodies[side].passed
	}
	row := rowOf(&r.session, r.store.now())
	row.Flags = slices.Clone(row.Flags)
	return row
}

// body is one side's body while it is recorded. Its bytes are in runs up to disk, and in queue from there on. Recording.mu guards it.
type body struct {
	passed   uint64 // bytes forwarded
	kept     uint64 // bytes kept, in runs and queue
	disk     uint64 // bytes in runs
	runs     []run
	queue    []piece
	busy     int // pieces of queue that a worker is writing
	complete bool
	missing  string // why bytes beyond kept are not kept
	lost     bool   // runs were taken back: a worker at the body is to stop
	lookedUp bool   // whether it is in the log already, as a whole; by the worker
	sha      []byte
	grown    chan struct{} // closed at the next growth; nil while nobody asks

	incoming *incoming // changed by the worker only
}

// piece is a buffer whose first n bytes are of a body.
type piece struct {
	buf  *Buffer
	n    int
	open bool // Write may add to it
}

// final reports whether no byte will be added.
func (b *body) final(ended bool) bool { return ended || b.complete || b.missing != "" }

// wake tells readers that there is more to read, or that there will be nothing more.
func (b *body) wake() {
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
}

// cut ends the capture of the body after its first kept bytes.
func (b *body) cut(why string) {
	if b.missing == "" {
		b.missing = fmt.Sprintf("captured to byte %d: %s", b.kept, why)
	}
	b.wake()
}

// describe returns the body as a record tells it. Runs that have no lasting place yet are left out of its extents.
func (b *body) describe() Body {
	d := Body{Size: b.kept, Passed: b.passed, Complete: b.complete && b.missing == "", Missing: b.missing, SHA256: b.sha}
	d.Extents = make([]Extent, 0, len(b.runs))
	for i := range b.runs {
		e, ok := b.runs[i].extent()
		if !ok {
			break
		}
		d.Extents = append(d.Extents, e)
	}
	return d
}

// Begin starts the recording of a session and gives it its id. It never fails and never waits for the disk:
// where storage cannot keep the session, the session says so.
func (s *Store) Begin(begun Session) *Recording {
	r := &Recording{store: s, session: begun, share: s.budget.share(), unsaved: true}
	for side := range r.writers {
		r.writers[side].rec, r.writers[side].side = r, Side(side)
	}
	r.session.State, r.session.Certificates = Open, nil
	for side := range r.session.Sides {
		r.session.Sides[side].Body = Body{}
	}
	if r.session.Timing.Started.IsZero() {
		r.session.Timing.Started = s.now()
	}
	s.live.begin(r)
	r.mu.Lock()
	why := ""
	switch {
	case s.room.isLow():
		why = reason(errNoRoom)
	case s.waiting.Load() >= waitingLimit:
		why = "too many sessions wait for the disk"
	}
	if r.unkept = why != ""; r.unkept {
		for side := range r.bodies {
			r.cut(Side(side), why)
		}
	}
	r.note()
	r.mu.Unlock()
	s.feeds.publish(r.id)
	return r
}
