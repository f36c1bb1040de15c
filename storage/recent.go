package storage

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// recentLimit is how many recent bodies are remembered, at some 400 bytes each, which the garbage collector looks at each time.
const recentLimit = 4 << 10

// recentKey is what a body is looked up by. Equal keys do not prove equal bodies, but finding out takes a tenth of the time of SHA-256: who finds one compares.
type recentKey struct {
	hash   uint64
	length int
}

// recent remembers where small bodies that came lately are in the log, so that one that comes again is stored once.
type recent struct {
	seed maphash.Seed
	mu   sync.Mutex
	lru  *simplelru.LRU[recentKey, []place]
	pins map[uint64]int // segments that a session names by a reused slot and the index does not know of yet
}

func newRecent() *recent {
	lru, _ := simplelru.NewLRU[recentKey, []place](recentLimit, nil) // the size is a constant above 0
	return &recent{seed: maphash.MakeSeed(), lru: lru, pins: make(map[uint64]int)}
}

// key returns the key of a body of the given pieces.
func (c *recent) key(pieces [][]byte) recentKey {
	var h maphash.Hash
	h.SetSeed(c.seed)
	length := 0
	for _, p := range pieces {
		h.Write(p)
		length += len(p)
	}
	return recentKey{h.Sum64(), length}
}

// recentPieces is of how many records a body may be that is remembered: what comes slowly is written in several.
const recentPieces = 8

// add remembers where a body is, in one record or in several, in their order.
func (c *recent) add(key recentKey, at ...place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Add(key, at)
}

// find returns where a body of the same key is. Its segments are kept until unpin.
func (c *recent) find(key recentKey) ([]place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.lru.Get(key)
	for _, p := range at {
		c.pins[p.Segment]++
	}
	return at, ok
}

// segmentsOf returns the segment of each place, for unpin.
func segmentsOf(at []place) (segments []uint64) {
	for _, p := range at {
		segments = append(segments, p.Segment)
	}
	return segments
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
	c.forget(func(p place) bool { return p.Segment == segment })
	return true
}

// forget has no body be found of which a part is at such a place. c.mu is held.
func (c *recent) forget(is func(place) bool) {
	for _, key := range c.lru.Keys() {
		if at, ok := c.lru.Peek(key); ok && slices.ContainsFunc(at, is) {
			c.lru.Remove(key)
		}
	}
}

// keepOnly reports whether a segment may be rewritten with only these slots. If so, no other of it is found from then on.
func (c *recent) keepOnly(segment uint64, live map[uint32]bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins[segment] > 0 {
		return false
	}
	c.forget(func(p place) bool { return p.Segment == segment && !live[p.Slot] })
	return true
}

// forgetAll is for a log that failed: what was appended lately may not be there.
func (c *recent) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
}
