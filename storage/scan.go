package storage

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

const (
	scanBatch = 1024                  // rows read in one transaction
	scanTime  = 50 * time.Millisecond // a transaction's longest
)

// Session returns the whole record, also of an open session. An unknown id is fs.ErrNotExist, a record whose segment is lost ErrFileGone.
func (s *Store) Session(id uint64) (Session, error) {
	session, err := s.session(id)
	if err == nil {
		s.fillDigests(&session)
	}
	return session, err
}

func (s *Store) session(id uint64) (session Session, err error) {
	if r := s.live.get(id); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.deleted {
			return r.snapshot(), nil
		}
		return Session{}, fmt.Errorf("read session %d: %w", id, fs.ErrNotExist)
	}
	err = s.stored(id, func(_ *bbolt.Tx, stored *Session) error {
		session = *stored
		return nil
	})
	if err != nil {
		return Session{}, fmt.Errorf("read session %d: %w", id, err)
	}
	return session, nil
}

// Row returns one row. An unknown id is fs.ErrNotExist.
func (s *Store) Row(id uint64) (Row, error) {
	var row Row
	if r := s.live.get(id); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.deleted {
			return r.row(), nil
		}
		return row, fmt.Errorf("read row %d: %w", id, fs.ErrNotExist)
	}
	err := s.index.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketRows).Get(idKey(id))
		if v == nil {
			return fs.ErrNotExist
		}
		return decodeRow(&row, id, v, s.index.dict.snapshot())
	})
	if err != nil {
		return row, fmt.Errorf("read row %d: %w", id, err)
	}
	return row, nil
}

// Scan calls fn for each session with an id in [from, to), in rising order, until fn returns false. A row is fn's until it returns.
// No transaction is held for longer than 50 ms, and none while fn runs.
func (s *Store) Scan(from, to uint64, fn func(*Row) bool) error {
	return s.scan(from, to, false, fn)
}

// ScanDown is Scan in falling order.
func (s *Store) ScanDown(from, to uint64, fn func(*Row) bool) error {
	return s.scan(from, to, true, fn)
}

func (s *Store) scan(from, to uint64, down bool, fn func(*Row) bool) error {
	var rows []Row
	for size := 64; from < to; size = min(2*size, scanBatch) { // the first rows at once, then many at a time
		var rest [2]uint64
		var err error
		rows, rest, err = s.scanSome(rows[:0], from, to, down, size)
		if err != nil {
			return fmt.Errorf("scan sessions: %w", err)
		}
		for i := range rows {
			if !fn(&rows[i]) {
				return nil
			}
		}
		if from, to = rest[0], rest[1]; len(rows) == 0 && from < to {
			continue
		}
	}
	return nil
}

// scanSome appends to rows those of the beginning of the range, and returns them and what is left of it. Sessions that end and are committed meanwhile are
// found either among the live, which are looked at first, or in the index.
func (s *Store) scanSome(rows []Row, from, to uint64, down bool, size int) (_ []Row, rest [2]uint64, err error) {
	live := s.live.between(from, to)
	rest = [2]uint64{to, to}
	err = s.index.view(func(tx *bbolt.Tx) error {
		start := time.Now()
		words := s.index.dict.snapshot() // after the transaction began, so that it has every word of it
		c := tx.Bucket(bucketRows).Cursor()
		read := 0
		k, v := seek(c, from, to, down)
		for ; k != nil && inside(k, from, to); k, v = step(c, down) {
			id := binary.BigEndian.Uint64(k)
			if len(rows) == size || len(rows)%64 == 63 && time.Since(start) > scanTime {
				if rest = [2]uint64{id, to}; down {
					rest = [2]uint64{from, id + 1}
				}
				break
			}
			read += len(v)
			rows = append(rows, Row{})
			if err := decodeRow(&rows[len(rows)-1], id, v, words); err != nil {
				return err
			}
		}
		s.index.wasRead(tx, read)
		return nil
	})
	if err != nil {
		return nil, rest, err
	}
	covered := func(id uint64) bool { return rest[0] == rest[1] || (down && id >= rest[1]) || (!down && id < rest[0]) }
	return mergeLive(rows, live, covered, down), rest, nil
}

// mergeLive puts the live sessions' rows in the place of the stored ones. A live session that turns up stored with its end is as the index says.
func mergeLive(rows []Row, live []*Recording, covered func(uint64) bool, down bool) []Row {
	order := func(a, b uint64) int {
		if down {
			return compare(b, a)
		}
		return compare(a, b)
	}
	added := false
	var hidden map[uint64]bool
	stored := len(rows)
	for _, r := range live {
		if !covered(r.id) {
			continue
		}
		r.mu.Lock()
		row, deleted := r.row(), r.deleted
		r.mu.Unlock()
		i, found := slices.BinarySearchFunc(rows[:stored], r.id, func(row Row, id uint64) int { return order(row.ID, id) })
		switch {
		case deleted && found:
			if hidden == nil {
				hidden = make(map[uint64]bool)
			}
			hidden[r.id] = true
		case deleted, found && rows[i].State != Open:
		case found:
			rows[i] = row
		default:
			rows = append(rows, row)
			added = true
		}
	}
	if hidden != nil {
		rows = slices.DeleteFunc(rows, func(r Row) bool { return hidden[r.ID] })
	}
	if added {
		slices.SortFunc(rows, func(a, b Row) int { return order(a.ID, b.ID) })
	}
	return rows
}

func seek(c *bbolt.Cursor, from, to uint64, down bool) (k, v []byte) {
	if !down {
		return c.Seek(idKey(from))
	}
	if k, _ = c.Seek(idKey(to)); k == nil {
		return c.Last()
	}
	return c.Prev()
}

func step(c *bbolt.Cursor, down bool) (k, v []byte) {
	if down {
		return c.Prev()
	}
	return c.Next()
}

func inside(k []byte, from, to uint64) bool {
	id := binary.BigEndian.Uint64(k)
	return id >= from && id < to
}
