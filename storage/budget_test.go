package storage

import (
	"testing"
	"testing/synctest"
	"time"
)

// newStalling is a budget before a disk that never counts as working.
func newStalling(slow SlowDisk) *budget {
	b := newBudget(slow)
	b.calmMost = 0
	return b
}

// take adds blocks of BufferSize until the share is full, and returns the bytes it holds.
func take(t *testing.T, s *share) (held int64, room <-chan struct{}) {
	t.Helper()
	for range 2 * sharedMemory / BufferSize {
		if !s.add(BufferSize) {
			t.Fatalf("cut: %s", s.cutReason())
		}
		if room = s.full(); room != nil {
			return s.held, room
		}
	}
	t.Fatal("never full")
	return 0, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestOwnMemoryNeedsNoSharedMemory(t *testing.T) {
	b := newStalling(Wait)
	b.used = sharedMemory // others have it all
	s := b.share()
	for range ownMemory / BufferSize {
		if !s.add(BufferSize) {
			t.Fatal("cut within its own memory")
		}
	}
	if s.full() != nil {
		t.Error("full while it holds no more than its own")
	}
	s.add(1)
	if s.full() == nil {
		t.Error("not full with one byte beyond its own, and none free")
	}
}

func TestLoneRecordingTakesTwoThirds(t *testing.T) {
	b := newStalling(Wait)
	s := b.share()
	held, room := take(t, s)
	want := int64(ownMemory + 2*sharedMemory/3)
	if held < want || held > want+BufferSize {
		t.Errorf("full at %d bytes, want the first block beyond %d", held, want)
	}
	s.release(BufferSize)
	if !closed(room) {
		t.Error("still waits after it released what was too much")
	}
	if s.full() != nil {
		t.Error("full again without having added")
	}
}

func TestEveryRecordingFindsSomeMemory(t *testing.T) {
	b := newStalling(Wait)
	last := int64(sharedMemory)
	for i := range 300 {
		held, _ := take(t, b.share())
		if held < ownMemory+1 || held > last {
			t.Fatalf("recording %d is full at %d bytes, the one before at %d", i, held, last)
		}
		last = held
	}
	if got := b.inUse(); got > sharedMemory+300*overshoot {
		t.Errorf("%d bytes in use", got)
	}
}

func TestReleaseWakesTheSmallestFirst(t *testing.T) {
	b := newStalling(Wait)
	large, small := b.share(), b.share()
	_, largeRoom := take(t, large)
	_, smallRoom := take(t, small)
	other := b.share()
	other.held, b.used = sharedMemory, sharedMemory
	if closed(largeRoom) || closed(smallRoom) {
		t.Fatal("woken without a release")
	}
	other.release(int(small.shared())) // now small holds half of twice what is free
	if !closed(smallRoom) || closed(largeRoom) {
		t.Errorf("small goes on: %v, large goes on: %v; want only small", closed(smallRoom), closed(largeRoom))
	}
}

func TestRecordingThatHonoursFullIsNotCut(t *testing.T) {
	b := newStalling(Wait)
	s := b.share()
	for range 100 {
		s.add(BufferSize)
	}
	if s.full() != nil {
		t.Fatal("full")
	}
	b.used = sharedMemory + 1 // others were faster
	for side := range 2 {
		if !s.add(BufferSize) { // each side has a read in hand
			t.Fatalf("side %d: cut: %s", side, s.cutReason())
		}
	}
	if s.full() == nil {
		t.Error("not full")
	}
}

func TestRecordingThatIgnoresFullIsCut(t *testing.T) {
	b := newStalling(Wait)
	s := b.share()
	blocks := 0
	for s.add(BufferSize) {
		s.full()
		if blocks++; blocks > 2*sharedMemory/BufferSize {
			t.Fatal("never cut")
		}
	}
	if got := b.inUse(); got > sharedMemory+overshoot {
		t.Errorf("%d bytes in use, want at most %d", got, sharedMemory+overshoot)
	}
	if s.cutReason() != cutMemory {
		t.Errorf("cut because %q", s.cutReason())
	}
	if s.full() != nil {
		t.Error("a cut recording waits")
	}
	s.release(int(s.held))
	if b.inUse() != 0 || s.add(1) {
		t.Error("a cut recording takes more, or leaves something behind")
	}
}

func TestSlowDiskCutsInsteadOfWaiting(t *testing.T) {
	b := newStalling(Cut)
	s, other := b.share(), b.share()
	for s.add(BufferSize) {
		if s.full() != nil {
			t.Fatal("waits")
		}
	}
	if s.cutReason() != cutSlow {
		t.Errorf("cut because %q", s.cutReason())
	}
	want := int64(ownMemory + 2*sharedMemory/3)
	if s.held > want || s.held < want-BufferSize {
		t.Errorf("cut at %d bytes, want the last block within %d", s.held, want)
	}
	if !other.add(BufferSize) {
		t.Error("another recording is cut too")
	}
}

func TestStalledDiskCutsAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStalling(Wait)
		s := b.share()
		time.Sleep(time.Hour) // an idle disk is not a stalled one
		_, room := take(t, s)

		time.Sleep(stallLimit - time.Second)
		b.progress()
		time.Sleep(stallLimit - time.Second)
		if closed(room) {
			t.Fatal("cut though the disk made progress 9 s ago")
		}
		late := b.share()
		_, lateRoom := take(t, late)
		begun := time.Now()
		<-room
		if took := time.Since(begun); took != time.Second {
			t.Errorf("cut after %v more, want 1s", took)
		}
		<-lateRoom
		if s.cutReason() != cutStalled || late.cutReason() != cutStalled {
			t.Errorf("cut because %q, %q", s.cutReason(), late.cutReason())
		}

		// While the disk is known to stall nobody waits for it; once it goes on, they do again.
		next := b.share()
		for next.add(BufferSize) {
			if next.full() != nil {
				t.Fatal("waits for a disk that is known to stall")
			}
		}
		b.progress()
		again := b.share()
		take(t, again)
		again.close()
	})
}

func TestReleaseIsNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStalling(Wait)
		s := b.share()
		_, room := take(t, s)
		dropped := b.share()
		begun := time.Now()
		for range 20 {
			dropped.add(1)
			time.Sleep(stallLimit / 20)
			dropped.release(1)
		}
		<-room
		if took := time.Since(begun); took != stallLimit {
			t.Errorf("cut after %v, want %v", took, stallLimit)
		}
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStalling(Wait)
		s := b.share()
		_, room := take(t, s)
		s.close()
		if !closed(room) {
			t.Error("still waits")
		}
		time.Sleep(2 * stallLimit)
		if s.cutReason() != "" {
			t.Error("a recording that was over is cut")
		}
		s.release(int(s.held))
		if b.inUse() != 0 {
			t.Errorf("%d bytes in use", b.inUse())
		}
	})
}

// While the disk takes bytes, a queue before it stays short; when it stalls, the queue may grow at once, and nobody is cut.
func TestWorkingDiskNeedsAShortQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Wait)
		time.Sleep(time.Hour) // a disk that had nothing to do has not stalled
		s := b.share()
		held, room := take(t, s)
		want := int64(ownMemory + calmShare)
		if held < want || held > want+BufferSize {
			t.Errorf("full at %d bytes before a disk that works, want the first block beyond %d", held, want)
		}
		checkCalm(t, b, room, calmLeast)
		held, room = take(t, s)
		if want := int64(ownMemory + 2*sharedMemory/3); held < want || held > want+BufferSize {
			t.Errorf("full at %d bytes before a disk that stalls, want the first block beyond %d", held, want)
		}
		b.progress()
		s.release(BufferSize)
		if s.full() == nil || closed(room) {
			t.Error("what a stall let in makes room before it is written")
		}
		s.release(int(held) - BufferSize)
		s.close()
	})
}

// checkCalm checks that the disk, which takes nothing from now on, counts as working for so long, and that who waits goes on then.
func checkCalm(t *testing.T, b *budget, room <-chan struct{}, want time.Duration) {
	t.Helper()
	begun := time.Now()
	time.Sleep(want - time.Millisecond)
	synctest.Wait()
	if closed(room) {
		t.Errorf("more room although the disk worked %v ago", want-time.Millisecond)
	}
	<-room
	if took := time.Since(begun); took != want || b.calm {
		t.Errorf("more room after %v, want %v", took, want)
	}
}

// A disk that pauses often is given longer pauses before they are taken for a stall; a stall is no such pause, and they are forgotten.
func TestPausesOfTheDiskAreNoStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Wait)
		s := b.share()
		_, room := take(t, s)
		work := func(pause, long time.Duration) {
			for begun := time.Now(); time.Since(begun) < long; {
				time.Sleep(pause)
				b.progress()
			}
		}
		work(15*time.Millisecond, time.Second)
		checkCalm(t, b, room, calmFactor*15*time.Millisecond)
		b.progress()

		s.held, b.used = ownMemory+calmShare+1, calmShare+1
		work(100*time.Millisecond, 3*time.Second)
		checkCalm(t, b, s.full(), calmMost)
		time.Sleep(time.Second)
		b.progress() // it was a stall

		work(time.Millisecond, 3*time.Second)
		checkCalm(t, b, s.full(), calmLeast)
		s.close()
	})
}

// A process that is told late of a pause did not have the processor: that says nothing about the disk.
func TestLateTimerIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Wait)
		s := b.share()
		_, room := take(t, s)
		b.mu.Lock()
		b.due = b.due.Add(-2 * calmLate)
		b.mu.Unlock()
		checkCalm(t, b, room, 2*calmLeast)
		s.close()
	})
}

// Ten recordings find enough of the memory before a disk that works, and none so much that a SIGKILL takes more than 1 MiB of it.
func TestMemoryBeforeAWorkingDiskIsWhatMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Wait)
		for i := range 10 {
			s := b.share()
			for s.full() == nil {
				s.add(LargeBufferSize)
			}
			if s.held > brim || s.held < brim/2 || s.held+markInterval > 1<<20 {
				t.Errorf("recording %d holds %d bytes, %d are not marked", i, s.held, markInterval)
			}
			s.close()
		}
		if most := int64(calmMemory + 10*LargeBufferSize); b.inUse() > most { // each has one in hand
			t.Errorf("%d bytes in use, want at most %d", b.inUse(), most)
		}
	})
}

// A sender that goes on although its recording is full is waited for while the disk works, and not once it stalls.
func TestBrimWaitsForAWorkingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Wait)
		r := &Recording{share: b.share()}
		w := &BodyWriter{rec: r}
		for r.share.held <= brim {
			begun := time.Now()
			if w.Brim(t.Context()); time.Since(begun) > 0 {
				t.Fatalf("waits with %d bytes", r.share.held)
			}
			r.share.add(BufferSize)
		}
		over := make(chan time.Time)
		wait := func() {
			w.Brim(t.Context())
			over <- time.Now()
		}
		go wait()
		time.Sleep(calmLeast / 2)
		b.progress()
		r.share.release(BufferSize)
		synctest.Wait()
		select {
		case <-over:
			t.Fatal("goes on while it is still full")
		default:
		}
		r.share.release(int(r.share.shared()))
		<-over

		r.share.add(2 * brim)
		go wait()
		begun := time.Now()
		if took := (<-over).Sub(begun); took > calmMost {
			t.Errorf("waits %v for a disk that stalls", took)
		}

		r.share.add(sharedMemory) // used up: what came now would be cut
		go wait()
		time.Sleep(stallLimit / 2)
		synctest.Wait()
		select {
		case <-over:
			t.Fatal("goes on while there is no memory")
		default:
		}
		r.share.release(sharedMemory)
		<-over
		r.share.close()
	})
}

// A recording that is not kept gives its place among those who share the memory back like any other.
func TestEveryEndedRecordingClosesItsShare(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.waiting.Add(waitingLimit) // what begins now is not kept
	s.Begin(Session{}).End(Done, "")
	s.waiting.Add(-waitingLimit)
	s.Begin(Session{}).End(Done, "")
	waitDurable(t, s)
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.budget.shares != 0 {
		t.Errorf("%d shares are open, and no recording is", s.budget.shares)
	}
}
