package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// stressed is what many goroutines do to one store, and what it is to hold then.
type stressed struct {
	small, large [][]byte

	mu       sync.Mutex
	sessions map[uint64]*stressedSession
}

type stressedSession struct {
	body          []byte // of both sides
	ended         bool
	gone, goneFor bool // its deletion was asked for; it was answered
}

func newStressed(seed uint64) *stressed {
	m := &stressed{sessions: make(map[uint64]*stressedSession)}
	for n := range uint64(12) {
		m.small = append(m.small, noise(seed<<8+n, int(n*n*900)))
	}
	chunks := [][]byte{noise(seed<<8+100, chunkSize), noise(seed<<8+101, chunkSize)}
	for n, tail := range []int{0, 300_000, 1_000_000} {
		m.large = append(m.large, noise(seed<<8+200+uint64(n), 270_000+tail)) // one chunk that is not full
		m.large = append(m.large, slices.Concat(chunks[n%2], noise(seed<<8+300, tail)))
	}
	m.large = append(m.large, slices.Concat(chunks[0], chunks[1]))
	return m
}

// run has the store record, annotate and delete for a number of steps, on several goroutines. It returns what is open at the end.
func (m *stressed) run(t *testing.T, s *Store, seed uint64, steps int) (open []*Recording) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for n := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, n))
			var mine []*Recording
			for range steps {
				switch k := random.IntN(100); {
				case k < 50:
					mine = append(mine, m.begin(s, random))
				case k < 80 && len(mine) > 0:
					i := random.IntN(len(mine))
					m.end(mine[i])
					mine = slices.Delete(mine, i, i+1)
				case k < 86:
					m.annotate(t, s, random)
				case k < 96:
					m.remove(t, s, random, 1+random.IntN(4)*random.IntN(4))
				case k == 96 && random.IntN(4) == 0:
					m.removeThrough(t, s, random)
				default:
					s.commit()
				}
			}
			mu.Lock()
			open = append(open, mine...)
			mu.Unlock()
		})
	}
	all.Wait()
	return open
}

func (m *stressed) begin(s *Store, random *rand.Rand) *Recording {
	pool := m.small
	if random.IntN(25) == 0 {
		pool = m.large
	}
	body := pool[random.IntN(len(pool))]
	m.mu.Lock() // so that a deletion of all sessions up to an id knows of each
	r := s.Begin(Session{Method: "GET", Host: "example.com", Path: "/"})
	m.sessions[r.ID()] = &stressedSession{body: body}
	m.mu.Unlock()
	if random.IntN(3) == 0 {
		chain := s.Chain([][]byte{noise(uint64(random.IntN(3)), 2000)})
		r.Change(func(s *Session) { s.TLS = &TLS{Chain: chain} })
	}
	for side := range Side(2) {
		give(r.Body(side), body)
		r.Body(side).Complete()
	}
	return r
}

func (m *stressed) end(r *Recording) {
	r.End(Done, "")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[r.ID()].ended = true
}

// some returns sessions that nobody deletes yet.
func (m *stressed) some(random *rand.Rand, n int) (ids []uint64) {
	for id, x := range m.sessions {
		if !x.gone {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(n, len(ids))]
}

func (m *stressed) annotate(t *testing.T, s *Store, random *rand.Rand) {
	m.mu.Lock()
	ids := m.some(random, 1)
	m.mu.Unlock()
	for _, id := range ids {
		if err := s.Annotate(id, func(s *Session) { s.Note, s.Pinned = fmt.Sprint("note ", random.IntN(100)), true }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

func (m *stressed) mark(ids []uint64, fn func(*stressedSession)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		fn(m.sessions[id])
	}
}

func (m *stressed) remove(t *testing.T, s *Store, random *rand.Rand, n int) {
	m.mu.Lock()
	ids := m.some(random, n)
	for _, id := range ids {
		m.sessions[id].gone = true
	}
	m.mu.Unlock()
	if _, err := s.Delete(context.Background(), ids); err != nil {
		t.Error(err)
	}
	m.mark(ids, func(x *stressedSession) { x.goneFor = true })
}

func (m *stressed) removeThrough(t *testing.T, s *Store, random *rand.Rand) {
	m.mu.Lock()
	some := m.some(random, 1)
	if len(some) == 0 {
		m.mu.Unlock()
		return
	}
	cutoff := some[0]
	var ids []uint64
	for id, x := range m.sessions {
		if id <= cutoff {
			x.gone = true
			ids = append(ids, id)
		}
	}
	m.mu.Unlock()
	if _, err := s.DeleteThrough(context.Background(), cutoff); err != nil {
		t.Error(err)
	}
	m.mark(ids, func(x *stressedSession) { x.goneFor = true })
}

// image copies the directory as a kill at this moment would leave it. What was answered before is the least that it holds.
func (m *stressed) image(t *testing.T, s *Store) (dir string, least map[uint64]stressedSession) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	least = make(map[uint64]stressedSession)
	m.mu.Lock()
	durable := s.Status().DurableUntil
	for id, x := range m.sessions {
		y := *x
		y.ended = y.ended && id <= durable
		least[id] = y
	}
	m.mu.Unlock()
	s.committing.Lock() // a copy is not made at one moment, so nothing may be committed, written to the log or removed meanwhile
	defer s.committing.Unlock()
	s.log.flushing.Lock()
	defer s.log.flushing.Unlock()
	m.mu.Lock()
	for id, y := range least {
		y.gone = m.sessions[id].gone // it may have been deleted since
		least[id] = y
	}
	m.mu.Unlock()
	for try := 0; ; try++ {
		err := os.CopyFS(dir, os.DirFS(s.dir))
		if err == nil {
			return dir, least
		}
		if !errors.Is(err, fs.ErrNotExist) || try > 20 { // a file that a worker gave up
			t.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}

// check compares a store to what it is to hold at least, and closes it: verify then finds nothing wrong, and there is no file but those that are named.
func (m *stressed) check(t *testing.T, s *Store, least map[uint64]stressedSession) {
	t.Helper()
	for id, x := range least {
		session, err := s.Session(id)
		switch {
		case x.goneFor && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("session %d is back: %v", id, err)
		case err != nil && x.ended && !x.gone:
			t.Errorf("session %d: %v", id, err)
		case err != nil:
			continue
		}
		for side := range Side(2) {
			b := session.Sides[side].Body
			if b.Complete != (b.Size == uint64(len(x.body))) && b.Complete || x.ended && !b.Complete && !x.gone {
				t.Errorf("session %d, %s: %d of %d bytes, complete %t, %s", id, side, b.Size, len(x.body), b.Complete, b.Missing)
			}
			if b.Missing != "" && b.Size == 0 {
				continue
			}
			if got := readBody(t, s, id, side); !bytes.Equal(got, x.body[:len(got)]) {
				t.Errorf("session %d, %s: its %d bytes are others", id, side, len(got))
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, told := range verifyAll(t, s.dir) {
		t.Error("verify:", told)
	}
	checkFiles(t, s.dir)
}

// checkFiles compares the files of a closed store to what its sessions' records name, which it counts by itself.
func checkFiles(t *testing.T, dir string) {
	t.Helper()
	v, err := newVerifier(dir, false, lockDir, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	named := make(map[string]bool)
	slots := make(map[slotID]bool)
	err = readIndex(filepath.Join(dir, indexName), func(ix *index, tx *bbolt.Tx) error {
		if err := tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
			at, _, err := rowPlaceOf(b)
			if err != nil {
				return err
			}
			slots[at.record] = true
			p, err := findSlot(tx, at.record)
			if err != nil {
				return err
			}
			session, err := v.store.readSession(p)
			if err != nil {
				return err
			}
			extents := []Extent{}
			if session.Certificates != nil {
				extents = append(extents, *session.Certificates)
			}
			for _, body := range session.streams() {
				extents = append(extents, body.Extents...)
			}
			for _, e := range extents {
				if len(e.Chunk) > 0 {
					named[chunkName(e.Chunk)] = true
				} else {
					slots[slotID{e.Segment, e.Slot}] = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
		graves := make(map[slotID]bool)
		if err := tx.Bucket(bucketGraves).ForEach(func(k, _ []byte) error {
			graves[slotOfGrave(k)] = true
			return nil
		}); err != nil {
			return err
		}
		return tx.Bucket(bucketSegments).ForEach(func(k, b []byte) error {
			var row segmentRow
			row.decode(b)
			named[generationName(idOf(k), row.generation)] = true
			used := false
			countSlots(tx, idOf(k), func(n uint32, sl slot) {
				id := slotID{idOf(k), n}
				used = used || slots[id] || graves[id]
				if want := slots[id] || graves[id]; want != (sl.refs > 0) {
					t.Errorf("record %d of segment %d is counted %d times, and named %t", n, id.Segment, sl.refs, want)
				}
			})
			if !used && idOf(k) < ix.state.Applied.Segment && row.sealed {
				t.Errorf("nothing names segment %d, and it is there", idOf(k))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"log", "chunks", "incoming"} {
		if err := fs.WalkDir(dirFS{v.files}, sub, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !named[name] {
				t.Errorf("%s: no session names it", name)
			}
			delete(named, name)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range named {
		t.Errorf("%s: it is named, and gone", name)
	}
}

// TestEverythingIsCounted records bodies that are equal in whole or in part, deletes and annotates on several goroutines, over many segments of the log; after each
// stop and each kill, what is on disk is what the sessions name, no less and no more.
func TestEverythingIsCounted(t *testing.T) {
	rounds, steps := 5, 120
	if testing.Short() {
		rounds, steps = 1, 50
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := newStressed(seed)
	dir := t.TempDir()
	for round := range uint64(rounds) {
		s := openTest(t, dir)
		s.log.mu.Lock()
		s.log.limit = 60_000
		s.log.mu.Unlock()
		images := make(chan func(), 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			random := rand.New(rand.NewPCG(seed, 1000+round))
			for range cap(images) {
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				copied, least := m.image(t, s)
				images <- func() {
					m.check(t, openTest(t, copied), least)
					os.RemoveAll(copied)
				}
			}
			close(images)
		}()
		open := m.run(t, s, seed+round, steps)
		<-done
		for check := range images {
			check()
		}
		for _, r := range open {
			m.end(r)
		}
		waitDurable(t, s)
		if round%4 == 3 { // and without Close
			copied, least := m.image(t, s)
			m.check(t, openTest(t, copied), least)
			os.RemoveAll(copied)
		}
		least := make(map[uint64]stressedSession)
		for id, x := range m.sessions {
			least[id] = *x
		}
		m.check(t, s, least)
		if t.Failed() {
			t.Fatalf("round %d, seed %d", round, seed)
		}
	}
}
