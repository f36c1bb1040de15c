package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// history is a random one of a store, and what it is to hold.
type history struct {
	random *rand.Rand
	s      *Store
	open   []*Recording
	bodies map[uint64][]byte // of what was not deleted
	gone   []uint64
}

func (h *history) start(t *testing.T, dir string) {
	t.Helper()
	h.s = openTest(t, dir)
	smallSegments(h.s)
}

// anyID is one of the sessions that there are; 0 where there are none.
func (h *history) anyID() uint64 {
	if len(h.bodies) == 0 {
		return 0
	}
	ids := make([]uint64, 0, len(h.bodies))
	for id := range h.bodies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[h.random.IntN(len(ids))]
}

func (h *history) forget(ids ...uint64) {
	for _, id := range ids {
		if _, ok := h.bodies[id]; ok {
			delete(h.bodies, id)
			h.gone = append(h.gone, id)
		}
	}
}

// step does one thing that a capture, or somebody before the dashboard, does.
func (h *history) step(t *testing.T) {
	t.Helper()
	random, s := h.random, h.s
	switch k := random.IntN(1000); {
	case k < 350:
		r := s.Begin(Session{
			Method: "GET", Scheme: "https", Host: fmt.Sprint("host", random.IntN(9)), Path: fmt.Sprint("/", random.Uint64()),
			Client: fmt.Sprint("127.0.0.1:", 1024+random.IntN(60000)), ContentType: fmt.Sprint("type/", random.IntN(300)),
			Sides: [2]Message{{Head: noise(random.Uint64(), random.IntN(1500))}},
		})
		if random.IntN(2) == 0 {
			chain := s.Chain([][]byte{noise(uint64(random.IntN(4)), 2500)})
			r.Change(func(s *Session) { s.TLS = &TLS{Chain: chain} })
		}
		if random.IntN(20) == 0 {
			r.ListMessages(Messages{Kind: WebSocket})
			listAll(r, 0, uint64(random.IntN(300)))
		}
		h.bodies[r.ID()] = nil
		h.open = append(h.open, r)
	case k < 650 && len(h.open) > 0: // a piece
		r := h.open[random.IntN(len(h.open))]
		size := random.IntN(9000)
		if random.IntN(200) == 0 {
			size = random.IntN(5 << 20)
		}
		p := noise(uint64(random.IntN(15)), size)
		give(r.Body(Response), p)
		if body, ok := h.bodies[r.ID()]; ok {
			h.bodies[r.ID()] = slices.Concat(body, p)
		}
	case k < 850 && len(h.open) > 0:
		i := random.IntN(len(h.open))
		h.open[i].Body(Response).Complete()
		h.open[i].End(State(1+random.IntN(5)), "for a reason")
		h.open = slices.Delete(h.open, i, i+1)
	case k < 900 && len(h.bodies) > 0:
		if err := s.Annotate(h.anyID(), func(s *Session) {
			s.Note, s.Pinned, s.Color = fmt.Sprint("note ", random.Uint32()), random.IntN(2) == 0, "red"
		}); err != nil {
			t.Fatal(err)
		}
	case k < 945 && len(h.bodies) > 0: // also open ones
		var ids []uint64
		for range 1 + random.IntN(3)*random.IntN(3) {
			ids = append(ids, h.anyID())
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if _, err := s.Delete(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
		h.forget(ids...)
	case k < 948 && len(h.bodies) > 0:
		cutoff := h.anyID()
		if _, err := s.DeleteThrough(t.Context(), cutoff); err != nil {
			t.Fatal(err)
		}
		for id := range h.bodies {
			if id <= cutoff {
				h.forget(id)
			}
		}
	default:
		s.commit()
	}
}

// check compares a store to what the history says.
func (h *history) check(t *testing.T, s *Store) {
	t.Helper()
	for id, body := range h.bodies {
		if got := readBody(t, s, id, Response); !bytes.Equal(got, body) {
			t.Errorf("session %d: its body has %d other bytes, want %d", id, len(got), len(body))
		}
	}
	for _, id := range h.gone {
		if _, err := s.Row(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("session %d is back: %v", id, err)
		}
	}
	if n := s.Status().Sessions; n != uint64(len(h.bodies)) {
		t.Errorf("%d sessions, want %d", n, len(h.bodies))
	}
}

// checkRebuilt ends what is open and compares the index to one that is made of the log alone.
func (h *history) checkRebuilt(t *testing.T) {
	t.Helper()
	for _, r := range h.open {
		r.Body(Response).Complete()
		r.End(Done, "")
	}
	h.open = nil
	waitDurable(t, h.s)
	waitDigests(t, h.s)
	for h.s.cleanPending() || len(h.s.index.sparse()) > 0 { // as long as the test may take: it rests between segments
		time.Sleep(20 * time.Millisecond)
	}
	want := takePicture(t, h.s)
	h.check(t, h.s)
	dir := h.s.dir
	if err := h.s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, told := range verifyAll(t, dir) {
		t.Error("verify:", told)
	}
	checkFiles(t, dir)

	copied := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(copied, indexName)); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(Config{Dir: copied, still: true})
	if err != nil {
		t.Fatal(err)
	}
	h.check(t, s)
	got := takePicture(t, s)
	normalize(&got, &want)
	dropDead(&got)
	dropDead(&want)
	comparePictures(t, got, want)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, told := range verifyAll(t, copied) {
		t.Errorf("verify of the store with the new index: %s", told)
	}
	os.RemoveAll(copied)
	h.start(t, dir)
}

// dropDead leaves out segments in which nothing is named but deletions: which of those are kept may differ, and a dead segment may wait for the next commit.
func dropDead(p *picture) {
	segments, slots := p.index[string(bucketSegments)], p.index[string(bucketSlots)]
	for k, v := range segments {
		var row segmentRow
		if row.decode([]byte(v)); row.slots == 0 {
			delete(segments, k)
		}
	}
	for k := range slots {
		if _, ok := segments[k[:8]]; !ok {
			delete(slots, k)
		}
	}
}

// TestRandomHistories: whatever was recorded, annotated and deleted, over segments that are rolled, cleaned and removed, and over restarts, an index that is made of the
// log alone is the one that was lost, and nothing that was deleted comes back.
func TestRandomHistories(t *testing.T) {
	seeds, checks, steps := 1, 4, 600
	if testing.Short() {
		seeds, checks, steps = 1, 2, 200
	}
	base := uint64(time.Now().UnixNano())
	for n := range uint64(seeds) {
		seed := base + n
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := &history{random: rand.New(rand.NewPCG(seed, 5)), bodies: make(map[uint64][]byte)}
			h.start(t, t.TempDir())
			for range checks {
				for range steps {
					h.step(t)
				}
				h.checkRebuilt(t)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// TestRewrittenSegmentIsNotSparse: not even one in which a single small record is live.
func TestRewrittenSegmentIsNotSparse(t *testing.T) {
	s := openTest(t, t.TempDir())
	smallSegments(s)
	ids := fillLog(t, s, 60)
	if _, err := s.Delete(t.Context(), ids[:len(ids)-1]); err != nil {
		t.Fatal(err)
	}
	waitCleaned(t, s)
	row := segmentRow{sealed: true, slots: 1, live: 10, size: 10 + frameSize + frameSize + 60}
	if row.sparse() || len(s.index.sparse()) > 0 {
		t.Errorf("%t, %v are still to be rewritten", row.sparse(), s.index.sparse())
	}
}
