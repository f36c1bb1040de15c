package storage

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// openSession is what the log holds of a session that has not ended: enough to go on from the applied position after a
// crash, without reading the log from the session's beginning. It lives in memory, and in the open bucket once a commit
// has seen it open.
type openSession struct {
	id     uint64
	first  uint64 // the oldest segment that speaks of it
	begun  slotID // zero Segment: not begun yet
	doomed slotID // zero Segment: not deleted
	bodies [streams]openBody
	stored bool // the bucket has entries of it
	dirty  []openEntry
}

type openBody struct {
	extents []openExtent // rising offsets, without overlap
	marks   []openMark   // rising ends
}

type openExtent struct {
	_      struct{} `cbor:",toarray"`
	Offset uint64
	Extent Extent
	Record slotID // of a named record, which lives as long as this; zero for a piece, which is its own
}

type openMark struct {
	_      struct{} `cbor:",toarray"`
	Mark   mark
	Record slotID
}

func (m *openMark) end() uint64 { return m.Mark.Offset + m.Mark.Length }

// Kinds of entries in the open bucket. A key is the id, the kind, and for the last two the side and an offset.
const (
	entryHead   = 'a' // openHead
	entryExtent = 'e' // openExtent, by its offset
	entryMark   = 'm' // openMark, by its end
)

type openHead struct {
	_             struct{} `cbor:",toarray"`
	First         uint64
	Begun, Doomed slotID
}

// openEntry names an entry of the bucket that changed since the last commit. Most sessions end before one: only what is open then is encoded.
type openEntry struct {
	kind   byte
	side   Side
	offset uint64
}

func openKey(id uint64, e openEntry) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 18), id)
	b = append(b, e.kind, byte(e.side))
	return binary.BigEndian.AppendUint64(b, e.offset)
}

func (o *openSession) headChanged() { o.dirty = append(o.dirty, openEntry{kind: entryHead}) }

// addExtent puts e in the place of what covers its run, which it returns.
func (o *openSession) addExtent(side Side, e openExtent) (replaced []openExtent) {
	b := &o.bodies[side]
	end := e.Offset + e.Extent.Length
	from := b.extentAt(e.Offset)
	to := from
	for to < len(b.extents) && b.extents[to].Offset < end {
		to++
	}
	replaced = slices.Clone(b.extents[from:to])
	for _, x := range replaced {
		o.dirty = append(o.dirty, openEntry{entryExtent, side, x.Offset})
	}
	b.extents = slices.Replace(b.extents, from, to, e)
	o.dirty = append(o.dirty, openEntry{entryExtent, side, e.Offset})
	return replaced
}

// extentAt returns the index of the first extent at or after the offset.
func (b *openBody) extentAt(offset uint64) int {
	i, _ := slices.BinarySearchFunc(b.extents, offset, func(x openExtent, at uint64) int { return cmp.Compare(x.Offset, at) })
	return i
}

// addMark adds m.
func (o *openSession) addMark(m openMark) {
	b := &o.bodies[m.Mark.Side]
	b.marks = append(b.marks, m)
	o.dirty = append(o.dirty, openEntry{entryMark, m.Mark.Side, m.end()})
}

// dropMarks removes the marks that end in the run, and returns them.
func (o *openSession) dropMarks(side Side, from, to uint64) (dropped []openMark) {
	b := &o.bodies[side]
	b.marks = slices.DeleteFunc(b.marks, func(m openMark) bool {
		if m.end() <= from || m.end() > to {
			return false
		}
		dropped = append(dropped, m)
		o.dirty = append(o.dirty, openEntry{entryMark, side, m.end()})
		return true
	})
	return dropped
}

// store writes what changed since the last commit.
func (o *openSession) store(bucket *bbolt.Bucket) error {
	bucket.FillPercent = fillPercent
	for _, e := range o.dirty {
		var err error
		if v := o.entry(e); v == nil {
			err = bucket.Delete(openKey(o.id, e))
		} else if b, failed := encoder.Marshal(v); failed != nil {
			err = fmt.Errorf("encode %T: %w", v, failed)
		} else {
			err = bucket.Put(openKey(o.id, e), b)
		}
		if err != nil {
			return fmt.Errorf("store open session: %w", err)
		}
	}
	o.dirty = o.dirty[:0]
	o.stored = true
	return nil
}

// entry returns the value of an entry, nil where there is none any more.
func (o *openSession) entry(e openEntry) any {
	b := &o.bodies[e.side]
	switch e.kind {
	case entryHead:
		return openHead{First: o.first, Begun: o.begun, Doomed: o.doomed}
	case entryExtent:
		if i := b.extentAt(e.offset); i < len(b.extents) && b.extents[i].Offset == e.offset {
			return b.extents[i]
		}
	case entryMark:
		if i := slices.IndexFunc(b.marks, func(m openMark) bool { return m.end() == e.offset }); i >= 0 {
			return b.marks[i]
		}
	}
	return nil
}

// forget removes every entry of the session.
func (o *openSession) forget(bucket *bbolt.Bucket) error {
	if !o.stored {
		return nil
	}
	c := bucket.Cursor()
	for k, _ := c.Seek(idKey(o.id)); len(k) > 8 && binary.BigEndian.Uint64(k) == o.id; k, _ = c.Seek(idKey(o.id)) {
		if err := c.Delete(); err != nil {
			return fmt.Errorf("forget open session: %w", err)
		}
	}
	return nil
}

// loadOpen reads the open bucket.
func loadOpen(bucket *bbolt.Bucket) (map[uint64]*openSession, error) {
	all := make(map[uint64]*openSession)
	err := bucket.ForEach(func(k, v []byte) error {
		if len(k) != 18 {
			return fmt.Errorf("read open session: key of %d bytes", len(k))
		}
		id := binary.BigEndian.Uint64(k)
		o := all[id]
		if o == nil {
			o = &openSession{id: id, stored: true}
			all[id] = o
		}
		if err := Side(k[9]).valid(); err != nil {
			return fmt.Errorf("read open session: %w", err)
		}
		b := &o.bodies[k[9]]
		switch k[8] {
		case entryHead:
			var h openHead
			if err := decoder.Unmarshal(v, &h); err != nil {
				return fmt.Errorf("read open session: %w", err)
			}
			o.first, o.begun, o.doomed = h.First, h.Begun, h.Doomed
		case entryExtent:
			var e openExtent
			if err := decoder.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("read open session: %w", err)
			}
			b.extents = append(b.extents, e)
		case entryMark:
			var m openMark
			if err := decoder.Unmarshal(v, &m); err != nil {
				return fmt.Errorf("read open session: %w", err)
			}
			b.marks = append(b.marks, m)
		}
		return nil
	})
	return all, err
}

// slotOfGrave is the deletion that a key of the graves bucket names.
func slotOfGrave(key []byte) slotID { return slotID{idOf(key), binary.BigEndian.Uint32(key[8:])} }
