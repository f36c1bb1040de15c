package storage

import (
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// Status tells how the store is.
type Status struct {
	Sessions     uint64 // rows
	Open         int
	LastID       uint64 // the newest id given
	DurableUntil uint64 // every ended session up to this id is durable
	Bytes        uint64 // on disk: log, chunks, incoming, index, derived
	Free         uint64 // bytes the file system has left
	Total        uint64 // bytes the file system holds
	Problem      string // why capture does not work now, for people; empty when it does. "the disk is full: …"
}

// Status returns how the store is now.
func (s *Store) Status() Status {
	st := Status{LastID: s.live.newest()}
	st.DurableUntil = st.LastID
	unknown := s.live.all()
	st.Sessions = s.countSessions(unknown)
	for _, r := range unknown {
		r.mu.Lock()
		if !r.ended {
			st.Open++
		} else if r.id <= st.DurableUntil {
			st.DurableUntil = r.id - 1
		}
		r.mu.Unlock()
	}
	st.Bytes = s.usage.bytes(s.bytes)
	st.Free, st.Total, _ = s.files.Space()
	if p := s.trouble.Load(); p != nil {
		st.Problem = *p
	} else if s.room.isFull() {
		st.Problem = reason(errNoRoom)
	} else if s.unkept.Load() > 0 {
		st.Problem = "the disk does not keep up"
	}
	if n := s.unkept.Load(); n > 0 {
		st.Problem += fmt.Sprintf("; %d sessions were not kept", n)
	}
	return st
}

// countSessions counts the sessions of the index, and the live ones that have no row there yet.
func (s *Store) countSessions(live []*Recording) (n uint64) {
	err := s.index.view(func(tx *bbolt.Tx) error {
		var state indexState
		if v := tx.Bucket(bucketMeta).Get(keyState); v != nil {
			if err := decoder.Unmarshal(v, &state); err != nil {
				return fmt.Errorf("read index state: %w", err)
			}
		}
		n = state.Rows
		rows := tx.Bucket(bucketRows)
		for _, r := range live {
			r.mu.Lock()
			deleted := r.deleted
			r.mu.Unlock()
			if !deleted && rows.Get(idKey(r.id)) == nil {
				n++
			}
		}
		return nil
	})
	if err != nil { // it is being made again
		return s.index.snapshot().Rows
	}
	return n
}

// usageAge is how old the sum of all files' sizes may be: it asks for the size of each file.
const usageAge = 5 * time.Second

// usage remembers what the data directory takes.
type usage struct {
	mu   sync.Mutex
	sum  uint64
	when time.Time
}

func (u *usage) bytes(add func() uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.when.IsZero() || time.Since(u.when) > usageAge {
		u.sum, u.when = add(), time.Now()
	}
	return u.sum
}

// bytes adds up what lies in the data directory.
func (s *Store) bytes() (sum uint64) {
	if info, err := os.Stat(s.index.path); err == nil {
		sum += uint64(info.Size())
	}
	var add func(dir string)
	add = func(dir string) {
		entries, err := s.files.ReadDir(dir)
		if err != nil {
			return // not there, or gone meanwhile
		}
		for _, e := range entries {
			if e.IsDir() {
				add(path.Join(dir, e.Name()))
			} else if info, err := e.Info(); err == nil {
				sum += uint64(info.Size())
			}
		}
	}
	for _, dir := range []string{"log", "chunks", "incoming", "derived"} {
		add(dir)
	}
	return sum
}
