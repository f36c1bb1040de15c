package storage

import (
	"context"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// fakeClock is a clock that tests move.
type fakeClock struct{ since atomic.Int64 }

func (c *fakeClock) now() time.Time {
	return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.since.Load()))
}
func (c *fakeClock) advance(by time.Duration) { c.since.Add(int64(by)) }

func openClocked(t *testing.T, dir string, clock *fakeClock) *Store {
	t.Helper()
	s, err := OpenStore(Config{Dir: dir, Now: clock.now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// soon waits until the retainer has made something true.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// ids returns the sessions there are.
func ids(t *testing.T, s *Store) (all []uint64) {
	t.Helper()
	if err := s.Scan(0, 1<<63, func(row *Row) bool { all = append(all, row.ID); return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

func used(t *testing.T, s *Store) uint64 {
	t.Helper()
	use, err := s.use()
	if err != nil {
		t.Fatal(err)
	}
	return use.sessions()
}

// putMany records sessions, and waits until they are durable.
func putMany(t *testing.T, s *Store, seed, count uint64, size int) (ids []uint64) {
	t.Helper()
	for i := range count {
		ids = append(ids, put(s, noise(seed<<32+i, size)).ID())
	}
	waitDurable(t, s)
	return ids
}

func pin(t *testing.T, s *Store, pinned bool, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		if err := s.Annotate(id, func(session *Session) { session.Pinned = pinned }); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever comes, the use goes back below the limit, the oldest go first, and no more goes than the segments that have to.
func TestOldestSessionsGoWhereBytesAreLimited(t *testing.T) {
	const limit = 60 << 20
	dir := t.TempDir()
	s := openTest(t, dir)
	s.Retain(Limits{Bytes: limit})
	batch := uint64(0)
	for ; batch < 60; batch++ {
		putMany(t, s, batch, 50, 64_000) // 3.2 MB
		soon(t, "the use is below the limit", func() bool { return used(t, s) <= limit })
		if batch < 18 && len(ids(t, s)) != int(50*(batch+1)) {
			t.Fatalf("sessions went below the limit: %d are left after %d batches", len(ids(t, s)), batch+1)
		}
	}
	left := ids(t, s)
	if last := 50 * batch; left[len(left)-1] != last || !slices.IsSorted(left) || uint64(len(left)) != last-left[0]+1 {
		t.Errorf("not the newest are left: %d sessions from %d to %d of %d", len(left), left[0], left[len(left)-1], last)
	}
	if kept := len(left) * 64_000; kept < limit-3*segmentSize {
		t.Errorf("%d bytes of bodies are left where %d may be", kept, limit)
	}
	for _, id := range []uint64{left[0], left[len(left)/2]} {
		checkBody(t, s, id, Response, noise(((id-1)/50)<<32+(id-1)%50, 64_000))
	}
	soon(t, "it is told what goes next", func() bool { return s.Status().Retention.Next == left[0] })
	if r := s.Status().Retention; r.Stuck || r.Bytes != limit || r.Used > limit {
		t.Errorf("got %+v", r)
	}
	s = rebuild(t, s)
	if got := ids(t, s); !slices.Equal(got, left) {
		t.Errorf("after rebuilding %d sessions are there, %d were", len(got), len(left))
	}
}

// What was just captured can be looked at, also where it alone is beyond the limit, until the next is there.
func TestNewestStaysWhateverItsSize(t *testing.T) {
	s := openTest(t, t.TempDir())
	putMany(t, s, 1, 3, 1000)
	s.Retain(Limits{Bytes: 10 << 20})
	large := put(s, noise(9, 30<<20))
	waitDurable(t, s)
	// Nothing may go for a moment before, too: while the large one comes it is open, and what is small the newest.
	soon(t, "only the newest is left, and may not go", func() bool {
		return s.Status().Retention.Stuck && slices.Equal(ids(t, s), []uint64{large.ID()})
	})
	checkBody(t, s, large.ID(), Response, noise(9, 30<<20))
	next := put(s, noise(10, 1000))
	waitDurable(t, s)
	soon(t, "the large one goes", func() bool { return slices.Equal(ids(t, s), []uint64{next.ID()}) })
}

// A file that is captured again is on the disk twice until the commit that finds its chunks there already: no session goes for that.
func TestCopiesOnTheirWayAreNotBeyondALimit(t *testing.T) {
	const size, limit = 30 << 20, 40 << 20
	s := openTest(t, t.TempDir())
	s.Retain(Limits{Bytes: limit})
	put(s, noise(1, size))
	waitDurable(t, s)
	s.committing.Lock()
	again := put(s, noise(1, size))
	soon(t, "the copy is on the disk", func() bool { return s.incomings.bytes.Load() == size })
	if over, err := s.excess(); err != nil || over.bytes {
		t.Errorf("a copy that waits for its commit is beyond the limit: %+v, %v", over, err)
	}
	s.committing.Unlock()
	waitDurable(t, s)
	soon(t, "the copy is gone", func() bool { return used(t, s) < limit })
	if got := ids(t, s); len(got) != 2 || s.Status().Retention.Used > limit {
		t.Errorf("%v are left, %d bytes are used", got, s.Status().Retention.Used)
	}
	checkBody(t, s, again.ID(), Response, noise(1, size))
}

// What is pinned or shared stays, and the newest with it, and goes once it is neither.
func TestPinnedAndSharedSessionsStay(t *testing.T) {
	const limit = 40 << 20
	s := openTest(t, t.TempDir())
	var held atomic.Pointer[map[uint64]bool]
	s.HoldBack(func() map[uint64]bool { return *held.Load() })
	first := putMany(t, s, 1, 240, 250_000) // 60 MB
	pinned, shared := first[10:200], first[:10]
	pin(t, s, true, pinned...)
	all := make(map[uint64]bool)
	for _, id := range shared {
		all[id] = true
	}
	held.Store(&all)
	s.Retain(Limits{Bytes: limit})
	soon(t, "nothing more can go", func() bool { return s.Status().Retention.Stuck })
	newest := putMany(t, s, 2, 100, 64_000) // 6.4 MB: they stay though the limit is exceeded
	soon(t, "nothing more can go", func() bool { return s.Status().Retention.Stuck })
	left := ids(t, s)
	for _, id := range slices.Concat(pinned, shared, newest) {
		if !slices.Contains(left, id) {
			t.Fatalf("session %d is gone", id)
		}
	}
	s.retention.mu.Lock()
	cursor, passed := s.retention.cursor, len(s.retention.passed)
	s.retention.mu.Unlock()
	if cursor <= pinned[len(pinned)-1] || passed > 20 {
		t.Errorf("each look is at the pinned sessions anew: it begins at %d, and at %d before", cursor, passed)
	}

	held.Store(new(map[uint64]bool))
	soon(t, "the shared ones go first", func() bool { return len(ids(t, s)) > 0 && ids(t, s)[0] == pinned[0] })
	pin(t, s, false, pinned...)
	soon(t, "the use is below the limit", func() bool { return used(t, s) <= limit })
	left = ids(t, s)
	if slices.Contains(left, pinned[0]) || left[len(left)-1] != newest[len(newest)-1] {
		t.Errorf("from %d to %d are left", left[0], left[len(left)-1])
	}
	soon(t, "it is not stuck any more", func() bool { return !s.Status().Retention.Stuck })
}

// A session goes when it ended long enough ago, whenever it began; an open one does not.
func TestOldSessionsGo(t *testing.T) {
	var clock fakeClock
	s := openClocked(t, t.TempDir(), &clock)
	start := func() *Recording {
		r := s.Begin(Session{Method: "GET", Host: "example.com", Timing: Timing{Started: clock.now()}})
		r.Body(Response).Write([]byte("kept"))
		return r
	}
	open, long, short := start(), start(), start()
	short.Body(Response).Complete()
	short.End(Done, "")
	s.Retain(Limits{Age: 7 * 24 * time.Hour})
	clock.advance(5 * 24 * time.Hour)
	long.End(Done, "")
	late := start()
	late.End(Done, "")
	waitDurable(t, s)
	clock.advance(3 * 24 * time.Hour)
	soon(t, "the one that ended eight days ago is gone", func() bool {
		return slices.Equal(ids(t, s), []uint64{open.ID(), long.ID(), late.ID()})
	})
	clock.advance(5 * 24 * time.Hour)
	soon(t, "so are the others", func() bool { return slices.Equal(ids(t, s), []uint64{open.ID()}) })
	open.End(Done, "")
	waitDurable(t, s)
	clock.advance(time.Hour)
	putMany(t, s, 1, 1, 4)
	if all := ids(t, s); len(all) != 2 {
		t.Errorf("sessions %v are left", all)
	}
	clock.advance(8 * 24 * time.Hour)
	soon(t, "all are gone", func() bool { return len(ids(t, s)) == 0 })
}

func TestNumberOfSessionsIsLimited(t *testing.T) {
	s := openTest(t, t.TempDir())
	for range 1500 {
		s.Begin(Session{Method: "GET", Host: "example.com"}).End(Done, "")
	}
	waitDurable(t, s)
	pin(t, s, true, 1, 3)
	s.Retain(Limits{Sessions: 1000})
	soon(t, "a thousand are left", func() bool { return s.Status().Sessions == 1000 })
	all := ids(t, s)
	if all[0] != 1 || all[1] != 3 || all[2] != 503 || all[999] != 1500 {
		t.Errorf("left are %v … %v", all[:4], all[996:])
	}
	s.Retain(Limits{Sessions: 1}) // two are pinned, and the newest stays
	soon(t, "three are left", func() bool { return slices.Equal(ids(t, s), []uint64{1, 3, 1500}) })
	soon(t, "nothing more can go", func() bool { return s.Status().Retention.Stuck })
	s.Retain(Limits{})
	soon(t, "there is no limit", func() bool { r := s.Status().Retention; return !r.Stuck && r.Next == 0 })
}

// What is counted is what lies in the directories, at each moment that no commit is under way, and after a restart.
func TestUseIsWhatLiesOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	check := func(when string) {
		t.Helper()
		if err := s.commit(); err != nil {
			t.Fatal(err)
		}
		s.committing.Lock()
		defer s.committing.Unlock()
		use, err := s.use()
		if err != nil {
			t.Fatal(err)
		}
		for of, got := range map[string]uint64{"log": use.log, "chunks": use.chunks, "incoming": use.incoming} {
			want := uint64(0)
			if err := filepath.WalkDir(filepath.Join(dir, of), func(_ string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					info, err := e.Info()
					want += uint64(info.Size())
					return err
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s: %s is counted as %d bytes, and has %d", when, of, got, want)
			}
		}
	}
	check("empty")
	open := s.Begin(Session{Host: "open"})
	give(open.Body(Response), noise(1, 10<<20))
	soon(t, "it is written", func() bool { return s.incomings.bytes.Load() >= 1<<20 })
	soon(t, "nothing waits", func() bool { open.mu.Lock(); defer open.mu.Unlock(); return open.bodies[Response].disk == 10<<20 })
	check("while a body comes")
	open.End(Done, "")
	small := put(s, noise(2, 10_000))
	large, again := put(s, noise(3, 9<<20)), put(s, noise(3, 9<<20))
	waitDurable(t, s)
	check("with bodies")
	if _, err := s.Delete(context.Background(), []uint64{open.ID(), small.ID(), again.ID()}); err != nil {
		t.Fatal(err)
	}
	check("after deleting")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	check("after a restart")
	s = rebuild(t, s)
	check("after rebuilding")
	checkBody(t, s, large.ID(), Response, noise(3, 9<<20))
}
