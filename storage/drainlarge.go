package storage

import "slices"

// drainLarge writes the pieces to incoming files.
func (s *Store) drainLarge(r *Recording, side Side, batch []piece) error {
	b := &r.bodies[side]
	if b.incoming == nil && b.disk > 0 && b.disk <= smallBody {
		if err := s.moveFromLog(r, side); err != nil {
			return err
		}
	}
	for _, p := range batch {
		for rest := p.buf.B[:p.n]; len(rest) > 0; {
			n, err := s.writeIncoming(r, side, rest)
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		r.mu.Lock()
		if b.lost {
			r.mu.Unlock()
			return errLost
		}
		b.disk -= uint64(p.n) // writeIncoming counted them, as does written
		s.written(r, b, 1, p.n)
		r.mu.Unlock()
		s.budget.progress()
	}
	return nil
}

// writeIncoming writes the start of p to the body's incoming file, as much as fits, and returns how much that was.
func (s *Store) writeIncoming(r *Recording, side Side, p []byte) (int, error) {
	b := &r.bodies[side]
	if b.incoming == nil {
		in, err := s.newIncoming(r, side, b.disk)
		if err != nil {
			return 0, err
		}
		r.mu.Lock()
		b.incoming = in
		if b.lost {
			r.mu.Unlock()
			return 0, errLost
		}
		b.runs = append(b.runs, run{start: in.start, in: in})
		r.mu.Unlock()
	}
	in := b.incoming
	p = p[:min(len(p), in.room(), int(in.marked+markInterval-in.length))]
	var length uint64
	var crc uint32
	if err := s.room.spend(len(p), func() (err error) {
		length, crc, err = in.write(p)
		return err
	}); err != nil {
		return 0, err
	}
	r.mu.Lock()
	if b.lost {
		r.mu.Unlock()
		return 0, errLost
	}
	in.length, in.crc = length, crc
	s.incomings.bytes.Add(uint64(len(p)))
	b.runs[len(b.runs)-1].length = length
	b.disk = in.start + length
	r.mu.Unlock()
	if in.room() == 0 {
		s.seal(r, side)
	} else if length-in.marked >= markInterval {
		return len(p), s.mark(in)
	}
	return len(p), nil
}

// mark puts into the log, and out to its file, how far the incoming file is good.
func (s *Store) mark(in *incoming) error {
	in.rec.mu.Lock()
	rec := in.record()
	in.marked, in.told, in.toldAt = rec.mark.Length, rec.mark.Length, s.now()
	s.appendValue(rec, rec.mark)
	in.rec.mu.Unlock()
	return s.log.flush()
}

// seal hands the body's incoming file to the committer, or removes it where it is empty. A last mark lets a SIGKILL before that cost nothing.
func (s *Store) seal(r *Recording, side Side) {
	b := &r.bodies[side]
	in := b.incoming
	if in.length == 0 { // not even its first write worked
		r.mu.Lock()
		b.incoming = nil
		b.runs = slices.DeleteFunc(b.runs, func(x run) bool { return x.in == in })
		r.mu.Unlock()
		s.discard(in)
		return
	}
	if in.length > in.marked {
		_ = s.mark(in) // a failure shows at the next commit
	}
	r.mu.Lock()
	b.incoming = nil
	in.sealed = true
	r.naming++
	if in.start == 0 && b.final(r.ended) && len(b.queue) == 0 {
		b.sha = in.sha.Sum(nil)
	}
	r.note()
	r.mu.Unlock()
	s.incomings.seal(in)
}

// moveFromLog copies a body that has outgrown the log from there to an incoming file, which takes its place.
func (s *Store) moveFromLog(r *Recording, side Side) error {
	b := &r.bodies[side]
	in, err := s.newIncoming(r, side, 0)
	if err != nil {
		return err
	}
	if err := s.room.spend(int(b.disk), func() error { return s.copyRuns(in, b.runs) }); err != nil {
		s.discard(in)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b.incoming = in
	if b.lost {
		return errLost
	}
	b.runs = []run{{length: in.length, in: in}}
	return nil
}

// copyRuns writes bytes that are in the log to an incoming file.
func (s *Store) copyRuns(in *incoming, runs []run) error {
	buf := NewBuffer()
	defer buf.Free()
	for _, from := range runs {
		for at := from.start; at < from.start+from.length; {
			n, err := s.readRun(from, buf.B, at)
			if err != nil {
				return err
			}
			length, crc, err := in.write(buf.B[:n])
			if err != nil {
				return err
			}
			in.rec.mu.Lock() // the committer may be marking it
			in.length, in.crc = length, crc
			s.incomings.bytes.Add(uint64(n))
			in.rec.mu.Unlock()
			at += uint64(n)
		}
	}
	return nil
}

// discard removes an incoming file that no record speaks of.
func (s *Store) discard(in *incoming) {
	s.incomings.drop(in)
	s.incomings.bytes.Add(-in.length)
	in.file.Close()
	if err := s.files.Remove(incomingName(in.number)); err != nil {
		s.logger.Warn("remove incoming file", "error", err)
	}
}
