package server

import (
	"context"
	"math"
	"sync"
	"time"

	"millpond/storage"
)

// scanSlice is how long a view looks through the sessions before others get their turn.
const scanSlice = 20 * time.Millisecond

// everything is the cursor of a pass that has looked at every session.
const everything = math.MaxUint64

// view is one browser's filtered, ordered window over the sessions. It holds the matching ids, never the rows.
type view struct {
	id      int
	filter  string
	matches storage.Match // nil: every session

	mu    sync.Mutex
	shown *pass
	next  *pass  // made anew beside shown, when changes were missed
	first uint64 // rows that went from the front

	from  uint64
	count int
	tail  bool

	asked, dirty bool   // to be sent: because the browser asked, because something changed
	low, high    uint64 // ids of the window's rows as last sent; low is above high where there were none

	again chan struct{} // has a value when the view must be made anew
}

// pass is one way through the sessions, and what it found.
type pass struct {
	ids    idSet
	cursor uint64          // every id below it was looked at
	late   map[uint64]bool // changes from cursor on, since the slice that is looked at began: whether the row matches
}

// change is a session that was begun, changed, ended or deleted.
type change struct {
	id  uint64
	row *storage.Row // nil: it is no more
}

func newView(m *LiveView, matches storage.Match) *view {
	v := &view{id: m.ID, filter: m.Filter, matches: matches, shown: &pass{}, again: make(chan struct{}, 1), low: 1}
	v.move(m)
	return v
}

// move sets the window, and has it sent.
func (v *view) move(m *LiveView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.from, v.count, v.tail = m.From, m.Count, m.Tail
	v.asked = v.shown.cursor > 0 // before the first slice there is nothing to show
}

// apply takes changes in, and reports whether the window is to be sent.
func (v *view) apply(changes []change) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range changes {
		is := c.row != nil && matchesRow(v.matches, c.row)
		if v.next != nil {
			v.next.apply(c.id, is)
		}
		wasFirst := v.shown.ids.below(c.id) == 0
		switch added, removed := v.shown.apply(c.id, is); {
		case removed && wasFirst:
			v.first++
			v.dirty = true
		case added || removed:
			v.dirty = true
		case is && c.id >= v.low && c.id <= v.high:
			v.dirty = true
		}
	}
	return v.dirty
}

func (p *pass) apply(id uint64, is bool) (added, removed bool) {
	switch {
	case id >= p.cursor:
		if p.late == nil {
			p.late = make(map[uint64]bool) // at most what the feed gives within one slice
		}
		p.late[id] = is
	case is:
		added = p.ids.add(id)
	default:
		removed = p.ids.remove(id)
	}
	return added, removed
}

// run looks through the sessions, and again when changes were missed, until ctx is done. turns bounds how many views do so at a time.
func (v *view) run(ctx context.Context, store *storage.Store, turns chan struct{}, changed func()) error {
	if err := v.scan(ctx, store, v.shown, turns, changed); err != nil {
		return err
	}
	for {
		select {
		case <-v.again:
		case <-ctx.Done():
			return nil
		}
		next := &pass{}
		v.mu.Lock()
		v.next = next
		v.mu.Unlock()
		if err := v.scan(ctx, store, next, turns, func() {}); err != nil {
			return err
		}
		v.swap()
		changed()
	}
}

// swap shows what the new pass found. What went from the front went for good: the positions of what follows stay.
func (v *view) swap() {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := uint64(everything)
	if ids := v.next.ids.slice(0, 1); len(ids) > 0 {
		oldest = ids[0]
	}
	v.first += uint64(v.shown.ids.below(oldest))
	v.shown, v.next = v.next, nil
	v.dirty = true
}

func (v *view) scan(ctx context.Context, store *storage.Store, p *pass, turns chan struct{}, changed func()) error {
	for {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		done, err := v.scanSlice(ctx, store, p)
		<-turns
		if err != nil || ctx.Err() != nil {
			return err
		}
		changed()
		if done {
			return nil
		}
	}
}

// scanSlice looks through sessions for a slice of time, and reports whether it came to the end.
func (v *view) scanSlice(ctx context.Context, store *storage.Store, p *pass) (done bool, err error) {
	v.mu.Lock()
	p.late = nil
	from := p.cursor
	v.mu.Unlock()

	var found []uint64
	until := time.Now().Add(scanSlice)
	cursor := uint64(everything)
	err = store.Find(from, everything, false, v.matches, func(ids []uint64, rest, to uint64) bool {
		found = append(found, ids...)
		if rest < to && (time.Now().After(until) || ctx.Err() != nil) {
			cursor = rest
			return false
		}
		return true
	})
	if err != nil {
		return false, err
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range found {
		p.ids.add(id)
	}
	p.cursor = cursor
	for id, is := range p.late { // what changed while we looked is newer than what we saw
		if id < cursor {
			p.apply(id, is)
		}
	}
	if p == v.shown {
		v.dirty = true
		// The first rows, and that all was looked at, are what the browser waits for.
		v.asked = v.asked || from == 0 || cursor == everything
	}
	return cursor == everything, nil
}

// wanted reports whether the browser waits for the window.
func (v *view) wanted() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

// window takes what is to be sent: the message without its rows, and their ids. ok is false where there is nothing new; with askedOnly also
// where the browser did not ask.
func (v *view) window(askedOnly bool) (w *LiveWindow, ids []uint64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.asked && (askedOnly || !v.dirty) {
		return nil, nil, false
	}
	v.asked, v.dirty = false, false
	total := uint64(v.shown.ids.n)
	from := max(v.from, v.first)
	if v.tail {
		from = v.first + total - min(total, uint64(v.count))
	}
	if from-v.first < total {
		ids = v.shown.ids.slice(int(from-v.first), v.count)
	}
	v.low, v.high = 1, 0
	if len(ids) > 0 {
		v.low, v.high = ids[0], ids[len(ids)-1]
	}
	return &LiveWindow{Type: "window", ID: v.id, First: v.first, Total: total, From: from, Rows: []Summary{}, Scanning: v.shown.cursor != everything}, ids, true
}
