package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"millpond/migrations"
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

// segmentSpan is a segment and how much of it counts.
type segmentSpan struct {
	number, end uint64
	size        uint64 // of the file
	generation  uint32
	last        bool  // what follows its last whole record is a torn tail
	damage      error // it is shorter than the next one says, or its head cannot be read
}

func (s *segmentSpan) file() string { return generationName(s.number, s.generation) }

// unknownEnd is the end of a segment whose next one's head cannot be read: all of it counts.
const unknownEnd = 1<<64 - 1

// parseSegment reads the name of a segment's file.
func parseSegment(name string) (number uint64, generation uint32, ok bool) {
	first, second, rewritten := strings.Cut(name, ".")
	number, err := strconv.ParseUint(first, 10, 64)
	if err != nil || !rewritten {
		return number, 0, err == nil
	}
	g, err := strconv.ParseUint(second, 10, 32)
	return number, uint32(g), err == nil && g > 0
}

// logFiles lists the files of the log: of each segment the generation that known names, or the newest. Files of others are what a crash left of a rewriting.
func logFiles(files Files, known map[uint64]uint32) (spans, others []segmentSpan, err error) {
	entries, err := files.ReadDir("log")
	if err != nil {
		return nil, nil, fmt.Errorf("list log: %w", err)
	}
	for _, e := range entries {
		number, generation, ok := parseSegment(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, nil, fmt.Errorf("list log: %w", err)
		}
		spans = append(spans, segmentSpan{number: number, generation: generation, end: uint64(info.Size()), size: uint64(info.Size())})
	}
	rank := func(s segmentSpan) uint64 {
		if want, ok := known[s.number]; ok && want == s.generation {
			return 1 << 32
		}
		return uint64(s.generation)
	}
	slices.SortFunc(spans, func(a, b segmentSpan) int {
		if a.number != b.number {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(rank(b), rank(a))
	})
	kept := spans[:0]
	for _, span := range spans {
		if n := len(kept); n > 0 && kept[n-1].number == span.number {
			others = append(others, span)
			continue
		}
		kept = append(kept, span)
	}
	return kept, others, nil
}

// segmentSpans lists the log's segments, oldest first. A segment that a later one skips was given up, and is not among them. known tells the generations that
// the index has.
func segmentSpans(files Files, known map[uint64]uint32) ([]segmentSpan, error) {
	spans, _, err := logFiles(files, known)
	if err != nil {
		return nil, err
	}
	var kept []segmentSpan
	prev := position{Segment: 1<<64 - 1}
	for i := len(spans) - 1; i >= 0; i-- {
		span := spans[i]
		if span.number > prev.Segment {
			continue
		}
		span.last = len(kept) == 0
		if span.number == prev.Segment && span.generation == 0 {
			if span.end < prev.Offset && prev.Offset != unknownEnd {
				span.damage = fmt.Errorf("it is %d bytes long, the next segment says %d", span.end, prev.Offset)
			}
			span.end = min(span.end, prev.Offset)
		}
		head, begun, err := readSegmentHead(files, span)
		if err == nil && span.generation > 0 && head.Size > 0 {
			if span.end < head.Size {
				span.damage = fmt.Errorf("it is %d bytes long, its head says %d", span.end, head.Size)
			}
			span.end = min(span.end, head.Size)
		}
		switch {
		case errors.Is(err, migrations.ErrNewer):
			return nil, err
		case err != nil && span.last && !begun && !unreadable(err):
			continue // it was about to be begun
		case err != nil:
			head.Prev, head.PrevEnd, span.damage = span.number-1, unknownEnd, err
		}
		prev = position{head.Prev, head.PrevEnd}
		kept = append(kept, span)
	}
	slices.Reverse(kept)
	return kept, nil
}

// unreadable tells a disk that does not give its bytes from bytes that are wrong: it may give them the next time.
func unreadable(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed)
}

// newestSegment returns the highest number of a segment file, whatever it holds.
func newestSegment(files Files) (newest uint64, err error) {
	spans, _, err := logFiles(files, nil)
	for _, span := range spans {
		newest = max(newest, span.number)
	}
	return newest, err
}

// readSegmentHead reads the segment's first record. Where that is an error, begun tells whether whole records follow.
func readSegmentHead(files Files, span segmentSpan) (head segmentHead, begun bool, err error) {
	f, err := files.OpenFile(span.file(), os.O_RDONLY)
	if err != nil {
		return segmentHead{}, true, fmt.Errorf("open log segment: %w", err)
	}
	defer f.Close()
	r := segmentReader{segment: span.number, generation: span.generation, r: f, end: span.end}
	rec, err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		return segmentHead{}, false, errors.New("it is empty")
	case err != nil:
		return segmentHead{}, r.resync(), fmt.Errorf("read its head: %w", err)
	case rec.kind == recordHole: // the head was damaged
		return segmentHead{Prev: span.number - 1, PrevEnd: unknownEnd}, true, nil
	case rec.kind != recordSegment || rec.head.Segment != span.number || rec.head.Generation != span.generation:
		return segmentHead{}, true, errors.New("read its head: it begins with another record")
	case rec.head.Version > formatVersion:
		return segmentHead{}, true, fmt.Errorf("read log segment %d: its format is %d: %w", span.number, rec.head.Version, migrations.ErrNewer)
	}
	return rec.head, true, nil
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
