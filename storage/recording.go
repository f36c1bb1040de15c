package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Recording is a session that is being captured. Its methods never fail and are safe for concurrent use.
type Recording struct {
	store   *Store
	id      uint64
	share   *share
	writers [2]BodyWriter

	mu       sync.Mutex
	session  Session // but for its bodies, which are below
	bodies   [2]body
	ended    bool
	deleted  bool
	finished bool // its last record is in the log, or was given up
	noted    bool // is on the store's list for the next commit
	unsaved  bool // its fields are not in the log as they are
	begun    bool // the log has a begun record
	flush    bool // what is held in memory is due to be written
	naming   int  // incoming files that are full and not yet chunks

	// which goroutine works on it: at most one at a time
	queued, running, again bool

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
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
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
	r.note()
	r.schedule()
	r.mu.Unlock()
	r.store.feeds.publish(r.id)
}

// note puts the recording on the list of those the next commit looks at. r.mu is held.
func (r *Recording) note() {
	if !r.noted {
		r.noted = true
		r.store.noted.add(r)
	}
}

// schedule has a storage worker look at the recording. r.mu is held.
func (r *Recording) schedule() {
	switch {
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
	return s
}

// row returns the session's row. r.mu is held.
func (r *Recording) row() Row {
	for side := range r.bodies {
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
	sha      []byte
	grown    chan struct{} // closed at the next growth; nil while nobody asks

	incoming *incoming // changed by the worker only
	digest   *digest   // of what was appended to the log; by the worker only
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

// BodyWriter takes one side's bytes in order, from one goroutine.
type BodyWriter struct {
	rec  *Recording
	side Side
}

// Give hands over the first n bytes of b, already forwarded, without a copy; b is the store's from here on. It never blocks.
func (w *BodyWriter) Give(b *Buffer, n int) {
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.take(n, cap(b.B)) {
		b.Free()
		return
	}
	w.enqueue(piece{buf: b, n: n})
}

// Write copies p, already forwarded; small writes are gathered. It never blocks and always returns len(p), nil.
func (w *BodyWriter) Write(p []byte) (int, error) {
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	for rest := p; len(rest) > 0; {
		if n := w.gather(rest); n > 0 {
			rest = rest[n:]
			continue
		}
		n := min(len(rest), BufferSize)
		if !w.take(n, BufferSize) {
			rest = rest[n:]
			continue
		}
		b := NewBuffer()
		copy(b.B, rest[:n])
		w.enqueue(piece{buf: b, n: n, open: true})
		rest = rest[n:]
	}
	return len(p), nil
}

// gather adds to the last buffer, where Write made it and no worker has it yet. It returns how many bytes fitted.
func (w *BodyWriter) gather(p []byte) int {
	r := w.rec
	b := &r.bodies[w.side]
	last := len(b.queue) - 1
	if last < b.busy || !b.queue[last].open || b.final(r.ended) {
		return 0
	}
	q := &b.queue[last]
	n := copy(q.buf.B[q.n:], p)
	q.n += n
	b.passed += uint64(n)
	b.kept += uint64(n)
	b.wake()
	r.note()
	return n
}

// take counts n bytes as forwarded, and reports whether they are to be kept, in memory of the given size. r.mu is held.
func (w *BodyWriter) take(n, memory int) bool {
	r := w.rec
	b := &r.bodies[w.side]
	if r.ended || b.complete {
		return false
	}
	b.passed += uint64(n)
	r.note()
	if n == 0 || b.missing != "" {
		return false
	}
	if !r.share.add(memory) {
		r.cut(w.side, r.share.cutReason())
		return false
	}
	return true
}

// cut ends the capture of a body. r.mu is held.
func (r *Recording) cut(side Side, why string) {
	r.bodies[side].cut(why)
	r.session.SetFlag(FlagCut)
	r.unsaved = true
	r.note()
}

func (w *BodyWriter) enqueue(p piece) {
	r := w.rec
	b := &r.bodies[w.side]
	b.queue = append(b.queue, p)
	b.kept += uint64(p.n)
	b.wake()
	r.schedule()
}

// Full is nil while the recording holds no more memory than its share. Else it is a channel closed when it again does not, or when the capture was cut:
// the relay should take no more from the sender until then.
func (w *BodyWriter) Full() <-chan struct{} { return w.rec.share.full() }

// Wait blocks while Full, or until ctx is done.
func (w *BodyWriter) Wait(ctx context.Context) {
	for {
		full := w.Full()
		if full == nil {
			return
		}
		select {
		case <-full:
		case <-ctx.Done():
			return
		}
	}
}

// Complete says that the sender finished the body.
func (w *BodyWriter) Complete() {
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.bodies[w.side]
	if r.ended || b.complete {
		return
	}
	b.complete = true
	r.unsaved = true
	b.wake()
	if b.kept > 0 {
		r.schedule()
	}
	r.note()
}

// recordings is a list of recordings to look at. Its length is bounded by the number of live recordings, as each is on it once.
type recordings struct {
	mu   sync.Mutex
	wake *sync.Cond
	list []*Recording
	head int
	done bool
	hint chan struct{} // has a value when the list is not empty; nil where nobody waits so
}

func newRecordings() *recordings {
	l := new(recordings)
	l.wake = sync.NewCond(&l.mu)
	l.hint = make(chan struct{}, 1)
	return l
}

func (l *recordings) add(r *Recording) {
	l.mu.Lock()
	l.list = append(l.list, r)
	l.mu.Unlock()
	l.wake.Signal()
	select {
	case l.hint <- struct{}{}:
	default:
	}
}

// next waits for a recording and takes it. It is nil once the list is closed and empty.
func (l *recordings) next() *Recording {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.head == len(l.list) {
		l.list, l.head = l.list[:0], 0
		if l.done {
			return nil
		}
		l.wake.Wait()
	}
	r := l.list[l.head]
	l.list[l.head] = nil
	if l.head++; l.head > 1024 && l.head > len(l.list)/2 {
		l.list = append(l.list[:0], l.list[l.head:]...)
		l.head = 0
	}
	return r
}

// take takes all there are.
func (l *recordings) take() []*Recording {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.list[l.head:]
	l.list, l.head = nil, 0
	return all
}

func (l *recordings) close() {
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	l.wake.Broadcast()
}

// Begin starts the recording of a session and gives it its id. It never fails and never waits for the disk:
// where storage cannot keep the session, the session says so.
func (s *Store) Begin(begun Session) *Recording {
	r := &Recording{store: s, session: begun, share: s.budget.share(), unsaved: true}
	r.writers = [2]BodyWriter{{r, Request}, {r, Response}}
	r.session.State = Open
	for side := range r.session.Sides {
		r.session.Sides[side].Body = Body{}
	}
	if r.session.Timing.Started.IsZero() {
		r.session.Timing.Started = s.now()
	}
	s.live.begin(r)
	r.mu.Lock()
	r.note()
	r.mu.Unlock()
	s.feeds.publish(r.id)
	return r
}

// live holds the sessions that the index does not know, or not as they are: those that are open, and those that ended since the last commit.
type live struct {
	mu    sync.RWMutex
	last  uint64 // the newest id given
	byID  map[uint64]*Recording
	order []*Recording // rising ids
}

func (l *live) begin(r *Recording) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	r.id = l.last
	r.session.ID = r.id
	l.byID[r.id] = r
	l.order = append(l.order, r)
}

func (l *live) get(id uint64) *Recording {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byID[id]
}

// forget takes out sessions that the index now knows.
func (l *live) forget(gone []*Recording) {
	if len(gone) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range gone {
		delete(l.byID, r.id)
	}
	l.order = slices.DeleteFunc(l.order, func(r *Recording) bool { return l.byID[r.id] == nil })
}

// between returns the live sessions with an id in [from, to), in rising order.
func (l *live) between(from, to uint64) []*Recording {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at := func(id uint64) int {
		i, _ := slices.BinarySearchFunc(l.order, id, func(r *Recording, id uint64) int { return compare(r.id, id) })
		return i
	}
	return slices.Clone(l.order[at(from):max(at(from), at(to))])
}

func (l *live) all() []*Recording { return l.between(0, 1<<64-1) }

func (l *live) newest() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last
}

// commitInterval is how long a commit waits for more to commit.
const commitInterval = 100 * time.Millisecond
