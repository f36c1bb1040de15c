package storage

import (
	"encoding/binary"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// check looks through the whole database: that its pages hold together, and that the values can be read. It costs the reading of the file, some
// 250 MB for a million sessions. An error is errIndexDamaged.
func (ix *index) check() error {
	err := ix.view(func(tx *bbolt.Tx) error {
		// Before bbolt's own check, which reads in another goroutine, where a fault cannot be survived.
		if err := ix.checkValues(tx); err != nil {
			return err
		}
		var first error
		for err := range tx.Check() { // to its end: it waits for a reader
			if first == nil {
				first = err
			}
		}
		return first
	})
	if err != nil {
		return fmt.Errorf("check index: %w (%w)", err, errIndexDamaged)
	}
	return nil
}

// checkAlways is the size in bytes up to which an index is looked through at each start: that takes less than 0.1 s.
const checkAlways = 64 << 20

// isSmall reports whether the index is small enough to be looked through at each start.
func (ix *index) isSmall() bool {
	info, err := os.Stat(ix.path)
	return err == nil && info.Size() <= checkAlways
}

func (ix *index) checkValues(tx *bbolt.Tx) error {
	rows, words := uint64(0), uint32(0)
	valid := func(name []byte, value func(k, v []byte) bool) error {
		return tx.Bucket(name).ForEach(func(k, v []byte) error {
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
		{bucketRows, func(k, v []byte) bool {
			rows++
			return len(k) == 8 && validRow(v)
		}},
		{bucketSegments, func(k, v []byte) bool { return len(k) == 8 && len(v) == segmentRowSize }},
		{bucketSlots, func(k, v []byte) bool { return len(k) == 12 && len(v)%slotSize == 0 && len(v) <= slotsPerPage*slotSize }},
		{bucketChunks, func(k, v []byte) bool { return len(k) == 32 && len(v) == chunkRowSize }},
		{bucketGraves, func(k, v []byte) bool { return len(k) == 12 && len(v) == 8 }},
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
	if want := ix.snapshot().Rows; rows != want {
		return fmt.Errorf("%d rows, counted as %d", rows, want)
	}
	return nil
}
