package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.etcd.io/bbolt"
)

// deleteStep is how many sessions one commit deletes. Each costs the reading of its record; four times as many make a commit, for which what is captured waits,
// three times as long, and deleting no faster.
const deleteStep = 500

// errPartial is a deletion that would miss what is to be deleted, or a change to a session of which the index knows an older state.
var errPartial = errors.New("the list of sessions is being made again from the log: try again in a moment")

// Delete removes sessions; the open among them are dropped at their end. It returns how many there were.
// While the index is being made again it is an error, also for no ids: they may have been looked for where they are missing.
func (s *Store) Delete(ctx context.Context, ids []uint64) (int, error) {
	if s.index.partial.Load() {
		return 0, fmt.Errorf("delete sessions: %w", errPartial)
	}
	count := 0
	for len(ids) > 0 {
		step := ids[:min(len(ids), deleteStep)]
		ids = ids[len(step):]
		n, err := s.deleteSome(ctx, step, nil)
		count += n
		if err != nil {
			return count, fmt.Errorf("delete sessions: %w", err)
		}
	}
	return count, nil
}

// deleteSome removes sessions in one commit, but for those that spare names once no record can be amended; nil spares none.
func (s *Store) deleteSome(ctx context.Context, ids []uint64, spare func(uint64) bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.amending.Lock() // a record that is being amended would bring its session back
	defer s.amending.Unlock()
	var open, ended []uint64
	for _, id := range ids {
		if spare != nil && spare(id) {
			continue
		}
		if r := s.live.get(id); r != nil && s.doom(r) {
			open = append(open, id)
		} else if s.has(id) {
			ended = append(ended, id)
		}
	}
	if len(open) > 0 {
		rec := &record{kind: recordDoomed, gone: deletion{IDs: open}}
		s.appendValue(rec, rec.gone)
	}
	if len(ended) > 0 {
		rec := &record{kind: recordDeleted, gone: deletion{IDs: ended}}
		s.appendValue(rec, rec.gone)
	}
	err := s.commit()
	s.derived.drop(ids...)
	s.feeds.publish(ids...)
	return len(open) + len(ended), err
}

// doom marks a session as deleted that will only go at its end. It is false for one whose last record is in the log.
func (s *Store) doom(r *Recording) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished || r.deleted {
		return false
	}
	r.deleted = true
	return true
}

// has reports whether the session is there, in the index or on its way.
func (s *Store) has(id uint64) bool {
	if r := s.live.get(id); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.deleted
	}
	found := false
	_ = s.index.view(func(tx *bbolt.Tx) error {
		found = tx.Bucket(bucketRows).Get(idKey(id)) != nil
		return nil
	})
	return found
}

// DeleteThrough removes every session with an id up to cutoff, in steps. What was open then is dropped at its end, also if Millpond ends first.
// Where ctx is done before, what is not deleted yet stays.
func (s *Store) DeleteThrough(ctx context.Context, cutoff uint64) (int, error) {
	cutoff = min(cutoff, s.live.newest())
	count, err := s.deleteThrough(ctx, cutoff)
	if err != nil {
		return count, err // what is not deleted yet stays, also the open ones
	}
	for old := s.cutoff.Load(); old < cutoff && !s.cutoff.CompareAndSwap(old, cutoff); old = s.cutoff.Load() {
	}
	rec := &record{kind: recordReserved, ids: reservation{Through: s.reserved.Load(), Cutoff: s.cutoff.Load()}}
	s.appendValue(rec, rec.ids)
	return count, s.commit()
}

func (s *Store) deleteThrough(ctx context.Context, cutoff uint64) (count int, err error) {
	for {
		if s.index.partial.Load() {
			return count, fmt.Errorf("delete sessions: %w", errPartial)
		}
		ids := make([]uint64, 0, deleteStep)
		err := s.Scan(0, cutoff+1, func(r *Row) bool {
			ids = append(ids, r.ID)
			return len(ids) < deleteStep
		})
		if err != nil || len(ids) == 0 {
			return count, err
		}
		n, err := s.Delete(ctx, ids)
		count += n
		if err != nil || n == 0 {
			return count, err
		}
	}
}

// Annotate changes what people put on a session: Pinned, Note, Color. It returns when that is on disk. An unknown id is fs.ErrNotExist.
func (s *Store) Annotate(id uint64, fn func(*Session)) error {
	unpinned := false
	if err := s.amend(id, func(session *Session) {
		changed := *session
		fn(&changed)
		unpinned = session.Pinned && !changed.Pinned
		session.Pinned, session.Note, session.Color = changed.Pinned, changed.Note, changed.Color
	}); err != nil {
		return fmt.Errorf("annotate session %d: %w", id, err)
	}
	if unpinned {
		s.retention.unpinned(id)
	}
	if r := s.live.get(id); r != nil {
		return s.commitTold(r)
	}
	return nil
}

// commitTold commits until what r's fields are is on disk. Where the session is being ended by a worker, one commit may come too early.
func (s *Store) commitTold(r *Recording) error {
	for {
		r.mu.Lock()
		told := r.finished || r.deleted || r.unkept || !r.unsaved
		r.mu.Unlock()
		if err := s.commit(); err != nil || told {
			return err
		}
	}
}

// amend changes a session's record: that of an ended one is appended anew.
func (s *Store) amend(id uint64, fn func(*Session)) error {
	for {
		if r := s.live.get(id); r != nil {
			r.mu.Lock()
			if !r.finished && !r.deleted {
				fn(&r.session)
				r.unsaved = true
				r.note()
				r.mu.Unlock()
				s.feeds.publish(id)
				return nil
			}
			deleted := r.deleted
			r.mu.Unlock()
			if deleted {
				return fs.ErrNotExist
			}
			if err := s.commit(); err != nil { // its end is on the way to the index
				return err
			}
			continue
		}
		return s.amendStored(id, fn)
	}
}

func (s *Store) amendStored(id uint64, fn func(*Session)) error {
	s.amending.Lock()
	defer s.amending.Unlock()
	var session Session
	s.committing.Lock() // the index is made again under it
	err := s.stored(id, func(_ *bbolt.Tx, stored *Session) error {
		session = *stored
		return nil
	})
	if s.index.partial.Load() || err == nil && session.State == Open {
		err = errPartial
	}
	s.committing.Unlock()
	if err != nil {
		return err
	}
	fn(&session)
	rec := &record{kind: recordEnded, session: &session}
	s.appendValue(rec, &session)
	err = s.commit()
	s.feeds.publish(id)
	return err
}
