package storage

import (
	"fmt"
	"io"
	"io/fs"

	"go.etcd.io/bbolt"
)

// bodySource is what a BodyReader reads: a body in its last form, one that is being recorded, or a derived file.
type bodySource interface {
	io.ReaderAt             // past the bytes there are it returns io.EOF with what there is
	Size() int64            // readable now; only grows
	Complete() bool         // nothing will be added, and nothing is missing
	Final() bool            // nothing will be added
	Grown() <-chan struct{} // closed at the next growth or when final
	Close() error
}

// BodyReader reads a body at any offset, also while it grows. ReadAt past the bytes captured so far returns io.EOF with what there is.
type BodyReader struct{ bodySource }

// Body opens what is kept of a body. An unknown id, or a body cut short before its first byte, is fs.ErrNotExist; one whose files are lost ErrFileGone, here or where it is read.
func (s *Store) Body(id uint64, side Side) (*BodyReader, error) {
	if r := s.live.get(id); r != nil {
		r.mu.Lock()
		b := &r.bodies[side]
		deleted, none := r.deleted, b.missing != "" && b.kept == 0 || side == messageList && r.session.Messages == nil
		r.mu.Unlock()
		if deleted || none {
			return nil, fmt.Errorf("open %s body of session %d: %w", side, id, fs.ErrNotExist)
		}
		return &BodyReader{&liveBody{r, side}}, nil
	}
	var body Body
	var runs []run
	err := s.stored(id, func(tx *bbolt.Tx, session *Session) (err error) {
		kept := session.stream(side)
		if kept == nil {
			return fs.ErrNotExist
		}
		body = *kept
		runs, err = storedRuns(tx, body.Extents)
		return err
	})
	if err == nil && body.Missing != "" && body.Size == 0 {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = s.orDeleted(id, s.checkRuns(runs))
	}
	if err != nil {
		return nil, fmt.Errorf("open %s body of session %d: %w", side, id, err)
	}
	return &BodyReader{&storedBody{s, id, runs, body}}, nil
}

// stored calls fn with a session's record from the log, and a transaction in which the slots it names are looked up.
func (s *Store) stored(id uint64, fn func(*bbolt.Tx, *Session) error) error {
	var at place
	err := s.index.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketRows).Get(idKey(id))
		if v == nil {
			return fs.ErrNotExist
		}
		row, _, err := rowPlaceOf(v)
		if err != nil {
			return err
		}
		at, err = findSlot(tx, row.record)
		return err
	})
	if err != nil {
		return err
	}
	session, err := s.readSession(at)
	if err == nil && session.ID != id {
		err = fmt.Errorf("read session: its record is that of session %d: %w", session.ID, errTorn) // the index lies
	}
	if err == nil {
		err = s.index.view(func(tx *bbolt.Tx) error { return fn(tx, session) })
	}
	return s.orDeleted(id, err)
}

// storedRuns looks up where the extents' bytes are.
func storedRuns(tx *bbolt.Tx, extents []Extent) ([]run, error) {
	runs := make([]run, 0, len(extents))
	start := uint64(0)
	for _, e := range extents {
		r := run{start: start, length: e.Length, chunk: e.Chunk}
		if len(e.Chunk) == 0 {
			at, err := findSlot(tx, slotID{e.Segment, e.Slot})
			if err != nil {
				return nil, err
			}
			at.offset += pieceHeadSize
			at.length -= min(at.length, pieceHeadSize)
			r.at = at
		}
		runs = append(runs, r)
		start += e.Length
	}
	return runs, nil
}

// storedBody is a body of a session that the index knows whole.
type storedBody struct {
	store *Store
	id    uint64
	runs  []run
	body  Body
}

func (b *storedBody) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read body at %d: %w", off, fs.ErrInvalid)
	}
	n := 0
	for n < len(p) {
		r, ok := findRun(b.runs, uint64(off)+uint64(n))
		if !ok {
			return n, io.EOF
		}
		m, err := b.store.readRun(r, p[n:], uint64(off)+uint64(n))
		n += m
		if err != nil {
			return n, b.store.orDeleted(b.id, err)
		}
	}
	return n, nil
}

func (b *storedBody) Size() int64            { return int64(b.body.Size) }
func (b *storedBody) Complete() bool         { return b.body.Complete }
func (b *storedBody) Final() bool            { return true }
func (b *storedBody) Grown() <-chan struct{} { return closedChannel }
func (b *storedBody) Close() error           { return nil }

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// liveBody is a body of a session that is being recorded, or ended since the last commit.
type liveBody struct {
	rec  *Recording
	side Side
}

func (b *liveBody) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read body at %d: %w", off, fs.ErrInvalid)
	}
	n := 0
	for n < len(p) {
		m, err := b.readSome(p[n:], uint64(off)+uint64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readSome reads at least one byte, from one run or buffer.
func (b *liveBody) readSome(p []byte, off uint64) (int, error) {
	r := b.rec
	r.mu.Lock()
	body := &r.bodies[b.side]
	if off >= body.kept {
		r.mu.Unlock()
		return 0, io.EOF
	}
	if off < body.disk {
		from, ok := findRun(body.runs, off)
		r.mu.Unlock()
		if !ok {
			return 0, fmt.Errorf("read body at %d: %w", off, errGone)
		}
		n, err := r.store.readRun(from, p, off)
		return n, r.store.orDeleted(r.id, err)
	}
	defer r.mu.Unlock()
	at := body.kept // where the queue begins: it may still hold bytes that are on disk
	for _, q := range body.queue {
		at -= uint64(q.n)
	}
	for _, q := range body.queue {
		if off < at+uint64(q.n) {
			return copy(p, q.buf.B[off-at:q.n]), nil
		}
		at += uint64(q.n)
	}
	return 0, io.EOF
}

func (b *liveBody) Size() int64 {
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	return int64(b.rec.bodies[b.side].kept)
}

func (b *liveBody) Complete() bool {
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	body := &b.rec.bodies[b.side]
	return body.complete && body.missing == ""
}

func (b *liveBody) Final() bool {
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	return b.rec.bodies[b.side].final(b.rec.ended)
}

func (b *liveBody) Grown() <-chan struct{} {
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	body := &b.rec.bodies[b.side]
	if body.final(b.rec.ended) {
		return closedChannel
	}
	if body.grown == nil {
		body.grown = make(chan struct{})
	}
	return body.grown
}

func (b *liveBody) Close() error { return nil }
