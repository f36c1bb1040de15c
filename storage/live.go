package storage

import (
	"slices"
	"sync"
)

// live holds the sessions that the index does not know, or not as they are: those that are open, and those that ended since the last commit.
type live struct {
	mu    sync.RWMutex
	last  uint64 // the newest id given
	byID  map[uint64]*Recording
	order []*Recording // rising ids; some may be forgotten already
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

// forget takes out sessions that the index now knows, and returns what they held.
func (l *live) forget(gone []*Recording) (weight int64) {
	if len(gone) == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range gone {
		if l.byID[r.id] == r {
			delete(l.byID, r.id)
			weight += r.weight
		}
	}
	if len(l.order) >= 2*len(l.byID)+64 {
		l.order = slices.DeleteFunc(l.order, func(r *Recording) bool { return l.byID[r.id] == nil })
	}
	return weight
}

// between returns the live sessions with an id in [from, to), in rising order.
func (l *live) between(from, to uint64) []*Recording {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at := func(id uint64) int {
		i, _ := slices.BinarySearchFunc(l.order, id, func(r *Recording, id uint64) int { return compare(r.id, id) })
		return i
	}
	some := slices.Clone(l.order[at(from):max(at(from), at(to))])
	return slices.DeleteFunc(some, func(r *Recording) bool { return l.byID[r.id] == nil })
}

func (l *live) all() []*Recording { return l.between(0, 1<<64-1) }

func (l *live) newest() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last
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
