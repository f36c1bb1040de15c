package storage

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// Status tells how the store is.
type Status struct {
	Sessions     uint64 // rows
	Open         int
	LastID       uint64 // the newest id given
	DurableUntil uint64 // every ended session up to this id is durable
	Bytes        uint64 // on disk: log, chunks, incoming, index, derived; 0 while the index is made again
	Free         uint64 // bytes the file system has left
	Total        uint64 // bytes the file system holds
	Problem      string // why capture does not work now, for people; empty when it does. "the disk is full: …"
	Retention    Retention
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
	st.Free, st.Total, _ = s.files.Space()
	if use, err := s.use(); err == nil {
		st.Bytes = use.sessions() + use.indexFree + use.derived
		st.Retention = s.retentionNow(use.settled(), st.Free)
	}
	if gone := s.gone(); gone != nil { // also before anything is captured
		st.Problem = reason(gone)
	} else if p := s.trouble.Load(); p != nil {
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

// filesSize is how many bytes the files have that the index names.
type filesSize struct{ log, chunks uint64 }

// loadFilesSize adds up what the index says of each file.
func loadFilesSize(tx *bbolt.Tx) (sum filesSize, err error) {
	err = tx.Bucket(bucketSegments).ForEach(func(_, v []byte) error {
		var row segmentRow
		row.decode(v)
		sum.log += row.size
		return nil
	})
	if err != nil {
		return sum, fmt.Errorf("read segments: %w", err)
	}
	err = tx.Bucket(bucketChunks).ForEach(func(_, v []byte) error {
		var row chunkRow
		row.decode(v)
		sum.chunks += uint64(row.length)
		return nil
	})
	if err != nil {
		return sum, fmt.Errorf("read chunks: %w", err)
	}
	return sum, nil
}

// diskUse is what sessions take of the disk, in bytes.
type diskUse struct {
	filesSize
	incoming  uint64
	index     uint64 // its file
	indexFree uint64 // of that, what waits to be used again: the file does not shrink
	derived   uint64
}

// sessions is what is there of sessions: deleting makes it less.
func (u diskUse) sessions() uint64 { return u.settled() + u.incoming }

// settled is that without the files that are no chunks yet: many may be gone with the next commit, as copies of what is there.
func (u diskUse) settled() uint64 { return u.log + u.chunks + u.index - u.indexFree }

// use returns what the sessions take, as of the last commit, from what is counted: no file is looked at.
func (s *Store) use() (u diskUse, err error) {
	err = s.index.view(func(tx *bbolt.Tx) error {
		stats := tx.DB().Stats()
		u.index = uint64(tx.Size())
		u.indexFree = min(uint64(stats.FreePageN+stats.PendingPageN)*uint64(tx.DB().Info().PageSize), u.index)
		u.filesSize = s.index.sizes // view holds what guards it
		return nil
	})
	u.incoming = s.incomings.bytes.Load()
	s.derived.mu.Lock()
	u.derived = uint64(s.derived.total)
	s.derived.mu.Unlock()
	return u, err
}
