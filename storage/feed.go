package storage

import (
	"slices"
	"sync"
)

// FeedLimit is the most ids a Feed holds. A dashboard whose feed ran over asks for its window anew, which costs the same whatever was missed.
const FeedLimit = 16 << 10

// Feed gathers the ids of sessions that were begun, changed, ended or deleted since it was last taken, each once. It holds at most
// FeedLimit ids; beyond that it forgets them and says so. A subscriber that never takes costs no more than that.
type Feed struct {
	wake chan struct{}
	from *feeds

	mu         sync.Mutex
	ids        map[uint64]struct{}
	overflowed bool
}

// Wake has a value when there is something to take.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns the ids in rising order, and empties the feed. Where overflowed, any session may have changed.
func (f *Feed) Take() (ids []uint64, overflowed bool) {
	f.mu.Lock()
	taken := f.ids
	f.ids = nil
	overflowed, f.overflowed = f.overflowed, false
	f.mu.Unlock()

	ids = make([]uint64, 0, len(taken))
	for id := range taken {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, overflowed
}

// Close ends the subscription. Nothing is added to the feed any more.
func (f *Feed) Close() {
	f.from.mu.Lock()
	defer f.from.mu.Unlock()
	delete(f.from.all, f)
}

func (f *Feed) put(ids []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if f.overflowed {
			break
		}
		if f.ids == nil {
			f.ids = make(map[uint64]struct{})
		}
		f.ids[id] = struct{}{}
		if len(f.ids) > FeedLimit {
			f.ids, f.overflowed = nil, true
		}
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// feeds are the subscriptions of a store. The zero value has none.
type feeds struct {
	mu  sync.RWMutex
	all map[*Feed]struct{}
}

func (s *feeds) subscribe() *Feed {
	f := &Feed{wake: make(chan struct{}, 1), from: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*Feed]struct{})
	}
	s.all[f] = struct{}{}
	return f
}

// publish puts the ids into every feed. It never waits for a subscriber.
func (s *feeds) publish(ids ...uint64) {
	if len(ids) == 0 {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for f := range s.all {
		f.put(ids)
	}
}
