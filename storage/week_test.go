package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// namedFiles returns the files that the index names: of the log and of chunks.
func namedFiles(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	if err := s.index.view(func(tx *bbolt.Tx) error {
		known := make(map[uint64]uint32)
		readGenerations(tx, known)
		for n, g := range known {
			all[generationName(n, g)] = true
		}
		return tx.Bucket(bucketChunks).ForEach(func(k, _ []byte) error {
			all[chunkName(k)] = true
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// onDisk returns the files of the log, of chunks and of incoming ones, with their sizes.
func onDisk(t *testing.T, s *Store) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := s.files.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				walk(path.Join(dir, e.Name()))
			} else if info, err := e.Info(); err == nil {
				all[path.Join(dir, e.Name())] = uint64(info.Size())
			}
		}
	}
	for _, dir := range []string{"log", "chunks", "incoming"} {
		walk(dir)
	}
	return all
}

// TestWeekOfUse captures for a week of a clock that runs ahead, with a limit, deletions, pins, ends by SIGKILL and restarts. At its end the disk's use is
// at the limit, every file is named, every session that is left is whole, and the index has no room to spare.
func TestWeekOfUse(t *testing.T) {
	const (
		limit   = 40 << 20
		segment = 1 << 20
		hour    = 1200 << 10 // bytes that an hour brings
	)
	random := rand.New(rand.NewPCG(7, 7))
	var clock atomic.Int64
	clock.Store(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC).UnixNano())
	dir := t.TempDir()
	open := func() *Store {
		s, err := OpenStore(Config{Dir: dir, Now: func() time.Time { return time.Unix(0, clock.Load()) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.log.mu.Lock()
		s.log.limit = segment
		s.log.mu.Unlock()
		s.Retain(Limits{Bytes: limit})
		return s
	}
	bodies := make(map[uint64][2]uint64) // seed and size
	pinned := make(map[uint64]bool)
	s := open()
	hours := 7 * 24
	if testing.Short() {
		hours = 80
	}
	for h := range hours {
		clock.Add(int64(time.Hour))
		for brought := 0; brought < hour; {
			seed, size := random.Uint64(), random.IntN(12_000)
			switch random.IntN(40) {
			case 0:
				size = 300_000 + random.IntN(600_000) // in chunks
			case 1:
				seed, size = uint64(random.IntN(3)), 700_000 // which come again
			case 2, 3, 4:
				seed, size = 99, 2000 // a poll
			}
			now := time.Unix(0, clock.Load())
			r := s.Begin(Session{
				Method: "GET", Scheme: "https", Host: fmt.Sprint("host", random.IntN(50)), Path: fmt.Sprint("/", seed),
				Client: "127.0.0.1:5000", Timing: Timing{Started: now},
			})
			give(r.Body(Response), noise(seed, size))
			r.Body(Response).Complete()
			r.Change(func(s *Session) { s.Timing.Ended = now })
			r.End(Done, "")
			bodies[r.ID()] = [2]uint64{seed, uint64(size)}
			brought += size + 2000
			if random.IntN(300) == 0 {
				if err := s.Annotate(r.ID(), func(s *Session) { s.Pinned = true }); err != nil {
					t.Fatal(err)
				}
				pinned[r.ID()] = true
			}
		}
		waitDurable(t, s)
		switch {
		case h%24 == 23: // the machine is off at night
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			clock.Add(int64(8 * time.Hour))
			s = open()
		case h%30 == 29: // killed
			killed := Killed(t, dir)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			dir = killed
			s = open()
		case h%7 == 3:
			var gone []uint64
			for id := range bodies {
				if random.IntN(10) == 0 && !pinned[id] && len(gone) < 100 {
					gone = append(gone, id)
				}
			}
			if _, err := s.Delete(context.Background(), gone); err != nil {
				t.Fatal(err)
			}
			for _, id := range gone {
				delete(bodies, id)
			}
		}
	}
	use := func() (sum uint64) {
		for _, size := range onDisk(t, s) {
			sum += size
		}
		return sum
	}
	settle := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			waitCleaned(t, s)
			if used, err := s.use(); err == nil && used.sessions() <= limit {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the limit is not kept")
			}
		}
	}
	settle()
	if err := s.CloseCompacting(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = open()
	settle()
	if got := use(); got > limit || got < limit-segment-retainBytes { // one segment, and what one commit deletes
		t.Errorf("%d bytes of the disk are used, the limit is %d", got, limit)
	}
	names := namedFiles(t, s)
	for name := range onDisk(t, s) {
		if !names[name] && !strings.HasSuffix(name, path.Base(segmentName(s.log.number))) {
			t.Errorf("%s: nothing names it", name)
		}
		delete(names, name)
	}
	for name := range names {
		t.Errorf("%s is named, and gone", name)
	}
	left, oldest := 0, uint64(0)
	if err := s.Scan(0, 1<<62, func(r *Row) bool {
		left++
		body, known := bodies[r.ID]
		switch {
		case !known:
			t.Errorf("session %d was deleted", r.ID)
		case r.ResponseBytes != body[1]:
			t.Errorf("session %d: %d bytes, want %d", r.ID, r.ResponseBytes, body[1])
		case left%20 == 0:
			checkBody(t, s, r.ID, Response, noise(body[0], int(body[1])))
		}
		if !r.Pinned && oldest == 0 {
			oldest = r.ID
		}
		delete(pinned, r.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if len(pinned) > 0 {
		t.Errorf("%d pinned sessions are gone", len(pinned))
	}
	for id := range bodies { // the oldest go first
		if id > oldest {
			if _, err := s.Row(id); err != nil {
				t.Errorf("session %d is gone, and session %d is there: %v", id, oldest, err)
			}
		}
	}
	info, err := os.Stat(s.index.path)
	if err != nil {
		t.Fatal(err)
	}
	var live uint64
	if err := s.index.view(func(tx *bbolt.Tx) error {
		live = usedSize(tx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if uint64(info.Size()) > max(2*live, compactAbove) {
		t.Errorf("the index has %d bytes, %d of them live", info.Size(), live)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.dir)
}
