package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// picture is everything a store shows of its sessions, and what its index counts.
type picture struct {
	rows     []Row
	sessions []Session
	index    map[string]map[string]string
}

func takePicture(t *testing.T, s *Store) (p picture) {
	t.Helper()
	if err := s.Scan(0, 1<<63, func(r *Row) bool {
		p.rows = append(p.rows, *r)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range p.rows {
		session, err := s.Session(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		p.sessions = append(p.sessions, session)
	}
	p.index = make(map[string]map[string]string)
	if err := s.index.view(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketSlots, bucketSegments, bucketChunks, bucketOpen, bucketGraves} {
			all := make(map[string]string)
			p.index[string(name)] = all
			if err := tx.Bucket(name).ForEach(func(k, v []byte) error {
				all[string(k)] = string(v)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func comparePictures(t *testing.T, got, want picture) {
	t.Helper()
	if len(got.rows) != len(want.rows) {
		t.Fatalf("got %d rows, want %d", len(got.rows), len(want.rows))
	}
	for i := range want.rows {
		if !reflect.DeepEqual(got.rows[i], want.rows[i]) {
			t.Fatalf("row:\n got %+v\nwant %+v", got.rows[i], want.rows[i])
		}
		if !reflect.DeepEqual(got.sessions[i], want.sessions[i]) {
			t.Fatalf("session:\n got %+v\nwant %+v", got.sessions[i], want.sessions[i])
		}
	}
	for name, want := range want.index {
		got := got.index[name]
		for k, v := range want {
			if got[k] != v {
				t.Errorf("bucket %s, key %x: got %x, want %x", name, k, got[k], v)
			}
		}
		for k := range got {
			if _, ok := want[k]; !ok {
				t.Errorf("bucket %s: key %x more than before", name, k)
			}
		}
	}
}

// rebuild closes the store, removes its index, and opens it again.
func rebuild(t *testing.T, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.dir, "index.db")); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(Config{Dir: s.dir, still: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestRebuiltIndexIsTheSame does what a long capture does, in a random order, and compares the index to one made from the log alone.
func TestRebuiltIndexIsTheSame(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			testRebuild(t, seed)
		})
	}
}

func testRebuild(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	s := openTest(t, t.TempDir())
	s.log.mu.Lock()
	s.log.limit = 100_000 // so that segments die
	s.log.mu.Unlock()
	var open []*Recording
	var ids []uint64
	bodies := make(map[uint64][]byte)
	big := 0
	for range 300 {
		switch n := random.IntN(100); {
		case n < 45:
			r := s.Begin(Session{
				Method: "GET", Scheme: "https", Host: fmt.Sprint("host", random.IntN(5)), Path: fmt.Sprint("/", random.Uint64()),
				Client: fmt.Sprint("127.0.0.1:", 1024+random.IntN(60000)), Sides: [2]Message{{Head: noise(random.Uint64(), random.IntN(2000))}},
			})
			if r.ID()%2 == 0 {
				chain := s.Chain([][]byte{noise(r.ID()/6, 3000)})
				r.Change(func(s *Session) { s.TLS = &TLS{Chain: chain} })
			}
			size := random.IntN(30_000)
			if random.IntN(12) == 0 && big < 8 {
				size = random.IntN(6 << 20)
				big++
			}
			body := noise(uint64(random.IntN(20)), size)
			bodies[r.ID()] = body
			give(r.Body(Response), body)
			open = append(open, r)
			ids = append(ids, r.ID())
		case n < 80 && len(open) > 0:
			i := random.IntN(len(open))
			open[i].Body(Response).Complete()
			open[i].End(State(1+random.IntN(5)), "for a reason")
			open = slices.Delete(open, i, i+1)
		case n < 86:
			s.commit()
		case n < 90 && len(ids) > 0:
			id := ids[random.IntN(len(ids))]
			if err := s.Annotate(id, func(s *Session) { s.Note, s.Pinned = fmt.Sprint("note ", n), n%2 == 0 }); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		case n < 96 && len(ids) > 10:
			some := []uint64{ids[random.IntN(len(ids))], ids[random.IntN(len(ids))]}
			if _, err := s.Delete(context.Background(), some); err != nil {
				t.Fatal(err)
			}
			for _, id := range some {
				delete(bodies, id)
			}
		case n == 99 && len(ids) > 20:
			cutoff := ids[random.IntN(len(ids)/3)]
			if _, err := s.DeleteThrough(context.Background(), cutoff); err != nil {
				t.Fatal(err)
			}
			for id := range bodies {
				if id <= cutoff {
					delete(bodies, id)
				}
			}
		}
	}
	for _, r := range open {
		r.Body(Response).Complete()
		r.End(Done, "")
	}
	waitDurable(t, s)
	waitDigests(t, s)
	waitCleaned(t, s)
	want := takePicture(t, s)
	check := func(s *Store) {
		t.Helper()
		if len(want.rows) != len(bodies) {
			t.Fatalf("got %d rows, want %d", len(want.rows), len(bodies))
		}
		for id, body := range bodies {
			if got := readBody(t, s, id, Response); !bytes.Equal(got, body) {
				t.Errorf("body of session %d: got %d bytes, want %d", id, len(got), len(body))
			}
			if id%2 == 0 {
				checkCertificates(t, s, id, noise(id/6, 3000))
			}
		}
	}
	check(s)
	if first, _ := segmentRange(t, s); first == 1 && seed != 0 {
		t.Error("no segment died")
	}
	s = rebuild(t, s)
	got := takePicture(t, s)
	check(s)
	normalize(&got, &want)
	comparePictures(t, got, want)
}

// normalize leaves out in what two indexes of one log may differ: the segments from the last one of want on, as closing adds records,
// and which deletions are kept, as a rebuilt index knows of fewer sessions that they concern.
func normalize(got, want *picture) {
	last := ""
	for k := range want.index[string(bucketSegments)] {
		last = max(last, k)
	}
	graves := make(map[slotID]bool)
	for _, p := range []*picture{got, want} {
		for k := range p.index[string(bucketGraves)] {
			graves[slotID{idOf([]byte(k)), binary.BigEndian.Uint32([]byte(k[8:]))}] = true
		}
		delete(p.index, string(bucketGraves))
	}
	for _, p := range []*picture{got, want} {
		slots, segments := p.index[string(bucketSlots)], p.index[string(bucketSegments)]
		rows := make(map[string]*segmentRow)
		for k, v := range segments {
			rows[k] = new(segmentRow)
			rows[k].decode([]byte(v))
		}
		for k, v := range slots {
			var page slotPage
			page.decode([]byte(v))
			for i := range page.slots {
				s := &page.slots[i]
				if graves[slotID{idOf([]byte(k)), binary.BigEndian.Uint32([]byte(k[8:]))*slotsPerPage + uint32(i)}] && s.refs > 0 {
					s.refs = 0
					rows[k[:8]].slots--
					rows[k[:8]].live -= uint64(s.length)
				}
			}
			slots[k] = string(page.encode())
			if k[:8] >= last {
				delete(slots, k)
			}
		}
		for k := range segments {
			segments[k] = string(rows[k].encode())
			if k >= last {
				delete(segments, k)
			}
		}
	}
}

func segmentRange(t *testing.T, s *Store) (first, last uint64) {
	t.Helper()
	spans, err := segmentSpans(s.files, nil)
	if err != nil || len(spans) == 0 {
		t.Fatalf("got segments %v, %v", spans, err)
	}
	return spans[0].number, spans[len(spans)-1].number
}

// waitDigests waits until the digester has hashed every body.
func waitDigests(t *testing.T, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		missing := 0
		for _, session := range takePicture(t, s).sessions {
			for _, m := range session.Sides {
				if m.Body.Size > 0 && m.Body.SHA256 == nil {
					missing++
				}
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bodies are not hashed", missing)
		}
	}
}

// TestSessionWhoseEndIsNotAppliedIsNotDurable: what the log tells early of a session that has ended makes no durable row.
func TestSessionWhoseEndIsNotAppliedIsNotDurable(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.committing.Lock()
	defer s.committing.Unlock()
	rec := &record{kind: recordBegun, session: &Session{ID: 7, State: Done}, at: place{slotID{1, 0}, frameSize, 10, 0}}
	if _, err := s.index.apply([]*record{rec}, rec.at.end(), s.readSession, nil); err != nil {
		t.Fatal(err)
	}
	row, err := s.Row(7)
	if err != nil || row.State != Open || row.Durable {
		t.Errorf("got state %s, durable %t, %v", row.State, row.Durable, err)
	}
	if _, err := s.index.apply([]*record{{kind: recordDeleted, gone: deletion{IDs: []uint64{7}}, at: place{slotID{1, 1}, 100, 10, 0}}}, position{}, s.readSession, nil); err != nil {
		t.Fatal(err)
	}
}

// TestSegmentWhoseNextIsGoneIsSealed rebuilds where the segment that would have closed another was removed.
func TestSegmentWhoseNextIsGoneIsSealed(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.committing.Lock()
	defer s.committing.Unlock()
	for _, head := range []segmentHead{{Segment: 2}, {Segment: 4, Prev: 3}} {
		rec := &record{kind: recordSegment, head: head, at: place{slotID{head.Segment, 0}, frameSize, 10, 0}}
		kept := &record{kind: recordEnded, session: &Session{ID: head.Segment}, at: place{slotID{head.Segment, 1}, 100, 10, 0}}
		if _, err := s.index.apply([]*record{rec, kept}, kept.at.end(), s.readSession, nil); err != nil {
			t.Fatal(err)
		}
	}
	var row segmentRow
	if err := s.index.view(func(tx *bbolt.Tx) error {
		row.decode(tx.Bucket(bucketSegments).Get(idKey(2)))
		return nil
	}); err != nil || !row.sealed {
		t.Errorf("sealed %t, %v", row.sealed, err)
	}
}
