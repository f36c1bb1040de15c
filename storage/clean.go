package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// unfinished is the end of a file's name that is being written.
const unfinished = ".new"

// cleanAgain is how long a segment waits that could not be rewritten: a session that is open uses it, or the disk is full.
const cleanAgain = 2 * time.Second

// cleanSpare is what a rewriting leaves of the disk, for the records that tell of deletions.
const cleanSpare = 1 << 20

var (
	errPinned  = errors.New("a session that is open names it")
	errChanged = errors.New("the index knows it otherwise by now")
)

// cleaning is which segments are to be rewritten.
type cleaning struct {
	rewriting sync.Mutex // held while a segment is: one at a time, so that no two write one file

	mu    sync.Mutex
	todo  map[uint64]bool
	later map[uint64]bool // tried, for the next time
	unfit map[uint64]bool // stay as they are, until the next start
	busy  bool
	wake  chan struct{}

	copied, freed uint64 // bytes: the sizes of new files, and how much smaller they are than the old ones
}

func newCleaning() *cleaning {
	return &cleaning{todo: make(map[uint64]bool), later: make(map[uint64]bool), unfit: make(map[uint64]bool), wake: make(chan struct{}, 1)}
}

func (c *cleaning) add(segments ...uint64) {
	if len(segments) == 0 {
		return
	}
	c.mu.Lock()
	for _, n := range segments {
		if !c.later[n] && !c.unfit[n] {
			c.todo[n] = true
		}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next takes the oldest segment that is to be rewritten.
func (c *cleaning) next() (segment uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.todo {
		if !ok || n < segment {
			segment, ok = n, true
		}
	}
	delete(c.todo, segment)
	c.busy = ok
	return segment, ok
}

func (c *cleaning) postpone(segment uint64) {
	c.mu.Lock()
	c.later[segment] = true
	c.mu.Unlock()
}

func (c *cleaning) giveUp(segment uint64) {
	c.mu.Lock()
	c.unfit[segment] = true
	c.mu.Unlock()
}

// again has what was put off tried once more.
func (c *cleaning) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.later {
		c.todo[n] = true
	}
	clear(c.later)
}

// cleanPending reports whether space is about to come back without anything being deleted.
func (s *Store) cleanPending() bool {
	c := s.cleaning
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy || len(c.todo) > 0
}

// cleaner rewrites segments of which less than half is live, one at a time, and rests after each for as long as it took.
func (s *Store) cleaner(ctx context.Context) {
	s.cleaning.add(s.index.sparse()...)
	for {
		segment, ok := s.cleaning.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-s.cleaning.wake:
			case <-time.After(cleanAgain):
				s.cleaning.again()
			}
			continue
		}
		begun := time.Now()
		err := s.rewrite(ctx, segment, (*segmentRow).sparse)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPinned) || errors.Is(err, errChanged) || diskFull(err):
			s.cleaning.postpone(segment)
		case err != nil:
			s.cleaning.giveUp(segment)
			s.logger.Error("a log segment stays as it is, with what was deleted", "segment", segment, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Since(begun)):
		}
	}
}

// sparse lists the segments of which less than half is live.
func (ix *index) sparse() (numbers []uint64) {
	applied := ix.snapshot().Applied.Segment
	_ = ix.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketSegments).Cursor()
		for k, v := c.First(); k != nil && idOf(k) < applied; k, v = c.Next() {
			var row segmentRow
			if row.decode(v); row.sparse() {
				numbers = append(numbers, idOf(k))
			}
		}
		return nil
	})
	return numbers
}

// rewriting is a segment's next generation: a file with the live records of the one before, which keep their numbers, so that nothing that names them changes.
type rewriting struct {
	number     uint64
	generation uint32 // of the file that is there
	before     uint64 // its size
	head       segmentHead
	headLength uint32
	slots      []copiedSlot // by rising numbers
}

type copiedSlot struct {
	slot     uint32
	from, to uint64 // offsets of the payload
	length   uint32
}

func (r *rewriting) name() string { return generationName(r.number, r.generation+1) }

// rewrite puts a segment's live records into a new file, moves the index over to it in one transaction, and removes the old one. Killed at any moment, the index
// names the one or the other; a rebuilding takes the newer. It does nothing where worth says so.
func (s *Store) rewrite(ctx context.Context, number uint64, worth func(*segmentRow) bool) error {
	s.cleaning.rewriting.Lock()
	defer s.cleaning.rewriting.Unlock()
	r, err := s.planRewriting(number, worth)
	if r == nil || err != nil {
		return err
	}
	part := r.name() + unfinished
	if free, _, err := s.files.Space(); err == nil && free < r.head.Size+cleanSpare {
		return errNoRoom
	}
	if err = s.clear(r, part); err == nil {
		err = s.writeRewriting(ctx, r, part)
	}
	if err == nil {
		err = s.files.Rename(part, r.name())
	}
	if err == nil {
		err = s.files.SyncDir("log")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("rewrite log segment: %w", err), s.clear(r, part))
	}
	return s.adopt(r)
}

// clear removes what a rewriting left that failed, unless the index was made again meanwhile and has taken it. It is errChanged where the segment is another by
// now, or gone.
func (s *Store) clear(r *rewriting, part string) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	known, err := s.index.generations()
	if err != nil {
		return err
	}
	generation, there := known[r.number]
	if there && generation != r.generation {
		return errChanged
	}
	for _, name := range []string{part, r.name()} {
		s.hold.keep(name) // else the end of a backup would remove what has the name by then
		if err := s.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !there {
		return errChanged
	}
	return nil
}

// planRewriting finds out what is live of a segment. It is nil where nothing is to be done.
func (s *Store) planRewriting(number uint64, worth func(*segmentRow) bool) (*rewriting, error) {
	applied := s.index.snapshot().Applied.Segment // what is deleted after this is not looked at
	r := &rewriting{number: number}
	live := make(map[uint32]bool)
	var row segmentRow
	err := s.index.view(func(tx *bbolt.Tx) error {
		if row.decode(tx.Bucket(bucketSegments).Get(idKey(number))); !worth(&row) {
			return nil
		}
		countSlots(tx, number, func(n uint32, sl slot) {
			if sl.refs > 0 {
				live[n] = true
				r.slots = append(r.slots, copiedSlot{slot: n, from: uint64(sl.offset), length: sl.length})
			}
		})
		return nil
	})
	if err != nil || len(r.slots) == 0 || number >= applied || s.index.partial.Load() { // what it lacks may name more of them
		return nil, err
	}
	if !s.recent.keepOnly(number, live) {
		return nil, errPinned
	}
	r.generation, r.before = row.generation, row.size
	head, _, err := readSegmentHead(s.files, segmentSpan{number: number, generation: row.generation, end: row.size})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errChanged // it died just now
	}
	if err != nil {
		return nil, fmt.Errorf("rewrite log segment: %w", err)
	}
	head.Version, head.Generation, head.Cleaned = formatVersion, row.generation+1, applied
	for size := uint64(0); ; size = head.Size { // the number is part of what it counts
		head.Size = frameSize
		if err := encoded(withSize(head, size), func(b []byte) error {
			r.headLength = uint32(len(b))
			return nil
		}); err != nil {
			return nil, err
		}
		head.Size += uint64(r.headLength)
		for i := range r.slots {
			r.slots[i].to = head.Size + frameSize
			head.Size += frameSize + uint64(r.slots[i].length)
		}
		if head.Size == size {
			break
		}
	}
	r.head = head
	return r, nil
}

func withSize(h segmentHead, size uint64) segmentHead {
	h.Size = size
	return h
}

// writeRewriting writes and syncs the new file. Each record is checked: a damaged one stays where it is, for whoever can mend it.
func (s *Store) writeRewriting(ctx context.Context, r *rewriting, name string) (err error) {
	from, err := s.handles.open(generationName(r.number, r.generation))
	if err != nil {
		return err
	}
	defer s.handles.done(from)
	to, err := s.files.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	at := int64(0)
	buf := make([]byte, 0, blockSize)
	flush := func() error {
		_, err := to.WriteAt(buf, at)
		at += int64(len(buf))
		buf = buf[:0]
		return err
	}
	if err := encoded(r.head, func(b []byte) error {
		f := frame{kind: recordSegment, length: uint32(len(b)), crc: crc32.Checksum(b, castagnoli)}
		buf = append(buf, make([]byte, frameSize)...)
		f.put(buf, r.number)
		buf = append(buf, b...)
		return nil
	}); err != nil {
		return err
	}
	for _, c := range r.slots {
		n, size := len(buf), frameSize+int(c.length)
		if n > 0 && n+size > blockSize {
			if err := flush(); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			n = 0
		}
		buf = slices.Grow(buf, size)[:n+size]
		if m, err := from.file.ReadAt(buf[n:], int64(c.from)-frameSize); m < size {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read record %d: %w", c.slot, err)
		}
		f, ok := parseFrame(buf[n:], r.number)
		if !ok || f.slot != c.slot || f.length != c.length || crc32.Checksum(buf[n+frameSize:], castagnoli) != f.crc {
			return fmt.Errorf("record %d is damaged: %w", c.slot, errTorn)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return to.Sync()
}

// adopt moves the index over to the new file. Then the old one goes, or the new one where the index changed meanwhile.
func (s *Store) adopt(r *rewriting) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	gone, err := s.index.fold(s.readSession, s.recent.mayRemove, func(f *fold) error { return f.rewritten(r) })
	if err != nil && !errors.Is(err, errChanged) {
		s.leftOver = true // whether it is on the disk is not known: both files stay, and the next start finds out
		return errors.Join(err, s.recoverIndex(err, s.index.snapshot().Applied))
	}
	known, findErr := s.index.generations()
	if findErr != nil {
		return errors.Join(err, findErr) // both stay; the next start finds out
	}
	old := generationName(r.number, r.generation)
	if known[r.number] == r.generation+1 {
		gone.segments = append(gone.segments, old)
		s.cleaning.count(r)
	} else {
		gone.segments = append(gone.segments, r.name())
	}
	s.unlink(gone)
	s.cleaning.add(gone.sparse...)
	s.retention.look()
	return err
}

func (c *cleaning) count(r *rewriting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copied += r.head.Size
	c.freed += r.before - min(r.before, r.head.Size)
}

// rewritten takes in that a segment's file is another, with the slots that are still named.
func (f *fold) rewritten(r *rewriting) error {
	row := f.segment(r.number)
	if row.size == 0 || row.generation != r.generation {
		return errChanged
	}
	bucket := f.tx.Bucket(bucketSlots)
	var keys []pageKey
	c := bucket.Cursor()
	for k, _ := c.Seek(idKey(r.number)); k != nil && idOf(k) == r.number; k, _ = c.Next() {
		keys = append(keys, pageKey{r.number, pageOf(k)})
	}
	slots := r.slots
	for _, key := range keys {
		p := f.page(slotID{r.number, key.page * slotsPerPage})
		used := 0
		for i := range p.slots[:p.used] {
			n := key.page*slotsPerPage + uint32(i)
			switch {
			case len(slots) > 0 && slots[0].slot == n:
				p.slots[i].offset = uint32(slots[0].to)
				slots = slots[1:]
			case p.slots[i].refs > 0:
				return errChanged // it was dead, and is named again
			case n == 0:
				p.slots[i] = slot{offset: frameSize, length: r.headLength}
			default:
				p.slots[i] = slot{}
				continue
			}
			used = i + 1
		}
		if p.used = used; used == 0 {
			delete(f.slots, key)
			if err := bucket.Delete(key.bytes()); err != nil {
				return fmt.Errorf("rewrite segment: %w", err)
			}
		}
	}
	row.size, row.generation, row.cleaned = r.head.Size, r.head.Generation, r.head.Cleaned
	if err := f.putSegments(); err != nil {
		return err
	}
	return f.removeGraves()
}

// CleanLog rewrites every log segment of which more than a thirty-second is not live, whatever that costs.
func (s *Store) CleanLog(ctx context.Context) error {
	known, err := s.index.generations()
	if err != nil {
		return err
	}
	numbers := make([]uint64, 0, len(known))
	for n := range known {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		err := s.rewrite(ctx, n, func(row *segmentRow) bool {
			return row.sealed && row.slots > 0 && row.stored()+row.size/32+blockOfDisk < row.size
		})
		if err != nil && !errors.Is(err, errPinned) && !errors.Is(err, errChanged) {
			return fmt.Errorf("clean log: %w", err)
		}
	}
	return nil
}

// blockOfDisk is what file systems give to a file at least: less than that is not worth a rewriting.
const blockOfDisk = 4 << 10
