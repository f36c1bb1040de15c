package storage

import (
	"sync"
	"time"
)

const (
	// crowdLimit is how much may be held of sessions that have ended and wait to be committed before relays are held back, in bytes: a second's worth of the
	// most that a small machine relays.
	crowdLimit = 20 << 20

	// waitingLimit is how much may wait where that does not help: the disk is full, failing or stalled, or --slow-disk=cut. A session that begins
	// then is shown while it is open, and not kept.
	waitingLimit = 40 << 20

	// sessionCost is what a session holds while it waits, beside its heads.
	sessionCost = 4 << 10
)

// weigh is what the session holds while it waits for a commit. r.mu is held.
func (r *Recording) weigh() int64 {
	n := sessionCost + len(r.session.Error)
	for i := range r.session.Sides {
		m := &r.session.Sides[i]
		n += len(m.Head) + len(m.Received) + len(m.Trailers)
		for _, h := range m.Informational {
			n += len(h)
		}
	}
	return int64(n)
}

// crowd holds relays back while too much of ended sessions waits for a commit.
type crowd struct {
	mu     sync.Mutex
	room   chan struct{} // closed at the next commit; nil while nobody waits
	timer  *time.Timer   // closes it where no commit comes
	futile bool          // none came: nobody waits until one does
}

// crowded is nil while there is room for further sessions, and else a channel that is closed when there may be.
func (s *Store) crowded() <-chan struct{} {
	if s.waiting.Load() < crowdLimit || s.slow == Cut || s.trouble.Load() != nil {
		return nil
	}
	c := &s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.futile {
		return nil
	}
	if c.room == nil {
		c.room = make(chan struct{})
		c.timer = time.AfterFunc(stallLimit, c.giveUp)
	}
	return c.room
}

// disperse says that a commit made room.
func (c *crowd) disperse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.futile = false
	c.open()
}

func (c *crowd) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != nil {
		c.futile = true
		c.open()
	}
}

func (c *crowd) open() {
	if c.room != nil {
		close(c.room)
		c.timer.Stop()
		c.room = nil
	}
}
