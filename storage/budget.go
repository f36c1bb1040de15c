package storage

import (
	"container/heap"
	"sync"
	"time"
)

const (
	// ownMemory is what each recording may hold without asking. With the buffer that shows it to be used up, that is two: one fills while
	// one is written.
	ownMemory = 64 << 10

	// sharedMemory is what all recordings together may hold beyond their own: a stall of the disk costs a body of 32 MiB nothing, also while others hold
	// calmMemory, and three hundred clients still fit into the resident size that is promised.
	sharedMemory = 52 << 20

	// connectionMemory is about what a connection takes beyond the bytes on their way to the disk: stacks, TLS, buffers to read into.
	connectionMemory = 128 << 10

	// arriving is for what comes although nobody may take more: over HTTP/2, until upstream knows that it was granted less.
	arriving = 16 << 20

	// calmMemory is what of it recordings hold while the disk takes bytes: enough to keep it busy. A queue before a disk that works grows to
	// whatever it may, makes nothing faster, and is what a SIGKILL loses. The rest is for a disk that stalls.
	calmMemory = 2 << 20

	// calmShare is the most of it that one recording holds. With its own memory, the buffer that shows both to be used up, and what is written and
	// not yet marked (markInterval) that is 1 MiB: the most that a SIGKILL takes from a body while the disk works.
	calmShare = 192 << 10

	// A disk that took nothing for calmFactor times its longest pause of the last second or two has stalled: at the earliest after calmLeast, so that a
	// download hardly waits at the start of a stall, and at the latest after calmMost. Writers that are more than the disk takes meet pauses of some
	// 50 ms all the time, and the kernel holds them back for up to 200 ms at a time. To take those for stalls would grow the queue before a disk that works.
	calmLeast  = 20 * time.Millisecond
	calmMost   = 250 * time.Millisecond
	calmFactor = 3

	// calmLate is by how much a timer may be late, at most, for a pause of the disk to count: where it is later, this process has not had the processor, and
	// so the disk perhaps nothing to do. Then it is given calmLeast more.
	calmLate = 4 * time.Millisecond

	// overshoot is what a recording may still add once the shared memory is used up: what its two sides had in hand before they
	// could see that.
	overshoot = 2 * BufferSize

	// stallLimit is how long recordings wait for a disk that makes no progress at all.
	stallLimit = 10 * time.Second
)

// Why the capture of a body was cut, after "captured to byte N: ".
const (
	cutSlow    = "the disk is slower than the body (--slow-disk=cut)"
	cutStalled = "the disk made no progress for 10 s"
	cutMemory  = "the memory for bodies on their way to the disk is used up"
)

// budget shares out the memory that bodies hold between the relay and the disk. A recording holds ownMemory freely, and of the
// shared memory at most twice what is free: a lone one may take two thirds, many take less each, and some is always left for the next.
// While the disk works that goes for calmMemory, and for calmShare at most; else for all of it (the dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998).
type budget struct {
	slow     SlowDisk
	calmMost time.Duration // calmMost, but for tests

	mu      sync.Mutex
	shares  int64 // open
	used    int64 // of the shared memory; overshoot can take it past sharedMemory
	waiting waiting
	calm    bool          // the disk counts as working
	watch   *time.Timer   // runs while any recording waits
	since   time.Time     // of the last progress, or of the first use of shared memory after it
	due     time.Time     // when tick is to be called
	pauses  pauses        // between one progress and the next, while shared memory was used
	stalls  chan struct{} // closed when the disk no longer counts as working; nil while nobody asks
	stalled bool          // no progress for stallLimit while some waited: waiting would be in vain
}

func newBudget(slow SlowDisk) *budget { return &budget{slow: slow, calmMost: calmMost} }

// share opens the share of one recording, which counts both sides.
func (b *budget) share() *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares++
	return &share{budget: b, at: -1}
}

// progress says that bytes have reached the disk. Memory that is released without that is no progress.
func (b *budget) progress() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stalled = false
	now := time.Now()
	if pause := now.Sub(b.since); b.used > 0 && pause < calmMost {
		b.pauses.note(now, pause)
	}
	b.since, b.calm = now, true
	if b.watch != nil {
		b.arm(b.calmTime())
	}
}

// arm has tick called after d.
func (b *budget) arm(d time.Duration) {
	b.due = time.Now().Add(d)
	if b.watch == nil {
		b.watch = time.AfterFunc(d, b.tick)
		return
	}
	b.watch.Reset(d)
}

// calmTime is how long after its last progress the disk still counts as working.
func (b *budget) calmTime() time.Duration {
	return min(max(calmFactor*b.pauses.longest(), calmLeast), b.calmMost)
}

// pauses knows the longest pause of the last one to two seconds in which there were any.
type pauses struct {
	begun       time.Time // of the second that now is for
	now, before time.Duration
}

func (p *pauses) note(at time.Time, pause time.Duration) {
	if at.Sub(p.begun) >= time.Second {
		p.begun, p.before, p.now = at, p.now, 0
	}
	p.now = max(p.now, pause)
}

func (p *pauses) longest() time.Duration { return max(p.now, p.before) }

// Stalled reports whether bytes wait for a disk that takes none.
func (s *Store) Stalled() bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.budget.used > 0 && !s.budget.calm
}

// inUse returns the shared bytes in use.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// share is what one recording holds.
type share struct {
	budget *budget

	// under budget.mu
	held   int64         // bytes
	beyond int64         // bytes added while the shared memory was used up
	room   chan struct{} // closed when it need wait no longer; nil while it need not
	at     int           // its place in waiting, -1 where it does not wait
	closed bool
	reason string // why it was cut; empty while it is not
}

// add counts n bytes that the recording holds from now on, and never blocks. It returns false, counting nothing, where the recording is
// cut: then, or before.
func (s *share) add(n int) bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.reason != "" {
		return false
	}
	grown := max(s.held+int64(n)-ownMemory, 0)
	used := b.used + grown - s.shared()
	switch {
	case grown == 0:
	case b.slow == Cut && grown > 2*(sharedMemory-used):
		s.cut(cutSlow)
		return false
	case used <= sharedMemory:
	case s.beyond >= overshoot:
		s.cut(cutMemory)
		return false
	default:
		s.beyond += int64(n)
	}
	s.held += int64(n)
	if b.used == 0 && used > 0 {
		b.since, b.calm = time.Now(), b.calmMost > 0 // the disk had nothing to do
	}
	b.used = used
	if s.at >= 0 {
		heap.Fix(&b.waiting, s.at)
	}
	return true
}

// release counts n bytes as no longer held, which lets recordings that wait go on.
func (s *share) release(n int) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	before := s.shared()
	s.held -= int64(n)
	b.used -= before - s.shared()
	if s.at >= 0 {
		heap.Fix(&b.waiting, s.at)
	}
	b.resume()
}

// full returns nil while the recording may take more. Else it is a channel that is closed when it may, or when it was cut.
func (s *share) full() <-chan struct{} {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.room != nil:
		return s.room
	case s.reason != "" || b.slow == Cut:
		return nil
	case !s.over():
		s.beyond = 0
		return nil
	case b.stalled:
		s.cut(cutStalled)
		return nil
	}
	s.room = make(chan struct{})
	heap.Push(&b.waiting, s)
	if b.watch == nil {
		b.arm(max(b.calmTime()-time.Since(b.since), 0))
	}
	return s.room
}

// cutReason returns why the recording was cut, and empty while it is not.
func (s *share) cutReason() string {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.reason
}

// close ends the share of a recording that is over: nobody waits for it any more, and what it holds is still to be released.
func (s *share) close() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.resume()
	if !s.closed {
		s.closed = true
		s.budget.shares--
	}
}

// tick looks after those that wait while the disk makes no progress: they may use more memory at first, and are cut in the end.
func (b *budget) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return // the timer was stopped just when it ran out
	}
	idle := time.Since(b.since)
	if idle >= stallLimit {
		b.stalled = true
		for len(b.waiting) > 0 {
			b.waiting[0].cut(cutStalled)
		}
		return
	}
	late := time.Since(b.due) > calmLate && idle < b.calmMost
	b.calm = b.calm && (idle < b.calmTime() || late)
	if b.stalls != nil && !b.calm {
		close(b.stalls)
		b.stalls = nil
	}
	b.resume()
	if b.watch != nil {
		next := stallLimit - idle
		if b.calm {
			next = max(b.calmTime()-idle, calmLeast)
		}
		b.arm(next)
	}
}

// resume lets those go on that need wait no longer.
func (b *budget) resume() {
	for len(b.waiting) > 0 && !b.waiting[0].over() {
		b.waiting[0].resume()
	}
}

// fair is how much of the shared memory one recording may hold now: twice what is free.
func (b *budget) fair() int64 {
	if b.calm {
		return max(min(2*(calmMemory-b.used), calmShare), 0)
	}
	return max(2*(b.limit()-b.used), 0)
}

// limit is how much of the shared memory is used while the disk stalls: less what many recordings hold of their own, and what the connections take that they
// come with.
func (b *budget) limit() int64 {
	return max(sharedMemory-(b.shares-1)*(ownMemory+connectionMemory), calmMemory)
}

// exhausted reports whether what comes on its own, from senders that cannot be held back at once, has used up its part, too.
func (b *budget) exhausted() bool { return b.used >= min(b.limit()+arriving, sharedMemory) }

// shared returns the bytes it holds of the shared memory.
func (s *share) shared() int64 { return max(s.held-ownMemory, 0) }

// over reports whether it holds more than the free memory allows.
func (s *share) over() bool { return s.shared() > s.budget.fair() }

func (s *share) cut(why string) {
	s.reason = why
	s.resume()
}

// resume ends its waiting.
func (s *share) resume() {
	if s.room == nil {
		return
	}
	close(s.room)
	s.room = nil
	heap.Remove(&s.budget.waiting, s.at)
	if b := s.budget; len(b.waiting) == 0 {
		b.watch.Stop()
		b.watch = nil
	}
}

// waiting is a heap of the shares that wait, the one that holds the least first: it is the first that may go on.
type waiting []*share

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].held < w[j].held }

func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].at, w[j].at = i, j
}

func (w *waiting) Push(x any) {
	s := x.(*share)
	s.at = len(*w)
	*w = append(*w, s)
}

func (w *waiting) Pop() any {
	last := len(*w) - 1
	s := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	s.at = -1
	return s
}
