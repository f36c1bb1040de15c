package storage

import "time"

// writeInterval is how long what ends waits in memory for more to write. What ended 100 ms ago must be written, and a busy machine takes its part of that.
const writeInterval = 50 * time.Millisecond

// writer writes what recordings hold in memory, each writeInterval while there is work. The committer cannot do that: a sync may hold it up
// for seconds, and what is written before the process is killed survives whether it is synced or not.
// It ends after the round that follows closing.
func (s *Store) writer(closing <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	for {
		wait := time.Hour
		if _, open := s.incomings.count(); open > 0 {
			wait = tellInterval
		}
		select {
		case <-closing:
			s.write()
			return
		case <-s.noted.hint:
		case <-time.After(wait):
		}
		select {
		case <-closing:
		case <-time.After(writeInterval):
		}
		s.write()
		select {
		case s.wrote <- struct{}{}:
		default: // the committer has not come to what was written before
		}
	}
}

// write does one round: what is noted, and the marks that are due, go to the log, and the log to its file. A failure is the next commit's to
// meet and to tell: it writes what is still in memory.
func (s *Store) write() {
	s.flushNoted()
	s.reserveIDs()
	s.markSlow()
	_ = s.log.flush()
}

// flushNoted appends what sessions have in memory: their fields, and bytes of their bodies. One that has ended, and whose last record waits for
// files to be synced, is told as it is: if those files prove whole at the next start, so is the session.
func (s *Store) flushNoted() {
	noted := s.noted.take()
	ids := make([]uint64, 0, len(noted))
	for _, r := range noted {
		ids = append(ids, r.id)
		r.mu.Lock()
		r.noted = false
		var begun *Session
		large := r.large()
		told := r.ended && (r.finished || r.naming == 0 && !large)
		if r.unsaved && !told && !r.deleted && s.log.failing() == nil {
			s.keepChain(r)
			snapshot := r.snapshot()
			for side := range snapshot.Sides {
				snapshot.Sides[side].Body.Extents = nil // pieces, marks and names tell of them
			}
			if snapshot.Messages != nil {
				snapshot.Messages.List.Extents = nil
			}
			begun, r.unsaved, r.begun = &snapshot, false, true
		}
		r.flush = true
		if large && r.holds() {
			r.schedule()
		}
		if begun != nil {
			s.appendValue(&record{kind: recordBegun, session: begun, rec: r}, begun)
		}
		r.mu.Unlock()
		if !large {
			s.work(r)
		}
	}
	s.feeds.publish(ids...)
}

// reserveIDs keeps the ids that the log lets be given ahead of those that are.
func (s *Store) reserveIDs() {
	if last := s.live.newest(); last+reserve/2 > s.reserved.Load() && s.log.unapplied() {
		s.reserved.Store(last + reserve)
		rec := &record{kind: recordReserved, ids: reservation{Through: last + reserve, Cutoff: s.cutoff.Load()}}
		s.appendValue(rec, rec.ids)
	}
}

// markSlow marks files that are filled slowly: what was written tellInterval ago is told. A mark is checked against the file when it is
// used, so one of bytes that a power cut takes does no harm.
func (s *Store) markSlow() {
	now := s.now()
	for _, in := range s.incomings.opened() {
		in.rec.mu.Lock()
		if now.Sub(in.toldAt) >= tellInterval {
			s.tell(in, now)
		}
		in.rec.mu.Unlock()
	}
}

// tell appends a mark of what the file has beyond the last one. in.rec.mu is held.
func (s *Store) tell(in *incoming, now time.Time) {
	if in.sealed || in.length <= in.told {
		return
	}
	in.told, in.toldAt = in.length, now
	rec := in.record()
	s.appendValue(rec, rec.mark)
}
