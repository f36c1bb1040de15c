package storage

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// recoverIndex finds out what a failed update did, which was to take in the records up to end.
func (s *Store) recoverIndex(failed error, end position) error {
	err := s.index.reopen()
	if errors.Is(failed, errIndexDamaged) {
		err = failed
	}
	if errors.Is(err, errIndexDamaged) {
		err = s.rebuildIndex(err, end)
	}
	if err != nil {
		s.problem(err)
		return err
	}
	s.dropApplied()
	return nil
}

// dropApplied lets go of the records that the index has.
func (s *Store) dropApplied() {
	applied := s.index.snapshot().Applied
	n := 0
	for n < len(s.toApply) && !applied.before(s.toApply[n].at.end()) {
		n++
	}
	s.committed(s.toApply[:n])
	s.toApply = s.toApply[n:]
}

// lookThrough finds out about damage that a reader of the index met, and has the index made again where there is any that lasts.
func (s *Store) lookThrough(end position) error {
	s.lookedThrough = true
	damage := s.index.view(s.index.checkValues)
	if damage == nil {
		s.logger.Warn("the index was looked through: what was read is sound; it is looked through again at the next start")
		return nil
	}
	return s.recoverIndex(fmt.Errorf("%w (%w)", damage, errIndexDamaged), end)
}

// readerMetDamage has the index looked through at the next commit, which is due now. s.wrote makes the committer come at once.
func (s *Store) readerMetDamage(err error) {
	s.logger.Error("the index cannot be read: it is looked through now", "error", err)
	select {
	case s.wrote <- struct{}{}:
	default:
	}
}

// rebuildIndex makes a damaged index again from the log up to end, while the store runs: once, as a disk that damages what was just written
// would have it done for ever. Until it is done, sessions that have ended are missing where they are looked for.
func (s *Store) rebuildIndex(damage error, end position) error {
	if s.rebuilt {
		return damage
	}
	s.rebuilt, s.lookedThrough = true, true
	s.damage, s.rebuildTo = damage, end
	s.index.partial.Store(true)
	return s.finishIndex()
}

// renewIndex puts an empty index in the place of the damaged one, which it sets aside the first time that it is called.
func (s *Store) renewIndex() error {
	err := s.index.renew(s.dir, func() (err error) {
		if s.aside == "" {
			s.aside, err = s.setIndexAside(s.damage)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.damage = nil
	s.salvage(s.aside)
	return nil
}

// finishIndex takes into an index that is made again what it does not have of the log. Where the log cannot be read now, the next commit goes on: until then
// the index takes nothing else, or what it lacks would count as taken.
func (s *Store) finishIndex() error {
	if !s.index.partial.Load() {
		return nil
	}
	begin := s.index.reopen
	if s.damage != nil {
		begin = s.renewIndex
	}
	if err := begin(); err != nil {
		return err
	}
	spans, err := segmentSpans(s.files, nil)
	if err != nil {
		return err
	}
	applied := s.index.snapshot().Applied
	for _, span := range spans {
		if span.number < applied.Segment || span.number > s.rebuildTo.Segment {
			continue
		}
		from := uint64(0)
		if span.number == applied.Segment {
			from = applied.Offset
		}
		if span.number == s.rebuildTo.Segment {
			span.end, span.last = min(span.end, s.rebuildTo.Offset), false
		}
		if _, err := s.replaySegment(span, from, func(*record) error { return nil }); err != nil {
			return fmt.Errorf("replay log segment %d: %w", span.number, err)
		}
	}
	if s.gaps {
		s.logger.Error(mayBeMissing)
	}
	s.index.partial.Store(false)
	s.dropApplied()
	return nil
}

// setClean notes whether something may be left over in the directories.
func (ix *index) setClean(clean bool) error {
	return ix.change(func(state *indexState) { state.Clean = clean })
}

// change changes what the index knows beside the log.
func (ix *index) change(fn func(*indexState)) error {
	state := ix.snapshot()
	if fn(&state); state == ix.snapshot() {
		return nil
	}
	err := ix.update(func(tx *bbolt.Tx) error {
		b, err := encoder.Marshal(state)
		if err != nil {
			return err
		}
		return tx.Bucket(bucketMeta).Put(keyState, b)
	})
	if err != nil {
		return fmt.Errorf("update index: %w", err)
	}
	ix.mu.Lock()
	ix.state = state
	ix.mu.Unlock()
	return nil
}

// hasChunk reports whether the index counts a chunk.
func (ix *index) hasChunk(sum []byte) (found bool) {
	_ = ix.view(func(tx *bbolt.Tx) error {
		found = tx.Bucket(bucketChunks).Get(sum) != nil
		return nil
	})
	return found
}
