package storage

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

	"go.etcd.io/bbolt"
)

// run is a part of a body that is on disk, or in the log's memory: a slot of the log, a chunk, or an incoming file.
type run struct {
	start, length uint64    // of the body
	at            place     // of the bytes, where it is in the log
	chunk         []byte    // SHA-256, where it is a chunk, or an incoming file that is about to be one
	in            *incoming // where it is or was an incoming file
}

// extent is the run as a record tells it. ok is false while it is only an incoming file.
func (r *run) extent() (e Extent, ok bool) {
	switch {
	case r.chunk != nil:
		return Extent{Length: r.length, Chunk: r.chunk}, true
	case r.in != nil:
		return Extent{}, false
	}
	return Extent{Length: r.length, Segment: r.at.Segment, Slot: r.at.Slot}, true
}

// findRun returns the run that holds the byte at off. Runs follow each other without a gap.
func findRun(runs []run, off uint64) (run, bool) {
	i, found := slices.BinarySearchFunc(runs, off, func(r run, off uint64) int { return cmp.Compare(r.start, off) })
	if !found {
		i--
	}
	if i < 0 || off >= runs[i].start+runs[i].length {
		return run{}, false
	}
	return runs[i], true
}

// ErrFileGone is a file of the log or a chunk that a session names and that is not there, though nobody deleted the session.
var ErrFileGone = errors.New("the file is gone: millpond verify --repair finds out what is lost")

// orGone tells a file that is not there from a session that is not.
func orGone(n int, err error) (int, error) {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%v: %w", err, ErrFileGone)
	}
	return n, err
}

// orDeleted makes fs.ErrNotExist of an error about something that is gone, where that is because the session was deleted meanwhile.
func (s *Store) orDeleted(id uint64, err error) error {
	if s.index == nil || !errors.Is(err, ErrFileGone) && !errors.Is(err, errGone) { // Verify has no index
		return err
	}
	deleted := false
	if lookErr := s.index.view(func(tx *bbolt.Tx) error {
		deleted = tx.Bucket(bucketRows).Get(idKey(id)) == nil
		return nil
	}); lookErr != nil || !deleted {
		return err
	}
	return fs.ErrNotExist
}

// readRun reads bytes of the run from off of the body on, at most to its end.
func (s *Store) readRun(r run, p []byte, off uint64) (int, error) {
	within := off - r.start
	p = p[:min(uint64(len(p)), r.length-within)]
	switch {
	case r.in != nil:
		return s.readIncoming(r.in, p, within)
	case r.chunk != nil:
		return orGone(s.readFile(chunkName(r.chunk), p, within))
	}
	return s.readLog(p, r.at, within)
}

// readIncoming reads from a file that may become a chunk just now.
func (s *Store) readIncoming(in *incoming, p []byte, at uint64) (int, error) {
	for try := 0; ; try++ {
		in.rec.mu.Lock()
		name := incomingName(in.number)
		if in.chunk != nil {
			name = chunkName(in.chunk)
		}
		in.rec.mu.Unlock()
		if n, err := s.readFile(name, p, at); try > 0 || !errors.Is(err, fs.ErrNotExist) {
			return orGone(n, err)
		}
	}
}

// readLog reads bytes of a record, from memory where they are not written yet. The place ends where the record does, and may begin anywhere in it.
func (s *Store) readLog(p []byte, at place, within uint64) (int, error) {
	if s.log.readMemory(p, at.Segment, at.offset+within) {
		return len(p), nil
	}
	for {
		n, err := s.readFile(generationName(at.Segment, at.generation), p, at.offset+within)
		if !errors.Is(err, fs.ErrNotExist) || !s.moved(&at) {
			return orGone(n, err)
		}
	}
}

// moved looks a place up whose file is gone, and reports whether its segment was rewritten since the place was found.
func (s *Store) moved(at *place) bool {
	if s.index == nil { // Verify has none
		return false
	}
	var now place
	err := s.index.view(func(tx *bbolt.Tx) (err error) {
		now, err = findSlot(tx, at.slotID)
		return err
	})
	if err != nil || now.generation == at.generation || now.length+frameSize < at.length {
		return false
	}
	at.offset, at.generation = now.end().Offset-uint64(at.length), now.generation
	return true
}

func (s *Store) readFile(name string, p []byte, at uint64) (int, error) {
	h, err := s.handles.open(name)
	if err != nil {
		return 0, fmt.Errorf("read body: %w", err)
	}
	defer s.handles.done(h)
	n, err := h.file.ReadAt(p, int64(at))
	switch {
	case n == len(p):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return n, fmt.Errorf("read %s: %w", name, io.ErrUnexpectedEOF) // the index says that there is more
	}
	return n, fmt.Errorf("read %s: %w", name, err)
}

// readSession reads a session's full record.
func (s *Store) readSession(at place) (*Session, error) {
	payload, err := s.readRecord(at)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	out := new(Session)
	if err := decoder.Unmarshal(payload, out); err != nil {
		return nil, fmt.Errorf("read session: %w (%w)", errTorn, err)
	}
	return out, nil
}

// readRecord reads a record's payload, and checks that it is this one and that the log's checksum holds. One that is damaged is errTorn, one that is
// not there errGone.
func (s *Store) readRecord(at place) ([]byte, error) {
	b := make([]byte, frameSize+int(at.length))
	if _, err := s.readLog(b, place{at.slotID, at.offset - frameSize, at.length + frameSize, at.generation}, 0); err != nil {
		if errors.Is(err, ErrFileGone) {
			return nil, fmt.Errorf("%w (%w)", err, errGone)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w (%w)", errTorn, err)
		}
		return nil, err
	}
	payload := b[frameSize:]
	f, ok := parseFrame(b, at.Segment)
	if !ok || f.slot != at.Slot || f.length != at.length || crc32.Checksum(payload, castagnoli) != f.crc {
		return nil, fmt.Errorf("record %d of log segment %d is damaged: %w", at.Slot, at.Segment, errTorn)
	}
	return payload, nil
}

// checkRuns reads the pieces that a stored body has in the log against their checksums: they are small, and what is read of them later is what was checked.
func (s *Store) checkRuns(runs []run) error {
	for _, r := range runs {
		if r.chunk != nil || r.in != nil {
			continue
		}
		if _, err := s.readRecord(place{r.at.slotID, r.at.offset - pieceHeadSize, r.at.length + pieceHeadSize, r.at.generation}); err != nil {
			return err
		}
	}
	return nil
}
