package storage

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// check looks through the whole database: that its pages hold together, and that the values can be read. It costs the reading of the file, some
// 250 MB for a million sessions. An error is errIndexDamaged.
func (ix *index) check() error {
	if err := ix.view(ix.checkIn); err != nil {
		return fmt.Errorf("check index: %w (%w)", err, errIndexDamaged)
	}
	return nil
}

func (ix *index) checkIn(tx *bbolt.Tx) error {
	defer lettingPages(tx)()
	// Before bbolt's own check, which reads in another goroutine, where a fault cannot be survived.
	if err := ix.checkValues(tx); err != nil {
		return err
	}
	if err := checkPages(tx); err != nil {
		return err
	}
	var first error
	for err := range tx.Check(bbolt.WithKVStringer(unreadKeys{})) { // to its end: it waits for a reader
		if first == nil {
			first = err
		}
	}
	return first
}

// unreadKeys names no keys in what bbolt's check tells: one may claim megabytes that are not there.
type unreadKeys struct{}

func (unreadKeys) KeyToString(k []byte) string   { return fmt.Sprintf("key of %d bytes", len(k)) }
func (unreadKeys) ValueToString(v []byte) string { return fmt.Sprintf("value of %d bytes", len(v)) }

// touch reads the ends of what an entry claims to be, so that a claim which leads out of the file is met here, where a fault is survived.
func touch(b []byte) {
	if len(b) > 0 {
		touched.Store(uint32(b[0]) + uint32(b[len(b)-1]))
	}
}

var touched atomic.Uint32 // else the compiler would leave the reading out

// checkPages checks that no page claims to go on beyond the file's end: bbolt's own check would take memory for each page it claims.
func checkPages(tx *bbolt.Tx) error {
	for id := 2; ; id++ {
		p, err := tx.Page(id)
		if err != nil || p == nil {
			return err
		}
		if p.Type == "free" {
			continue
		}
		if id += p.OverflowCount; p.OverflowCount > 0 {
			if last, err := tx.Page(id); err != nil || last == nil {
				return fmt.Errorf("page %d goes on for %d pages: there are not so many", p.ID, p.OverflowCount)
			}
		}
	}
}

// checkAlways is the size in bytes up to which an index is looked through at each start: that takes some 0.1 s.
const checkAlways = 64 << 20

// isSmall reports whether the index is small enough to be looked through at each start.
func (ix *index) isSmall() bool {
	info, err := os.Stat(ix.path)
	return err == nil && info.Size() <= checkAlways
}

func (ix *index) checkValues(tx *bbolt.Tx) error {
	roots := tx.Cursor()
	for k, _ := roots.First(); k != nil; k, _ = roots.Next() {
		if touch(k); len(k) > 64 {
			return fmt.Errorf("a bucket's name has %d bytes", len(k))
		}
	}
	rows, words := uint64(0), uint32(0)
	ends := make(map[uint64]uint32) // by segment, the number after its last record
	valid := func(name []byte, value func(k, v []byte) bool) error {
		again, n := tx.Bucket(name).Cursor(), 0
		return tx.Bucket(name).ForEach(func(k, v []byte) error {
			touch(k)
			touch(v)
			if n++; n%16 == 1 { // of each leaf or so, which has the keys of the branches above looked at
				again.Seek(k)
			}
			if !value(k, v) {
				return fmt.Errorf("%s: %x is not valid", name, k)
			}
			return nil
		})
	}
	for _, b := range []struct {
		name  []byte
		valid func(k, v []byte) bool
	}{
		{bucketSegments, func(k, v []byte) bool { return len(k) == 8 && len(v) == segmentRowSize }},
		{bucketSlots, func(k, v []byte) bool {
			if len(k) != 12 || len(v)%slotSize != 0 || len(v) > slotsPerPage*slotSize {
				return false
			}
			ends[idOf(k)] = pageOf(k)*slotsPerPage + uint32(len(v)/slotSize)
			return true
		}},
		{bucketRows, func(k, v []byte) bool {
			rows++
			if len(k) != 8 || !validRow(v) {
				return false
			}
			p, state, err := rowPlaceOf(v)
			return err == nil && (state == Open || p.record.Slot < ends[p.record.Segment])
		}},
		{bucketChunks, func(k, v []byte) bool { return len(k) == 32 && len(v) == chunkRowSize }},
		{bucketGraves, func(k, v []byte) bool { return len(k) == 12 && len(v) == graveSize }},
		{bucketOpen, func(k, v []byte) bool { return len(k) == 18 }},
		{bucketWords, func(k, v []byte) bool {
			words++
			return len(k) == 4 && binary.BigEndian.Uint32(k) == words
		}},
		{bucketShares, func(k, v []byte) bool { return true }},
		{bucketSettings, func(k, v []byte) bool { return true }},
	} {
		if err := valid(b.name, b.valid); err != nil {
			return err
		}
	}
	state := ix.snapshot()
	if rows != state.Rows {
		return fmt.Errorf("%d rows, counted as %d", rows, state.Rows)
	}
	return checkSegments(tx, state)
}

// checkSegments compares what the index counts of each segment to its slots: values that are damaged rarely add up.
func checkSegments(tx *bbolt.Tx, state indexState) error {
	// A session names a record by its row, by its two bodies and its list of messages, and each of those once; so do deletions, which are fewer.
	most := 8 * (max(state.LastID, state.Reserved) + reserve)
	return tx.Bucket(bucketSegments).ForEach(func(k, b []byte) error {
		var row segmentRow
		row.decode(b)
		var bad error
		live, slots := countSlots(tx, idOf(k), func(n uint32, s slot) {
			if end := uint64(s.offset) + uint64(s.length); s.length > 0 && end > row.size || uint64(s.refs) > most {
				bad = fmt.Errorf("segment %d, record %d: it ends at byte %d of %d and is named %d times", idOf(k), n, end, row.size, s.refs)
			}
		})
		if bad == nil && (live != row.live || slots != row.slots) {
			bad = fmt.Errorf("segment %d: %d bytes in %d records are named, counted as %d in %d", idOf(k), live, slots, row.live, row.slots)
		}
		return bad
	})
}
