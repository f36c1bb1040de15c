package storage

import (
	"sync"
	"time"
)

const (
	// crowdLimit is how many sessions may have ended and wait to be committed before relays are held back: a second's worth of the
	// most that a small machine relays. At some 3 KB each that is 15 MB.
	crowdLimit = 5_000

	// waitingLimit is how many may wait where that does not help: the disk is full, failing or stalled, or --slow-disk=cut. One that begins
	// then is shown while it is open, and not kept.
	waitingLimit = 20_000
)

// crowd holds relays back while too many ended sessions wait for a commit.
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
