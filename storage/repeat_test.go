package storage

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// TestPollAcrossRetention: a small body that is polled 10,000 times, while others come and a limit has the oldest sessions go in 100 steps, is stored once.
func TestPollAcrossRetention(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	s.Retain(Limits{Sessions: 300})
	poll := noise(1<<40, 900)
	where := make(map[slotID]int)
	put(s, poll) // two that are looked up at once would not find each other
	waitDurable(t, s)
	steps := uint64(100)
	if testing.Short() {
		steps = 10
	}
	for step := range steps {
		var polls []uint64
		for i := range uint64(100) {
			r := s.Begin(Session{Method: "GET", Path: "/poll"})
			give(r.Body(Response), poll)
			r.Body(Response).Complete()
			r.End(Done, "")
			polls = append(polls, r.ID())
			if i%10 == 0 {
				put(s, noise(step<<20+i, 2000))
			}
		}
		waitDurable(t, s)
		for _, id := range polls {
			session, err := s.Session(id)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range session.Sides[Response].Body.Extents {
				where[slotID{e.Segment, e.Slot}]++
			}
		}
		for deadline := time.Now().Add(time.Minute); s.index.snapshot().Rows > 300; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d sessions are kept", s.index.snapshot().Rows)
			}
		}
	}
	if len(where) != 1 {
		t.Errorf("the body is stored at %d places: %v", len(where), where)
	}
	waitCleaned(t, s)
	if first, last := segmentRange(t, s); last-first < steps/10 || segmentRows(t, s)[first].generation == 0 {
		t.Errorf("segments %d to %d, the first %+v: the polled body's own was to be rewritten", first, last, segmentRows(t, s)[first])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}

// TestSlowPollIsStoredOnce: a body that comes in parts, which are written as they come, is stored once all the same, whatever the parts; but not one of more parts
// than are remembered.
func TestSlowPollIsStoredOnce(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	poll := noise(1, 9000)
	record := func(parts int, ended bool) (where string) {
		t.Helper()
		r := s.Begin(Session{Method: "GET"})
		rest := poll
		for i := range parts {
			n := min(len(rest), 1+(i*2971+parts*777)%3000)
			if i == parts-1 {
				n = len(rest)
			}
			give(r.Body(Response), rest[:n])
			rest = rest[n:]
			if i < parts-1 || ended {
				s.flushNoted()
				for written := uint64(0); written < uint64(len(poll)-len(rest)); time.Sleep(time.Millisecond) { // by a worker
					r.mu.Lock()
					written = r.bodies[Response].disk
					r.mu.Unlock()
				}
			}
		}
		r.Body(Response).Complete()
		if ended { // the last part was written before the body was known to be whole
			s.work(r)
		}
		r.End(Done, "")
		waitDurable(t, s)
		checkBody(t, s, r.ID(), Response, poll)
		session, err := s.Session(r.ID())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range session.Sides[Response].Body.Extents {
			where += fmt.Sprintf("%d/%d ", e.Segment, e.Slot)
		}
		return where
	}
	first := record(3, false)
	if strings.Count(first, "/") != 3 {
		t.Fatalf("it lies at %s, want 3 places", first)
	}
	for i, parts := range []int{3, 1, 2, 5, recentPieces, 4} {
		if got := record(parts, i%2 == 1); got != first {
			t.Errorf("in %d parts it lies at %s, before at %s", parts, got, first)
		}
	}
	if got := record(recentPieces+1, true); got == first {
		t.Errorf("in %d parts it is looked up", recentPieces+1)
	}
	if len(s.recent.pins) != 0 {
		t.Errorf("pins are left: %v", s.recent.pins)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir)
	s = rebuild(t, openTest(t, dir))
	for id := uint64(1); id <= 8; id++ {
		checkBody(t, s, id, Response, poll)
	}
}

// TestSameFileTenTimes: a file of 190 MB that is captured ten times takes the disk once.
func TestSameFileTenTimes(t *testing.T) {
	size := int64(190_000_000)
	if testing.Short() {
		size = 19_000_000
	}
	s := openTest(t, t.TempDir())
	for range 10 {
		r := s.Begin(Session{Method: "GET"})
		buf := NewLargeBuffer()
		for src, left := newNoiseReader(5), size; left > 0; {
			n, err := io.ReadFull(src, buf.B[:min(int64(len(buf.B)), left)])
			if err != nil {
				t.Fatal(err)
			}
			give(r.Body(Response), buf.B[:n])
			left -= int64(n)
		}
		buf.Free()
		r.Body(Response).Complete()
		r.End(Done, "")
		waitDurable(t, s)
	}
	var used uint64
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // copies that were found go
		used = 0
		for _, n := range onDisk(t, s) {
			used += n
		}
		if used < uint64(size)*21/20 || time.Now().After(deadline) {
			break
		}
	}
	if used < uint64(size) || used > uint64(size)*21/20 {
		t.Errorf("%d bytes of the disk are used for %d", used, size)
	}
}
