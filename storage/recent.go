package storage

import (
	"crypto/sha256"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// recentLimit is how many recent bodies are remembered, at some 150 bytes each.
const recentLimit = 16 << 10

// recent remembers where small bodies that came lately are in the log, so that one that comes again is stored once.
type recent struct {
	mu   sync.Mutex
	lru  *simplelru.LRU[[sha256.Size]byte, place]
	pins map[uint64]int // segments that a session names by a reused slot and the index does not know of yet
}

func newRecent() *recent {
	lru, _ := simplelru.NewLRU[[sha256.Size]byte, place](recentLimit, nil) // the size is a constant above 0
	return &recent{lru: lru, pins: make(map[uint64]int)}
}

func (c *recent) add(sum [sha256.Size]byte, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Add(sum, at)
}

// find returns where an equal body is. Its segment is kept until unpin.
func (c *recent) find(sum [sha256.Size]byte) (place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.lru.Get(sum)
	if ok {
		c.pins[at.Segment]++
	}
	return at, ok
}

func (c *recent) unpin(segments []uint64) {
	if len(segments) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, segment := range segments {
		if c.pins[segment]--; c.pins[segment] <= 0 {
			delete(c.pins, segment)
		}
	}
}

// mayRemove reports whether a segment may go. If so, none of its bodies is found from then on.
func (c *recent) mayRemove(segment uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins[segment] > 0 {
		return false
	}
	for _, sum := range c.lru.Keys() {
		if at, ok := c.lru.Peek(sum); ok && at.Segment == segment {
			c.lru.Remove(sum)
		}
	}
	return true
}

// forgetAll is for a log that failed: what was appended lately may not be there.
func (c *recent) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
}
