package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// holdMemory is how much memory a recording's body may hold before its bytes are written without waiting for a commit or for the
// body's end: enough to see whether the body is small before choosing where it goes.
const holdMemory = smallBody + BufferSize

// storageWorkers write what recordings hold. They are more than there are processors: a worker that comes back from a system call or a lock queues behind
// every relay that can run, which may be hundreds.
const storageWorkers = 8

// worker writes what recordings hold, until the list of them is closed.
func (s *Store) worker() {
	for r := s.ready.next(); r != nil; r = s.ready.next() {
		s.incomings.await()
		r.mu.Lock()
		r.queued = false
		r.mu.Unlock()
		s.work(r)
	}
}

// work writes what is due of the recording, unless another goroutine is at it.
func (s *Store) work(r *Recording) {
	r.mu.Lock()
	if r.running {
		r.again = true
		r.mu.Unlock()
		return
	}
	r.running = true
	flush, lists := r.flush, r.lists
	r.flush = false
	r.mu.Unlock()

	s.drain(r, Request, flush)
	s.drain(r, Response, flush)
	if lists {
		s.drain(r, messageList, flush) // last, so that what it speaks of is there
	}
	s.finish(r)

	r.mu.Lock()
	r.running = false
	if r.again {
		r.again = false
		r.schedule()
	}
	r.mu.Unlock()
}

// drain writes what a body has in memory. While it can still turn out to be small and whole, and flush is not set, it waits.
func (s *Store) drain(r *Recording, side Side, flush bool) {
	b := &r.bodies[side]
	r.mu.Lock()
	last := b.final(r.ended)
	whole := b.complete && b.missing == ""
	n := len(b.queue)
	batch := b.queue[:n:n]
	bytes, memory := 0, 0
	for _, p := range batch {
		bytes += p.n
		memory += cap(p.buf.B)
	}
	large := b.incoming != nil || b.disk+uint64(bytes) > smallBody
	if n == 0 && whole && !large && b.disk > 0 && !b.lookedUp && !r.finished && s.log.failing() == nil {
		r.mu.Unlock() // all of it is written: it may be what is there already
		if _, err := s.lookUp(r, side, nil, 0); err != nil {
			s.giveUp(r, side, err)
		}
		return
	}
	if n == 0 || !last && !flush && !large && memory <= holdMemory {
		r.mu.Unlock()
		if n == 0 && last && b.incoming != nil {
			s.seal(r, side)
		}
		return
	}
	b.busy = n
	r.mu.Unlock()

	var err error
	if large {
		err = s.drainLarge(r, side, batch)
	} else {
		err = s.drainSmall(r, side, batch, bytes, whole && last)
	}
	if err != nil {
		s.giveUp(r, side, err)
		return
	}
	if last && b.incoming != nil {
		s.seal(r, side)
	}
}

// drainSmall puts the pieces into the log as one record. Where they, with those written before, are a whole body, and an equal one is in the log, it names that
// instead.
func (s *Store) drainSmall(r *Recording, side Side, batch []piece, bytes int, whole bool) error {
	if err := s.log.failing(); err != nil {
		return err
	}
	b := &r.bodies[side]
	parts := make([][]byte, 1, 8) // the first is for the record's head
	for _, p := range batch {
		parts = append(parts, p.buf.B[:p.n])
	}
	var remember func()
	if whole {
		var err error
		if remember, err = s.lookUp(r, side, parts[1:], bytes); err != nil || remember == nil {
			return err
		}
	}
	if err := s.room.take(bytes); err != nil {
		return err
	}
	r.mu.Lock() // also while appending: if the log fails, what it lost is either in runs or not in the log
	if b.lost {
		r.mu.Unlock()
		return errLost
	}
	head := pieceHead{ID: r.id, Side: side, Offset: b.disk, Length: uint64(bytes)}
	encodedHead := head.encode()
	parts[0] = encodedHead[:]
	at := s.log.append(&record{kind: recordPiece, piece: head, rec: r}, parts...)
	at.offset += pieceHeadSize
	at.length -= pieceHeadSize
	b.runs = append(b.runs, run{start: b.disk, length: uint64(bytes), at: at})
	s.written(r, b, len(batch), bytes)
	if remember != nil {
		remember()
	}
	r.mu.Unlock()
	return s.log.flushFull()
}

// lookUp looks for the bytes of a whole body in the log: those that are written, and the rest. Where they are there the body names them, and those that it has written
// itself are for nothing. Else it returns a function that has the body found by the next one, once the rest is in its runs; r.mu is held then.
func (s *Store) lookUp(r *Recording, side Side, rest [][]byte, bytes int) (remember func(), err error) {
	b := &r.bodies[side]
	r.mu.Lock()
	b.lookedUp = true
	runs, size, lost := slices.Clone(b.runs), int(b.disk), b.lost
	r.mu.Unlock()
	if lost {
		return nil, errLost
	}
	if size+bytes > recentBody || len(runs) >= recentPieces {
		return func() {}, nil
	}
	pieces := rest
	if size > 0 {
		buf := NewBuffer()
		defer buf.Free()
		written := buf.B[:0]
		for _, x := range runs {
			n := len(written)
			written = written[:n+int(x.length)]
			if m, err := s.readRun(x, written[n:], x.start); err != nil || m < int(x.length) {
				return func() {}, nil // whoever reads the body is told
			}
		}
		pieces = append([][]byte{written}, rest...)
	}
	key := s.recent.key(pieces)
	if at, ok := s.findRecent(key, pieces); ok {
		if used, err := s.reuse(r, side, at, bytes); used || err != nil {
			return nil, err
		}
	}
	remember = func() {
		at := make([]place, 0, len(b.runs))
		for _, x := range b.runs {
			at = append(at, x.at)
		}
		s.recent.add(key, at...)
	}
	if len(rest) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !b.lost {
			remember()
		}
	}
	return remember, nil
}

// findRecent returns where a body of the same bytes is in the log. Its segments are kept until unpin.
func (s *Store) findRecent(key recentKey, pieces [][]byte) ([]place, bool) {
	at, ok := s.recent.find(key)
	if !ok {
		return nil, false
	}
	buf := NewBuffer()
	defer buf.Free()
	old := buf.B[:key.length]
	equal, n := true, 0
	for _, p := range at {
		if !equal || n+int(p.length) > len(old) {
			equal = false
			break
		}
		m, err := s.readLog(old[n:n+int(p.length)], p, 0)
		equal = err == nil && m == int(p.length)
		n += m
	}
	equal = equal && n == len(old)
	for _, p := range pieces {
		if !equal {
			break
		}
		equal = bytes.Equal(p, old[:len(p)])
		old = old[len(p):]
	}
	if !equal {
		s.recent.unpin(segmentsOf(at))
	}
	return at, equal
}

// reuse lets a whole body name bytes that are in the log already, the last bytes of which are not written. It is false where those were lost since they were found.
func (s *Store) reuse(r *Recording, side Side, at []place, bytes int) (used bool, err error) {
	b := &r.bodies[side]
	r.mu.Lock()
	defer r.mu.Unlock()
	if lost := slices.ContainsFunc(at, s.log.gaveUp); lost || b.lost { // since it was found
		s.recent.unpin(segmentsOf(at))
		if b.lost {
			return false, errLost
		}
		return false, nil
	}
	b.runs = nil
	start := uint64(0)
	for _, p := range at {
		b.runs = append(b.runs, run{start: start, length: uint64(p.length), at: p})
		if !r.ended { // else the session's own record follows
			s.appendNamed(r, side, start, Extent{Length: uint64(p.length), Segment: p.Segment, Slot: p.Slot}, 0)
		}
		start += uint64(p.length)
	}
	r.pinned = append(r.pinned, segmentsOf(at)...)
	s.written(r, b, len(b.queue), bytes)
	return true, nil
}

func (s *Store) appendNamed(r *Recording, side Side, offset uint64, e Extent, number uint64) {
	rec := &record{kind: recordNamed, rec: r, named: named{ID: r.id, Side: side, Offset: offset, Extent: e, Incoming: number}}
	s.appendValue(rec, rec.named)
}

// appendValue appends a record whose payload is v in CBOR.
func (s *Store) appendValue(rec *record, v any) place {
	var at place
	if err := encoded(v, func(b []byte) error {
		at = s.log.append(rec, b)
		return nil
	}); err != nil {
		panic(err) // our own types
	}
	return at
}

// written takes the first n pieces off the queue: their bytes are in runs now. r.mu is held.
func (s *Store) written(r *Recording, b *body, n, bytes int) {
	b.disk += uint64(bytes)
	memory := 0
	for i, p := range b.queue[:n] {
		memory += cap(p.buf.B)
		p.buf.Free()
		b.queue[i] = piece{}
	}
	b.queue = b.queue[n:]
	if len(b.queue) == 0 {
		b.queue = nil
	}
	b.busy = max(b.busy-n, 0)
	r.share.release(memory)
}

// errLost is what a worker meets whose body lost bytes that were on disk. It was cut then.
var errLost = errors.New("bytes of the body were lost")

// lose ends the capture of a body at the start of a file that failed to sync: what it holds is not certain any more.
func (s *Store) lose(in *incoming, err error) {
	r := in.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	in.lost = true
	b := &r.bodies[in.side]
	if i := slices.IndexFunc(b.runs, func(x run) bool { return x.in == in }); i >= 0 {
		r.truncate(in.side, i, reason(err))
	}
}

// giveUp ends the capture of a body that could not be written: it keeps what is on disk.
func (s *Store) giveUp(r *Recording, side Side, err error) {
	if !errors.Is(err, errLost) {
		s.problem(err)
	}
	if diskFull(err) && !errors.Is(err, errNoRoom) {
		s.room.refuse()
	}
	b := &r.bodies[side]
	r.mu.Lock()
	b.kept = b.disk
	s.written(r, b, len(b.queue), 0)
	r.cut(side, reason(err))
	r.mu.Unlock()
	if b.incoming != nil {
		s.seal(r, side)
	}
}

// reason says for people why a write failed.
func reason(err error) string {
	if diskFull(err) {
		return "the disk is full"
	}
	if errors.Is(err, errDirGone) {
		return errDirGone.Error()
	}
	return fmt.Sprintf("the disk failed: %v", err)
}

// finish appends the session's full record once it has ended and all it speaks of has a lasting place.
func (s *Store) finish(r *Recording) {
	r.mu.Lock()
	if !r.ended || r.finished || r.naming > 0 || r.holds() || r.large() {
		r.mu.Unlock()
		return
	}
	r.finished = true
	r.share.close()
	if r.deleted {
		rec := &record{kind: recordDeleted, gone: deletion{IDs: []uint64{r.id}}, rec: r}
		s.appendValue(rec, rec.gone)
	} else {
		s.keepChain(r)
		session := r.snapshot()
		s.appendValue(&record{kind: recordEnded, session: &session, rec: r}, &session)
	}
	r.mu.Unlock()
	if err := s.log.flushFull(); err != nil {
		s.problem(err)
	}
}
