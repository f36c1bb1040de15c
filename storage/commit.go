package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"
)

// commitInterval is from the start of one commit to that of the next, at least.
const commitInterval = 100 * time.Millisecond

// syncWorkers sync files at once: 300 growing files take 145 ms one after the other, 44 ms by 16.
const syncWorkers = 16

// committer makes durable what the writer wrote, at most each commitInterval, while there is work. It ends after the commit that
// follows the writer's end.
func (s *Store) committer(written <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	for {
		select {
		case <-written:
			s.commit()
			return
		case <-s.wrote:
		case <-time.After(s.due()):
		}
		begun := time.Now()
		s.commit()
		took := time.Since(begun)
		rest := max(commitInterval-took, min(took, commitInterval)) // a slow disk has time for other things, too
		select {
		case <-written:
		case <-time.After(rest):
		}
	}
}

// due returns when there is something to do that the writer will not announce.
func (s *Store) due() time.Duration {
	full, open := s.incomings.count()
	switch {
	case s.trouble.Load() != nil || open > 0:
		return time.Second
	case full > 0 || s.log.unapplied():
		return commitInterval
	}
	return time.Hour
}

// commit does one round: sync full incoming files; append the records that speak of them; sync the log; name the chunks; update
// the index; forget what it now knows. An error says for people why what was appended before the call does not stand yet.
func (s *Store) commit() error {
	s.committing.Lock()
	defer s.committing.Unlock()
	err := s.tryCommit()
	if diskFull(err) && s.makeWay(err) {
		err = s.tryCommit()
	}
	if err != nil {
		s.problem(err)
		return fmt.Errorf("commit: %s", reason(err))
	}
	s.solved()
	return nil
}

func (s *Store) tryCommit() error {
	s.flushNoted()
	s.probe()
	full, open := s.incomings.take()
	s.syncStale(open)
	s.syncAll(full, (*incoming).sync)
	for _, in := range full {
		s.named(in)
	}
	s.chunksToName = append(s.chunksToName, full...)
	if err := s.log.flush(); err != nil {
		if !diskFull(err) {
			s.logFailed(err)
		}
		return err
	}
	s.budget.progress()
	end := s.log.end()
	failed := s.log.failing() != nil
	if err := s.log.sync(); err != nil {
		s.logFailed(err)
		return err
	}
	if failed {
		s.noteUnsaved()
	}
	if err := s.finishIndex(); err != nil { // before a chunk is looked up in it
		return err
	}
	if err := s.cutTail(); err != nil {
		return err
	}
	if err := s.nameChunks(); err != nil {
		return err
	}
	return s.applyThrough(end)
}

// syncStale syncs files that are filled slowly: those written to whose last sync is syncInterval ago. Then it marks them.
func (s *Store) syncStale(open []*incoming) {
	var stale []*incoming
	now := s.now()
	for _, in := range open {
		in.rec.mu.Lock()
		if !in.sealed && now.Sub(in.synced) >= syncInterval {
			in.synced = now
			stale = append(stale, in)
		}
		in.rec.mu.Unlock()
	}
	if len(stale) == 0 {
		return
	}
	if err := s.files.SyncDir("incoming"); err != nil {
		s.problem(err)
	}
	s.syncAll(stale, func(in *incoming) error { return in.file.Sync() }) // its worker may be writing to it
	for _, in := range stale {
		in.rec.mu.Lock()
		s.tell(in, now)
		in.rec.mu.Unlock()
	}
}

// syncAll syncs the files, several at once. One that fails ends the capture of its body: what it holds is not certain any more.
func (s *Store) syncAll(files []*incoming, flush func(*incoming) error) {
	var all sync.WaitGroup
	slots := make(chan struct{}, syncWorkers)
	for _, in := range files {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := flush(in); err != nil && !errors.Is(err, fs.ErrClosed) {
				s.problem(err)
				s.lose(in, err)
			}
		})
	}
	all.Wait()
	if len(files) > 0 {
		s.budget.progress()
	}
}

// named appends that the file is a chunk, and what waited for that.
func (s *Store) named(in *incoming) {
	r := in.rec
	sum := in.sha.Sum(nil)
	r.mu.Lock()
	lost := in.lost
	length := in.length
	b := &r.bodies[in.side]
	i := slices.IndexFunc(b.runs, func(x run) bool { return x.in == in })
	if lost = lost || i < 0; !lost {
		b.runs[i].chunk = sum
	}
	in.lost = lost
	r.naming--
	if !lost {
		s.appendNamed(r, in.side, in.start, Extent{Length: length, Chunk: sum}, in.number)
	}
	r.mu.Unlock()
	in.sum = sum
	s.finish(r)
}

// nameChunks moves synced files, of which synced records of the log speak, to their names as chunks. A chunk that the index has
// already is the same bytes: the file goes once the index counts it.
func (s *Store) nameChunks() error {
	dirs := make(map[string]bool)
	for _, in := range s.chunksToName {
		if in.lost || in.named {
			continue
		}
		name := chunkName(in.sum)
		if s.index.hasChunk(in.sum) || s.fresh[string(in.sum)] {
			in.duplicate = true
		} else if s.hold.keep(name) { // a backup kept it where it is, whole and synced
			in.duplicate, s.fresh[string(in.sum)] = true, true
		} else {
			if err := s.rename(incomingName(in.number), name); err != nil {
				return err
			}
			s.fresh[string(in.sum)] = true
			dirs[path.Dir(name)] = true
		}
		in.named = true
		in.rec.mu.Lock()
		in.chunk = in.sum
		in.rec.mu.Unlock()
		s.handles.drop(incomingName(in.number))
		in.file.Close()
		in.sha = nil
	}
	for dir := range dirs {
		if err := s.files.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) rename(from, to string) error {
	err := s.files.Rename(from, to)
	if errors.Is(err, fs.ErrExist) { // of no body any more, as the index says: it could not be removed, or was not
		s.handles.drop(to)
		if err := s.files.Remove(to); err != nil {
			return err
		}
		err = s.files.Rename(from, to)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.files.Mkdir(path.Dir(to)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := s.files.SyncDir("chunks"); err != nil {
			return err
		}
		err = s.files.Rename(from, to)
	}
	return err
}

// applyThrough takes the records up to end into the index.
func (s *Store) applyThrough(end position) error {
	s.toApply = append(s.toApply, s.log.take(end)...)
	if s.index.damaged.Load() && !s.lookedThrough {
		if err := s.lookThrough(end); err != nil {
			return err
		}
	}
	if len(s.toApply) == 0 {
		return nil
	}
	gone, err := s.index.apply(s.toApply, end, s.readSession, s.recent.mayRemove, s.dead...)
	if err != nil {
		s.leftOver = true
		_ = s.recoverIndex(err, end) // told by now
		return err
	}
	s.committed(s.toApply)
	s.toApply, s.dead = nil, nil
	s.unlink(gone)
	s.cleaning.add(gone.sparse...)
	s.retention.look()
	for _, in := range s.chunksToName {
		s.incomings.bytes.Add(-in.length)
		if in.duplicate || in.lost {
			s.removeFile(incomingName(in.number))
		}
	}
	s.chunksToName = nil
	clear(s.fresh)
	return nil
}

// committed lets go of the sessions that the index now has whole.
func (s *Store) committed(recs []*record) {
	var gone []*Recording
	var ids, pinned []uint64
	for _, rec := range recs {
		if rec.rec != nil && (rec.kind == recordEnded || rec.kind == recordDeleted) {
			gone = append(gone, rec.rec)
			ids = append(ids, rec.rec.id)
			s.digestMissing(rec)
			rec.rec.mu.Lock()
			pinned = append(pinned, rec.rec.pinned...)
			rec.rec.mu.Unlock()
		}
	}
	s.waiting.Add(-s.live.forget(gone))
	s.crowd.disperse()
	s.recent.unpin(pinned)
	s.feeds.publish(ids...)
}

// digestMissing has the large bodies of an ended session hashed whose digest was not made while they were recorded.
func (s *Store) digestMissing(rec *record) {
	if rec.session == nil {
		return
	}
	for side := range rec.session.Sides {
		if b := &rec.session.Sides[side].Body; b.Size > smallBody && b.SHA256 == nil {
			s.digestLater(digestJob{id: rec.session.ID, side: Side(side)})
		}
	}
}

// unlink removes from disk what nothing names any more.
func (s *Store) unlink(gone dropped) {
	s.dead = append(s.dead, gone.pinned...)
	for _, name := range gone.segments {
		s.removeFile(name)
	}
	for _, sum := range gone.chunks {
		s.removeFile(chunkName([]byte(sum)))
	}
}

// removeFile removes a file, at the end of a backup where one runs.
func (s *Store) removeFile(name string) {
	if s.hold.take(name) {
		return
	}
	s.handles.drop(name)
	if err := s.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("remove file", "name", name, "error", err)
	}
}
