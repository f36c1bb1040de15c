package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	replayRecords = 4096     // records taken into the index in one transaction
	replayBytes   = 16 << 20 // and their payloads' bytes
)

// openIndex opens the index. One that is damaged is set aside, and made again from the log; so is one that is gone, which is told.
func (s *Store) openIndex() (err error) {
	if _, err := s.files.Stat("index.db"); errors.Is(err, fs.ErrNotExist) {
		if segments, err := s.files.ReadDir("log"); err == nil && len(segments) > 0 {
			s.logger.Error("the index is gone: it is made again from the log; shares are lost with it")
		}
	}
	s.index, err = openIndex(s.dir)
	if !errors.Is(err, errIndexDamaged) {
		return err
	}
	return s.replaceIndex(err)
}

// replaceIndex sets the damaged index aside and opens an empty one, which knows nothing of the log yet.
func (s *Store) replaceIndex(damage error) (err error) {
	aside, err := s.setIndexAside(damage)
	if err != nil {
		return err
	}
	if s.index, err = openIndex(s.dir); err != nil {
		return err
	}
	s.salvage(aside)
	return nil
}

func (s *Store) setIndexAside(damage error) (aside string, err error) {
	path := filepath.Join(s.dir, "index.db")
	for n := 1; ; n++ {
		aside = path + ".damaged-" + strconv.Itoa(n)
		if _, err := os.Lstat(aside); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.logger.Error("the index is damaged: it is set aside and made again", "aside", aside, "error", damage)
		if err := os.Rename(path, aside); err != nil {
			return "", fmt.Errorf("set index aside: %w", err)
		}
		return aside, nil
	}
}

// recover brings the index up to the log's end, and ends the sessions that were open. An index that proves damaged on the way is made again
// from the log.
func (s *Store) recover() error {
	err := s.recoverInto(s.index.snapshot().Clean)
	if err == nil {
		return nil
	}
	if damage := s.index.check(); damage != nil && !errors.Is(err, errIndexDamaged) {
		err = fmt.Errorf("%w (%w)", err, damage)
	}
	s.log.close() // what it has in memory is made again from what is on disk
	s.log = s.newLog()
	if !errors.Is(err, errIndexDamaged) {
		return errors.Join(err, s.index.reopen()) // for who makes room and tries again
	}
	s.index.drop()
	if err := s.replaceIndex(err); err != nil {
		return err
	}
	return s.recoverInto(false)
}

// recoverInto brings the index as it is up to the log's end. After an end that was not clean, the index is looked through first: a part of it
// that was not written would otherwise show when it is too late, in what it makes of new sessions.
func (s *Store) recoverInto(clean bool) error {
	if s.unclean = !clean; s.unclean || s.index.isSmall() {
		if err := s.index.check(); err != nil {
			return err
		}
	}
	if err := s.index.setClean(false); err != nil {
		return err
	}
	anew := s.index.snapshot().Applied.Segment == 0
	leftover, err := s.catchUp()
	if err != nil {
		return err
	}
	if anew && s.gaps {
		s.logger.Error(mayBeMissing)
	}
	if err := s.recoverOpen(leftover); err != nil {
		return err
	}
	return s.sweep(clean)
}

// catchUp takes what the log has beyond the index into it. It returns the incoming files that are left.
func (s *Store) catchUp() (leftover map[uint64]bool, err error) {
	leftover, err = s.incomingFiles()
	if err != nil {
		return nil, err
	}
	if err := s.replay(leftover); err != nil {
		return nil, err
	}
	state := s.index.snapshot()
	s.incomingNumber.Store(state.Incoming)
	for number := range leftover {
		s.incomingNumber.Store(max(s.incomingNumber.Load(), number))
	}
	s.live.last = max(state.Reserved, state.LastID)
	s.reserved.Store(s.live.last + reserve)
	// The log tells of it only with the first record, and ids are told of before that is synced.
	if err := s.index.change(func(state *indexState) { state.Reserved = s.reserved.Load() }); err != nil {
		return nil, err
	}
	s.cutoff.Store(state.Cutoff)
	return leftover, nil
}

// incomingFiles lists the incoming files there are, by number.
func (s *Store) incomingFiles() (map[uint64]bool, error) {
	entries, err := s.files.ReadDir("incoming")
	if err != nil {
		return nil, fmt.Errorf("list incoming files: %w", err)
	}
	all := make(map[uint64]bool, len(entries))
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			all[n] = true
		}
	}
	return all, nil
}

// mayBeMissing is what nothing can tell of an index that is made from a log which lost records: the former index would have.
const mayBeMissing = "the log lost records, and no sound index tells which: deletions, pins and notes may be missing, and sessions that were deleted may be back"

// replay takes what the log has beyond the index into it. Incoming files that it names as chunks become those.
func (s *Store) replay(leftover map[uint64]bool) error {
	known, err := s.index.generations()
	if err != nil {
		return err
	}
	spans, err := segmentSpans(s.files, known)
	if err != nil {
		return err
	}
	s.tellGone(known, spans)
	applied := s.index.snapshot().Applied
	end := applied
	found := applied.Segment == 0 // whether the end of what was applied is there
	for _, span := range spans {
		if span.damage != nil {
			s.logger.Error("the log is damaged", "segment", span.number, "error", span.damage)
			s.gaps = true
		}
		if g, ok := known[span.number]; ok && g != span.generation {
			return fmt.Errorf("log segment %d: the file that the index knows is gone, there is %s (%w)", span.number, span.file(), errIndexDamaged)
		}
		if span.number < applied.Segment {
			continue
		}
		from := uint64(0)
		if span.number == applied.Segment {
			from = applied.Offset
			found = from <= span.end
		}
		at, err := s.replaySegment(span, from, func(rec *record) error {
			if rec.kind == recordNamed && leftover[rec.named.Incoming] {
				return s.finishNaming(rec.named, leftover) // before the index has it: an end in between would have the next start not see it
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("replay log segment %d: %w", span.number, err)
		}
		end = position{span.number, at}
	}
	if err := s.cutTails(spans, end, applied); err != nil {
		return err
	}
	if !found {
		s.logger.Error("the log is damaged: what was written is gone", "segment", applied.Segment, "to", applied.Offset)
	}
	newest, err := newestSegment(s.files)
	if err != nil {
		return err
	}
	s.log.start(end, max(newest, end.Segment))
	return nil
}

// tellGone tells of segments that the index names and that are not there.
func (s *Store) tellGone(known map[uint64]uint32, spans []segmentSpan) {
	gone := maps.Clone(known)
	for _, span := range spans {
		delete(gone, span.number)
	}
	if len(gone) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(gone)))
		s.logger.Error("the log is damaged: segments are gone: millpond verify --repair finds out what is lost", "segments", len(gone), "first", generationName(first, known[first]))
	}
}

// cutTails cuts off what does not count at the ends of segments: torn records, and what was given up. Else it would count again once the next segment, which
// says how much of this one does, is removed. What the index has of the last one stays, as it is damage if it does not end whole.
func (s *Store) cutTails(spans []segmentSpan, end, applied position) error {
	for _, span := range spans {
		to := span.end
		if span.last && end.Segment == span.number {
			to = end.Offset
		}
		if to >= span.size || span.number == applied.Segment && to < applied.Offset {
			continue
		}
		f, err := s.files.OpenFile(span.file(), os.O_RDWR)
		if err != nil {
			return fmt.Errorf("cut log segment %d: %w", span.number, err)
		}
		if err = f.Truncate(int64(to)); err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("cut log segment %d: %w", span.number, err)
		}
	}
	return nil
}

// replaySegment takes the segment's records from an offset on into the index, and returns where they end.
func (s *Store) replaySegment(span segmentSpan, from uint64, seen func(*record) error) (uint64, error) {
	f, err := s.files.OpenFile(span.file(), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := segmentReader{segment: span.number, generation: span.generation, r: f, offset: from, end: span.end}
	var batch []*record
	bytes := 0
	apply := func() error {
		_, err := s.index.apply(batch, position{span.number, r.offset}, s.readSession, nil)
		batch, bytes = batch[:0], 0
		return err
	}
	for {
		rec, err := r.next()
		switch {
		case err == nil:
			s.gaps = s.gaps || rec.kind == recordHole
			if err := seen(rec); err != nil {
				return 0, err
			}
			batch = append(batch, rec)
			bytes += int(rec.at.length)
			if len(batch) >= replayRecords || bytes >= replayBytes {
				if err := apply(); err != nil {
					return 0, err
				}
			}
			continue
		case errors.Is(err, io.EOF):
			return r.offset, apply()
		case !errors.Is(err, errTorn):
			return 0, err
		}
		bad, whole := r.offset, r.resync()
		if whole || !span.last || err != errTorn { // else it is a torn tail
			to := r.offset
			if !whole {
				to = span.end
			}
			s.gaps = true
			s.logger.Error("the log is damaged", "segment", span.number, "from", bad, "to", to, "error", err)
		}
		if !whole {
			return bad, apply()
		}
	}
}
