package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sync"
)

const (
	segmentSize = 16 << 20 // a segment that has reached this is followed by the next
	blockSize   = 1 << 20  // what is gathered before it is written without waiting for a commit
	frameSize   = 17       // before each payload: length, CRC-32C, kind, slot, and a CRC-32C of these alone
	payloadMax  = 64 << 20 // longer than any record; a length above it is damage
)

// segmentName is the segment's file in the data directory, as it is first written.
func segmentName(segment uint64) string { return fmt.Sprintf("log/%06d", segment) }

// generationName is the segment's file once it was rewritten: log/000017.2 the second time.
func generationName(segment uint64, generation uint32) string {
	if generation == 0 {
		return segmentName(segment)
	}
	return fmt.Sprintf("%s.%d", segmentName(segment), generation)
}

// segment is one file of the log that may still have bytes to write or to sync.
type segment struct {
	number uint64
	file   File   // nil until its first block is written
	size   uint64 // with what is still in memory
	slots  uint32
	dirty  bool // written since the last sync began
}

// block is a run of a segment that is not written yet. Records do not cross blocks.
type block struct {
	seg    *segment
	offset uint64
	data   []byte
	closed bool // being written: nothing is added
}

// log appends records. Appending is to memory; flush writes, sync makes durable.
type log struct {
	files Files
	limit uint64             // segmentSize, but for tests
	head  func() segmentHead // what the next segment's head says, without numbers
	gone  func() error       // why writing is in vain; nil, but for tests: it never is

	mu       sync.Mutex
	current  *segment
	prev     position // the end of the log before current
	blocks   []*block
	spare    []*block
	queue    []*record // appended and not yet applied, in order
	written  position
	made     bool // segments were made since the last directory sync
	unsynced []*segment

	good    position  // everything before it is durable
	givenUp []lostRun // the latest, for places that were found before
	number  uint64    // the newest segment's, also of one that was given up
	failed  error     // of the last write or sync; nil once both work

	flushing sync.Mutex // held while writing: one writer, in order
}

// start begins after what a former process left: its end, and the newest segment's number.
func (l *log) start(end position, newest uint64) {
	l.prev, l.written, l.good, l.number = end, end, end, newest
}

// append adds a record. Its payload is parts, one after the other. rec gets its place, and joins the records to apply.
func (l *log) append(rec *record, parts ...[]byte) place {
	f := frame{kind: rec.kind}
	for _, part := range parts {
		f.length += uint32(len(part))
		f.crc = crc32.Update(f.crc, castagnoli, part)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.current.size >= l.limit {
		l.roll()
	}
	rec.at = l.put(f, parts...)
	l.queue = append(l.queue, rec)
	return rec.at
}

// roll begins the next segment. l.mu is held.
func (l *log) roll() {
	if l.current != nil {
		l.prev = position{l.current.number, l.current.size}
	}
	l.number++
	l.current = &segment{number: l.number}
	l.unsynced = append(l.unsynced, l.current)
	head := l.head()
	head.Segment, head.Prev, head.PrevEnd = l.current.number, l.prev.Segment, l.prev.Offset
	rec := &record{kind: recordSegment, head: head}
	if err := encoded(head, func(b []byte) error {
		rec.at = l.put(frame{kind: rec.kind, length: uint32(len(b)), crc: crc32.Checksum(b, castagnoli)}, b)
		return nil
	}); err != nil {
		panic(err) // a struct of numbers
	}
	l.queue = append(l.queue, rec)
}

// put adds a frame to the last block. l.mu is held.
func (l *log) put(f frame, parts ...[]byte) place {
	seg := l.current
	f.slot = seg.slots
	b := l.lastBlock(seg)
	n := len(b.data)
	b.data = append(b.data, make([]byte, frameSize)...)
	f.put(b.data[n:], seg.number)
	for _, part := range parts {
		b.data = append(b.data, part...)
	}
	seg.slots++
	seg.size += uint64(len(b.data) - n)
	return place{slotID: slotID{seg.number, f.slot}, offset: b.offset + uint64(n) + frameSize, length: f.length}
}

func (l *log) lastBlock(seg *segment) *block {
	if n := len(l.blocks); n > 0 {
		if b := l.blocks[n-1]; b.seg == seg && !b.closed && len(b.data) < blockSize {
			return b
		}
	}
	var b *block
	if n := len(l.spare); n > 0 {
		b, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		b = &block{data: make([]byte, 0, blockSize+blockSize/4)}
	}
	*b = block{seg: seg, offset: seg.size, data: b.data[:0]}
	l.blocks = append(l.blocks, b)
	return b
}

// pending returns how many bytes are in memory only.
func (l *log) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, b := range l.blocks {
		n += len(b.data)
	}
	return n
}

// flush writes what was appended before the call. What fails to be written stays, for the next call.
func (l *log) flush() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	var gone error
	if l.gone != nil {
		gone = l.gone()
	}
	l.mu.Lock()
	todo := len(l.blocks)
	if gone != nil {
		l.failed = gone
	}
	l.mu.Unlock()
	if gone != nil {
		return gone
	}
	for range todo {
		l.mu.Lock()
		b := l.blocks[0]
		b.closed = true
		l.mu.Unlock()
		err := l.write(b)
		l.mu.Lock()
		if err != nil {
			l.failed = err
			l.mu.Unlock()
			return err
		}
		l.blocks = append(l.blocks[:0], l.blocks[1:]...)
		l.written = position{b.seg.number, b.offset + uint64(len(b.data))}
		if len(l.spare) < 4 && cap(b.data) <= 2*blockSize {
			l.spare = append(l.spare, b)
		}
		l.mu.Unlock()
	}
	return nil
}

// flushFull flushes where more than a block is in memory.
func (l *log) flushFull() error {
	if l.pending() < blockSize {
		return nil
	}
	return l.flush()
}

// failing returns why the last write or sync failed. While it is not nil, bytes of bodies are not to be appended.
func (l *log) failing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *log) write(b *block) error {
	if b.seg.file == nil {
		f, err := l.files.OpenFile(segmentName(b.seg.number), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return fmt.Errorf("make log segment: %w", err)
		}
		l.mu.Lock()
		b.seg.file = f
		l.made = true
		l.mu.Unlock()
	}
	if _, err := b.seg.file.WriteAt(b.data, int64(b.offset)); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	l.mu.Lock()
	b.seg.dirty = true
	l.mu.Unlock()
	return nil
}

// sync makes everything durable that was written before the call.
func (l *log) sync() error {
	l.mu.Lock()
	made, end := l.made, l.written
	l.made = false
	var dirty []*segment
	for _, seg := range l.unsynced {
		if seg.dirty {
			seg.dirty = false
			dirty = append(dirty, seg)
		}
	}
	l.mu.Unlock()
	if made {
		if err := l.files.SyncDir("log"); err != nil {
			return fmt.Errorf("sync log directory: %w", err)
		}
	}
	for _, seg := range dirty {
		if err := seg.file.Sync(); err != nil {
			return fmt.Errorf("sync log: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good, l.failed = end, nil
	keep := l.unsynced[:0]
	for _, seg := range l.unsynced {
		if seg == l.current || seg.dirty || end.before(position{seg.number, seg.size}) {
			keep = append(keep, seg)
		} else if seg.file != nil {
			seg.file.Close()
		}
	}
	l.unsynced = keep
	return nil
}

// holdsPieces reports whether bytes of bodies are in memory only.
func (l *log) holdsPieces() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.queue, func(rec *record) bool { return rec.kind == recordPiece && l.written.before(rec.at.end()) })
}

// abandon gives up what was appended since the last good sync, after one that failed: the kernel may have dropped any of it, and
// another sync would prove nothing. The next record begins a segment whose head says where the last one ends.
// It returns the records that are lost, and the files of which nothing counts.
func (l *log) abandon(err error) (gone lostRun, lost []*record, files []string) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seg := range l.unsynced {
		if seg.file == nil {
			continue
		}
		if seg.number == l.good.Segment && diskFull(err) {
			_ = seg.file.Truncate(int64(l.good.Offset)) // for the room; what is beyond does not count
		}
		seg.file.Close()
		if seg.number > l.good.Segment {
			files = append(files, segmentName(seg.number))
		}
	}
	l.unsynced, l.blocks, l.current, l.made = nil, nil, nil, false
	n := 0
	for n < len(l.queue) && !l.good.before(l.queue[n].at.end()) {
		n++
	}
	lost = l.queue[n:]
	l.givenUp = append(l.givenUp, lostRun{l.good, l.number})
	l.givenUp = l.givenUp[max(len(l.givenUp)-givenUpLimit, 0):]
	l.queue = l.queue[:n:n]
	l.prev, l.written, l.failed = l.good, l.good, err
	return lostRun{l.good, l.number}, lost, files
}

// lostRun is what a failed sync had the log give up: from a position to the end of a segment.
type lostRun struct {
	from position
	last uint64
}

func (r lostRun) has(p place) bool { return p.Segment <= r.last && r.from.before(p.end()) }

// givenUpLimit is how many are remembered: a place that is found is used at once, and a failure is at least a commit after the one before.
const givenUpLimit = 16

// gaveUp reports whether a record is lost of which the place was found before.
func (l *log) gaveUp(p place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.givenUp, func(r lostRun) bool { return r.has(p) })
}

// take returns the records to apply that end at or before end, and forgets them.
func (l *log) take(end position) []*record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.queue) && !end.before(l.queue[n].at.end()) {
		n++
	}
	recs := l.queue[:n:n]
	l.queue = append([]*record(nil), l.queue[n:]...)
	return recs
}

// unapplied reports whether there are records that no commit has taken.
func (l *log) unapplied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) > 0
}

// end returns how far the log is written.
func (l *log) end() position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// readMemory reads what is not written yet. ok is false where the place is in the file.
func (l *log) readMemory(p []byte, segment, offset uint64) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.blocks {
		if b.seg.number == segment && offset >= b.offset && offset+uint64(len(p)) <= b.offset+uint64(len(b.data)) {
			copy(p, b.data[offset-b.offset:])
			return true
		}
	}
	return false
}

func (l *log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, seg := range l.unsynced {
		if seg.file != nil {
			errs = append(errs, seg.file.Close())
		}
	}
	l.unsynced = nil
	return errors.Join(errs...)
}
