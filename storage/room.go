package storage

import (
	"fmt"
	"sync"
	"syscall"
	"time"
)

const (
	// headroom is what bodies leave free of the disk, or a sixteenth of it where that is less. Without it there would be no room to write
	// down that sessions were deleted, and so no way to make room. Half of it goes to sessions without bodies, some 5,000; the other
	// half is left to the ends of those that are open, and to deletions.
	headroom = 32 << 20

	// roomStep is how many bytes of bodies may be written until the disk is asked again how much it has left: others use it, too.
	roomStep = 8 << 20
)

// refusedTime is how long bodies are not tried again after the disk refused one that should have fitted, as it does where it is out of quota or of inodes. Else
// each would begin, be cut, and the problem would come and go.
const refusedTime = 5 * time.Second

// errNoRoom is why a body is not written: the disk is full, but for the headroom.
var errNoRoom = fmt.Errorf("keep the last of the disk for records: %w", syscall.ENOSPC)

// room is what bodies may take of the disk.
type room struct {
	files Files

	mu   sync.Mutex
	left int  // bytes that may be written before the disk is asked again
	full bool // bodies are refused until twice the headroom is free, so that the next one is not cut at once

	spending sync.RWMutex // held for reading while bytes of a body are written to a file

	refused time.Time // when the disk refused a body, whatever it says that it has left
	low     bool      // not even sessions without bodies are begun
}

// take is asked before n bytes of a body are written, and is errNoRoom where they would take from the headroom.
func (r *room) take(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.left {
		r.ask(n)
	}
	if n > r.left {
		return errNoRoom
	}
	r.left -= n
	return nil
}

// spend has write put n bytes of a body into a file, and is errNoRoom where they would take from the headroom.
func (r *room) spend(n int, write func() error) error {
	r.spending.RLock()
	defer r.spending.RUnlock()
	if err := r.take(n); err != nil {
		return err
	}
	return write()
}

// stop says that not even a record fitted. It takes back what was granted to bodies, and waits for what is being written of them: what comes free is for records.
func (r *room) stop() {
	r.refuse()
	r.spending.Lock()
	defer r.spending.Unlock()
}

// judge finds out whether sessions without bodies may be begun, once way was made for records.
func (r *room) judge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, total, err := r.files.Space()
	r.low = err == nil && free < min(headroom, total/16)/2
}

// refuse says that the disk refused a body for want of room.
func (r *room) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused, r.left, r.full = time.Now(), 0, true
}

// isFull reports whether bodies are refused, after asking the disk again.
func (r *room) isFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		r.ask(0)
	}
	return r.full
}

// isLow reports whether half of the headroom is used up. It can be a second old.
func (r *room) isLow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.low
}

// isTight reports whether the disk has no room for n bytes beside the headroom, without granting them.
func (r *room) isTight(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left
	r.ask(n)
	r.left = min(r.left, left)
	return r.full
}

// ask finds out how much may be written, where that is n bytes at least. A disk that cannot tell is tried. r.mu is held.
func (r *room) ask(n int) {
	if time.Since(r.refused) < refusedTime {
		return
	}
	free, total, err := r.files.Space()
	if err != nil {
		r.left, r.full, r.low = max(n, roomStep), false, false
		return
	}
	spare := min(headroom, total/16)
	need := spare + uint64(n)
	if r.full {
		need += spare
	}
	r.full = free < need
	r.low = r.full && free < spare/2
	if r.full {
		r.left = 0
		return
	}
	r.left = int(min(free-spare, max(uint64(n), roomStep)))
}
