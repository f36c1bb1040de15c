package storage

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// page returns a page of the slot table. What is done to it is written by finish.
func (f *fold) page(id slotID) *slotPage {
	key := pageKey{id.Segment, id.Slot / slotsPerPage}
	p := f.slots[key]
	if p == nil {
		p = new(slotPage)
		p.decode(f.tx.Bucket(bucketSlots).Get(key.bytes()))
		f.slots[key] = p
	}
	return p
}

func (f *fold) segment(number uint64) *segmentRow {
	s := f.segments[number]
	if s == nil {
		s = new(segmentRow)
		s.decode(f.tx.Bucket(bucketSegments).Get(idKey(number)))
		f.grown.log -= s.size
		f.segments[number] = s
	}
	return s
}

// addSlot enters a record into its segment's table, without references. Entering it twice changes nothing.
func (f *fold) addSlot(rec *record) error {
	if rec.at.offset+uint64(rec.at.length) > 1<<32-1 {
		return fmt.Errorf("add record at %d: a segment ends at 4 GiB", rec.at.offset)
	}
	p, i := f.page(rec.at.slotID), int(rec.at.Slot%slotsPerPage)
	p.used = max(p.used, i+1)
	if p.slots[i].length != 0 {
		return nil
	}
	p.slots[i] = slot{offset: uint32(rec.at.offset), length: rec.at.length}
	s := f.segment(rec.at.Segment)
	s.generation = rec.at.generation // also where the head is lost
	s.size = max(s.size, rec.at.end().Offset)
	return nil
}

// ref counts one more or one less name for a slot. A slot of a segment that is gone has none: a rebuilding meets those.
func (f *fold) ref(id slotID, by int) error {
	p, i := f.page(id), int(id.Slot%slotsPerPage)
	s := &p.slots[i]
	if s.length == 0 {
		return nil
	}
	row := f.segment(id.Segment)
	before := s.refs
	s.refs = uint32(max(int(s.refs)+by, 0))
	switch {
	case before == 0 && s.refs > 0:
		row.slots++
		row.live += uint64(s.length)
	case before > 0 && s.refs == 0:
		row.slots--
		row.live -= uint64(s.length)
	}
	return nil
}

// place returns where a slot's payload is, also one of this transaction.
func (f *fold) place(id slotID) (place, error) {
	s := f.page(id).slots[id.Slot%slotsPerPage]
	if s.length == 0 {
		return place{}, fmt.Errorf("find record %d of segment %d: %w", id.Slot, id.Segment, errGone)
	}
	return place{id, uint64(s.offset), s.length, f.segment(id.Segment).generation}, nil
}

// seal closes the segments before a new one: back to one that is closed. Those between may have been removed with their heads, or have lost them.
func (f *fold) seal(head segmentHead) error {
	c := f.tx.Bucket(bucketSegments).Cursor()
	k, v := seek(c, 0, head.Segment, true)
	for ; k != nil; k, v = c.Prev() {
		var row segmentRow
		if row.decode(v); row.sealed {
			break
		}
		f.segment(idOf(k)).sealed = true
	}
	for number, s := range f.segments {
		s.sealed = s.sealed || number < head.Segment
	}
	return nil
}

// finish writes what was gathered. Segments and chunks that nothing names any more leave the index here, and the disk afterwards.
func (f *fold) finish() error {
	if err := f.putSegments(); err != nil {
		return err
	}
	if err := f.removeSegments(); err != nil {
		return err
	}
	slots := f.tx.Bucket(bucketSlots)
	slots.FillPercent = fillPercent
	keys := make([]pageKey, 0, len(f.slots))
	for k, p := range f.slots {
		if p.used > 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b pageKey) int {
		if a.segment != b.segment {
			return compare(a.segment, b.segment)
		}
		return compare(uint64(a.page), uint64(b.page))
	})
	for _, k := range keys {
		if err := slots.Put(k.bytes(), f.slots[k].encode()); err != nil {
			return fmt.Errorf("put slots: %w", err)
		}
	}
	if err := f.putSegments(); err != nil { // removing one lets go of records in others
		return err
	}
	for number, s := range f.segments {
		f.grown.log += s.size
		if s.sparse() && number < f.state.Applied.Segment {
			f.dropped.sparse = append(f.dropped.sparse, number)
		}
		if f.mayRemove != nil && s.size > 0 && s.sealed && s.slots == 0 && number < f.state.Applied.Segment {
			f.dropped.pinned = append(f.dropped.pinned, number)
		}
	}
	if err := f.putChunks(); err != nil {
		return err
	}
	for _, o := range f.touched {
		if err := o.store(f.tx.Bucket(bucketOpen)); err != nil {
			return err
		}
	}
	b, err := encoder.Marshal(f.state)
	if err != nil {
		return fmt.Errorf("encode index state: %w", err)
	}
	return f.tx.Bucket(bucketMeta).Put(keyState, b)
}

func (f *fold) putSegments() error {
	segments := f.tx.Bucket(bucketSegments)
	for number, s := range f.segments {
		if s.size == 0 {
			continue // gone, or never there
		}
		if err := segments.Put(idKey(number), s.encode()); err != nil {
			return fmt.Errorf("put segment: %w", err)
		}
	}
	return nil
}

func (f *fold) putChunks() error {
	bucket := f.tx.Bucket(bucketChunks)
	for key, c := range f.chunks {
		if c.refs > 0 {
			f.grown.chunks += uint64(c.length)
			if err := bucket.Put([]byte(key), c.encode()); err != nil {
				return fmt.Errorf("put chunk: %w", err)
			}
			continue
		}
		if err := bucket.Delete([]byte(key)); err != nil {
			return fmt.Errorf("delete chunk: %w", err)
		}
		f.dropped.chunks = append(f.dropped.chunks, key)
	}
	return nil
}

// removeSegments takes dead segments out of the index. With each go the deletions that were kept only for it, which can make
// a further segment dead.
func (f *fold) removeSegments() error {
	if f.mayRemove == nil {
		return nil
	}
	for again := true; again; {
		again = false
		for number, s := range f.segments {
			if s.size == 0 || !s.sealed || s.slots > 0 || number >= f.state.Applied.Segment || !f.mayRemove(number) {
				continue
			}
			if err := f.removeSegment(number); err != nil {
				return err
			}
			again = true
		}
		if again {
			if err := f.removeGraves(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fold) removeSegment(number uint64) error {
	slots := f.tx.Bucket(bucketSlots).Cursor()
	prefix := idKey(number)
	for k, _ := slots.Seek(prefix); k != nil && binary.BigEndian.Uint64(k) == number; k, _ = slots.Seek(prefix) {
		if err := slots.Delete(); err != nil {
			return fmt.Errorf("remove segment: %w", err)
		}
	}
	for key := range f.slots {
		if key.segment == number {
			f.slots[key] = new(slotPage)
		}
	}
	f.dropped.segments = append(f.dropped.segments, generationName(number, f.segments[number].generation))
	*f.segments[number] = segmentRow{}
	return f.tx.Bucket(bucketSegments).Delete(prefix)
}

// grave tells which segments may speak of what a deletion deleted: from the first through the last, but for those that were rewritten since.
type grave struct{ first, last uint64 }

// graveSize is the stored size of a grave.
const graveSize = 16

func (g grave) encode() []byte { return binary.BigEndian.AppendUint64(idKey(g.first), g.last) }

func decodeGrave(b []byte) grave {
	if len(b) < graveSize {
		return grave{last: 1<<64 - 1}
	}
	return grave{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// removeGraves lets go of deletions for which no segment is left that could speak of what they deleted.
func (f *fold) removeGraves() error {
	graves := f.tx.Bucket(bucketGraves)
	changed := make(map[string][]byte) // to nil where it goes
	c := graves.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		own, g := slotOfGrave(k), decodeGrave(v)
		needed := f.segmentThatSpeaks(g, own.Segment)
		switch {
		case needed == 0:
			changed[string(k)] = nil
			if err := f.ref(own, -1); err != nil {
				return err
			}
		case needed != g.first: // so that the next time does not look at the same ones again
			g.first = needed
			changed[string(k)] = g.encode()
		}
	}
	for k, v := range changed {
		var err error
		if v == nil {
			err = graves.Delete([]byte(k))
		} else {
			err = graves.Put([]byte(k), v)
		}
		if err != nil {
			return fmt.Errorf("remove deletion: %w", err)
		}
	}
	return nil
}

// segmentThatSpeaks returns the first segment that may speak of what a deletion in a later one deleted, 0 for none.
func (f *fold) segmentThatSpeaks(g grave, deletion uint64) uint64 {
	c := f.tx.Bucket(bucketSegments).Cursor()
	for k, v := c.Seek(idKey(g.first)); k != nil && idOf(k) <= g.last && idOf(k) < deletion; k, v = c.Next() {
		var row segmentRow
		if row.decode(v); row.cleaned <= deletion {
			return idOf(k)
		}
	}
	return 0
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
