package storage

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// slotsPerPage is how many slots one value of the slots bucket holds: 1.5 KB, so that two fit a page of bbolt, and a
// commit writes the last page of the log's end and not the whole segment's table.
const slotsPerPage = 128

const slotSize = 12

// slot is one record of a segment: where its payload lies, and how many rows and bodies name it.
type slot struct {
	offset, length, refs uint32
}

// slotPage is a run of slotsPerPage slots, stored as three little-endian uint32 each. A slot never put has length 0.
type slotPage struct {
	slots [slotsPerPage]slot
	used  int
}

type pageKey struct {
	segment uint64
	page    uint32
}

func (k pageKey) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, k.segment)
	return binary.BigEndian.AppendUint32(b, k.page)
}

func pageOf(key []byte) uint32 { return binary.BigEndian.Uint32(key[8:]) }

func (p *slotPage) decode(b []byte) {
	p.used = len(b) / slotSize
	for i := range min(p.used, slotsPerPage) {
		e := b[i*slotSize:]
		p.slots[i] = slot{binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:])}
	}
}

func (p *slotPage) encode() []byte {
	b := make([]byte, 0, p.used*slotSize)
	for _, s := range p.slots[:p.used] {
		b = binary.LittleEndian.AppendUint32(b, s.offset)
		b = binary.LittleEndian.AppendUint32(b, s.length)
		b = binary.LittleEndian.AppendUint32(b, s.refs)
	}
	return b
}

// findSlot returns the place of a slot, from the index.
func findSlot(tx *bbolt.Tx, id slotID) (place, error) {
	v := tx.Bucket(bucketSlots).Get(pageKey{id.Segment, id.Slot / slotsPerPage}.bytes())
	i := int(id.Slot%slotsPerPage) * slotSize
	if len(v) < i+slotSize || binary.LittleEndian.Uint32(v[i+4:]) == 0 {
		return place{}, fmt.Errorf("find record %d of segment %d: %w", id.Slot, id.Segment, errGone)
	}
	var row segmentRow
	row.decode(tx.Bucket(bucketSegments).Get(idKey(id.Segment)))
	return place{id, uint64(binary.LittleEndian.Uint32(v[i:])), binary.LittleEndian.Uint32(v[i+4:]), row.generation}, nil
}

// countSlots shows each slot of a segment with its number, and returns what the segment's row is to count: the bytes and the number of those that are named.
func countSlots(tx *bbolt.Tx, segment uint64, see func(n uint32, s slot)) (live, slots uint64) {
	c := tx.Bucket(bucketSlots).Cursor()
	for k, b := c.Seek(idKey(segment)); k != nil && idOf(k) == segment; k, b = c.Next() {
		var page slotPage
		page.decode(b)
		first := pageOf(k) * slotsPerPage
		for i, s := range page.slots[:page.used] {
			see(first+uint32(i), s)
			if s.refs > 0 {
				slots++
				live += uint64(s.length)
			}
		}
	}
	return live, slots
}

// The stored sizes of a segmentRow and a chunkRow.
const (
	segmentRowSize = 37
	chunkRowSize   = 8
)

// segmentRow is what the index keeps of a segment: the length that counts, and what of it is still named.
type segmentRow struct {
	size, live uint64 // bytes
	slots      uint64 // live ones
	sealed     bool
	generation uint32 // of its file: how often it was rewritten
	cleaned    uint64 // what deletions in segments before this one deleted is not in the file
}

// sparse reports whether less than half of the segment is live: rewriting it copies no more bytes than it frees. A file of which little but its head is left
// stays, else it would be rewritten for ever.
func (r *segmentRow) sparse() bool {
	return r.sealed && r.slots > 0 && 2*r.stored()+blockOfDisk < r.size
}

// stored is the size of a file that holds only what is live, but for its head.
func (r *segmentRow) stored() uint64 { return r.live + r.slots*frameSize }

func (r *segmentRow) decode(b []byte) {
	if len(b) < segmentRowSize {
		return
	}
	le := binary.LittleEndian
	*r = segmentRow{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), b[24] != 0, le.Uint32(b[25:]), le.Uint64(b[29:])}
}

func (r *segmentRow) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 0, segmentRowSize), r.size)
	b = le.AppendUint64(b, r.live)
	b = le.AppendUint64(b, r.slots)
	sealed := byte(0)
	if r.sealed {
		sealed = 1
	}
	b = le.AppendUint32(append(b, sealed), r.generation)
	return le.AppendUint64(b, r.cleaned)
}

// chunkRow is what the index keeps of a chunk: its length, and how many bodies name it.
type chunkRow struct {
	length, refs uint32
}

func (r *chunkRow) decode(b []byte) {
	if len(b) >= chunkRowSize {
		*r = chunkRow{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])}
	}
}

func (r *chunkRow) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, chunkRowSize), r.length)
	return binary.LittleEndian.AppendUint32(b, r.refs)
}
