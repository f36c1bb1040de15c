package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// logFailed goes on after a write or a sync of the log that failed. What was appended since the last good sync is lost: bodies end before
// their first lost byte, and what else was said is said again, in a new segment.
func (s *Store) logFailed(err error) {
	gone, lost, files := s.log.abandon(err)
	for _, name := range files {
		if !errors.Is(err, errDirGone) { // else a file of that name is another
			s.removeFile(name)
		}
	}
	s.tail = gone.from
	s.recent.forgetAll()
	ended := make(map[*Recording]bool)
	for _, rec := range lost {
		if rec.rec != nil {
			ended[rec.rec] = ended[rec.rec] || rec.kind == recordEnded || rec.kind == recordDeleted
			continue
		}
		s.sayAgain(rec)
	}
	for _, r := range s.live.all() {
		s.relog(r, gone, ended[r], err)
	}
}

// cutTail takes off its segment what the log gave up, once the disk works again. The next segment's head says where it ends, but that segment may go.
func (s *Store) cutTail() error {
	if s.tail.Segment == 0 {
		return nil
	}
	f, err := s.files.OpenFile(segmentName(s.tail.Segment), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		s.tail = position{}
		return nil
	}
	if err != nil {
		return fmt.Errorf("cut log segment: %w", err)
	}
	if size, sizeErr := f.Size(); sizeErr != nil || uint64(size) > s.tail.Offset {
		if err = f.Truncate(int64(s.tail.Offset)); err == nil {
			err = f.Sync()
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cut log segment: %w", err)
	}
	s.tail = position{}
	return nil
}

// sayAgain appends a lost record that belongs to no live session.
func (s *Store) sayAgain(lost *record) {
	rec := &record{kind: lost.kind, session: lost.session, gone: lost.gone, ids: lost.ids}
	switch lost.kind {
	case recordEnded: // of a session that was amended
		s.appendValue(rec, rec.session)
	case recordDeleted, recordDoomed:
		s.appendValue(rec, rec.gone)
	case recordReserved:
		s.appendValue(rec, rec.ids)
	}
}

// relog says again what the log says of a live session, but for bytes that are lost: its bodies end before the first of those.
// endLost tells that its last record was lost.
func (s *Store) relog(r *Recording, gone lostRun, endLost bool, err error) {
	r.mu.Lock()
	stands := r.finished && !endLost // its last record does: what is said after that would open the session again, but for another last record
	if r.unkept || stands && !r.names(gone) {
		r.mu.Unlock()
		return
	}
	r.begun, r.unsaved = false, !stands
	r.session.Certificates = nil // the next record says where they are then
	again := r.finished
	for side := range r.bodies {
		b := &r.bodies[side]
		for i, x := range b.runs {
			if x.in == nil && x.chunk == nil && gone.has(x.at) {
				r.truncate(Side(side), i, reason(err))
				again = again || r.finished
				break
			}
		}
		for _, x := range b.runs {
			if stands {
				break
			}
			if x.chunk != nil {
				s.appendNamed(r, Side(side), x.start, Extent{Length: x.length, Chunk: x.chunk}, x.in.number)
			} else if x.in != nil {
				rec := x.in.record()
				s.appendValue(rec, rec.mark)
			}
		}
	}
	if again {
		r.finished = false
	}
	r.note()
	r.mu.Unlock()
	s.finish(r)
}

// names reports whether what is lost may be named by the session: by the last record of one that ended in that moment. r.mu is held.
func (r *Recording) names(gone lostRun) bool {
	if r.session.Certificates != nil && gone.has(r.chainAt) {
		return true
	}
	for i := range r.bodies {
		for _, x := range r.bodies[i].runs {
			if x.in == nil && x.chunk == nil && gone.has(x.at) {
				return true
			}
		}
	}
	return false
}

// truncate cuts a body before one of its runs. r.mu is held.
func (r *Recording) truncate(side Side, at int, why string) {
	b := &r.bodies[side]
	b.kept, b.disk = b.runs[at].start, b.runs[at].start
	for _, x := range b.runs[at:] {
		if x.in != nil {
			x.in.lost = true
		}
	}
	b.runs = b.runs[:at]
	b.sha, b.lost = nil, true
	r.cut(side, why)
	r.schedule() // a worker frees the queue: it may be at it now
}

// noteUnsaved puts all that the log does not tell on the list of those the next commit looks at: while the log failed it took nothing of open sessions.
func (s *Store) noteUnsaved() {
	for _, r := range s.live.all() {
		r.mu.Lock()
		if r.unsaved && !r.finished {
			r.note()
		}
		r.mu.Unlock()
	}
}

// probe gives the log something to write while it fails, so that it shows when the disk works again.
func (s *Store) probe() {
	if s.log.failing() == nil || s.log.unapplied() {
		return
	}
	rec := &record{kind: recordReserved, ids: reservation{Through: s.reserved.Load(), Cutoff: s.cutoff.Load()}}
	s.appendValue(rec, rec.ids)
}
