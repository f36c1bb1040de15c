package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// errGone is a record, a segment or a chunk that the index names and that is not there.
var errGone = errors.New("it is gone")

// fold takes records of the log into the index, in one transaction. The live commit, recovery at start and the rebuilding of a lost
// index all go through it, so that the index is a function of the log and of nothing else.
type fold struct {
	ix    *index
	tx    *bbolt.Tx
	state indexState
	read  func(place) (*Session, error) // reads a session's record from the log

	slots    map[pageKey]*slotPage
	segments map[uint64]*segmentRow
	chunks   map[string]*chunkRow
	touched  map[uint64]*openSession
	row      []byte
	lastRow  uint64 // the newest id that has a row, once one was put

	mayRemove func(segment uint64) bool // nil: none may be removed
	dropped   dropped
	grown     filesSize // by what of the transaction; what shrank wraps around
}

// dropped is what no longer has a reference, to be unlinked once the transaction stands.
type dropped struct {
	segments []string // names of their files
	chunks   []string // SHA-256
	pinned   []uint64 // not dropped: of these segments nothing is live, and they may not be removed yet
	sparse   []uint64 // not dropped: of these segments less than half is live by now
}

// apply takes the records in and moves the applied position to end, in one transaction. mayRemove is asked before a dead segment is
// removed, nil for never; look names segments to look at beside those that the records touch.
func (ix *index) apply(recs []*record, end position, read func(place) (*Session, error), mayRemove func(uint64) bool, look ...uint64) (dropped, error) {
	return ix.fold(read, mayRemove, func(f *fold) error {
		for _, rec := range recs {
			if err := f.apply(rec); err != nil {
				return err
			}
		}
		for _, number := range look {
			f.segment(number)
		}
		if f.state.Applied.before(end) {
			f.state.Applied = end
		}
		return nil
	})
}

// fold changes the index in one transaction.
func (ix *index) fold(read func(place) (*Session, error), mayRemove func(uint64) bool, change func(*fold) error) (dropped, error) {
	var f *fold
	err := ix.update(func(tx *bbolt.Tx) error {
		tx.DB().AllocSize = growBy(tx.Size())
		f = &fold{
			ix: ix, tx: tx, state: ix.state, read: read, mayRemove: mayRemove,
			slots: make(map[pageKey]*slotPage), segments: make(map[uint64]*segmentRow),
			chunks: make(map[string]*chunkRow), touched: make(map[uint64]*openSession),
		}
		if err := change(f); err != nil {
			return err
		}
		return f.finish()
	})
	if err != nil {
		return dropped{}, fmt.Errorf("update index: %w", err)
	}
	ix.mu.Lock()
	ix.state = f.state
	ix.sizes.log += f.grown.log
	ix.sizes.chunks += f.grown.chunks
	ix.mu.Unlock()
	return f.dropped, nil
}

// apply takes one record in.
func (f *fold) apply(rec *record) error {
	if rec.kind == recordHole {
		return nil // nothing may find it
	}
	if err := f.addSlot(rec); err != nil {
		return err
	}
	switch rec.kind {
	case recordSegment:
		f.state.Reserved = max(f.state.Reserved, rec.head.Reserved)
		f.state.Cutoff = max(f.state.Cutoff, rec.head.Cutoff)
		row := f.segment(rec.at.Segment)
		row.generation, row.cleaned = rec.head.Generation, rec.head.Cleaned
		return f.seal(rec.head)
	case recordReserved:
		f.state.Reserved = rec.ids.Through
		f.state.Cutoff = max(f.state.Cutoff, rec.ids.Cutoff)
		return nil
	case recordBegun:
		return f.begun(rec)
	case recordPiece:
		p := rec.piece
		return f.extent(p.ID, p.Side, rec.at, openExtent{
			Offset: p.Offset,
			Extent: Extent{Length: p.Length, Segment: rec.at.Segment, Slot: rec.at.Slot},
		})
	case recordNamed:
		n := rec.named
		f.state.Incoming = max(f.state.Incoming, n.Incoming)
		if err := f.ref(rec.at.slotID, +1); err != nil {
			return err
		}
		return f.extent(n.ID, n.Side, rec.at, openExtent{Offset: n.Offset, Extent: n.Extent, Record: rec.at.slotID})
	case recordMark:
		f.state.Incoming = max(f.state.Incoming, rec.mark.Incoming)
		if err := f.ref(rec.at.slotID, +1); err != nil {
			return err
		}
		return f.mark(openMark{Mark: rec.mark, Record: rec.at.slotID})
	case recordChain:
		return nil // it counts once a session names it
	case recordEnded:
		return f.ended(rec)
	case recordDeleted:
		return f.deleted(rec)
	case recordDoomed:
		return f.doomed(rec)
	}
	return fmt.Errorf("apply record: unknown kind %d", rec.kind)
}

// openSession returns the session's open state, of which a record in the segment speaks.
func (f *fold) openSession(id, segment uint64) *openSession {
	o := f.ix.open[id]
	if o == nil {
		o = &openSession{id: id, first: segment}
		f.ix.open[id] = o
	}
	f.touched[id] = o
	f.state.LastID = max(f.state.LastID, id)
	return o
}

func (f *fold) begun(rec *record) error {
	s := rec.session
	o := f.openSession(s.ID, rec.at.Segment)
	if o.begun.Segment != 0 {
		if err := f.ref(o.begun, -1); err != nil {
			return err
		}
	}
	o.begun = rec.at.slotID
	if err := f.ref(o.begun, +1); err != nil {
		return err
	}
	o.headChanged()
	row := *s
	row.State = Open // also where it ended: its last record is not here yet
	return f.putRow(&row, rowPlace{rec.at.slotID, o.first})
}

// extent takes in that a run of an open body lies somewhere. Marks and extents of the same run have served.
func (f *fold) extent(id uint64, side Side, at place, e openExtent) error {
	o := f.openSession(id, at.Segment)
	if len(o.dirty) == 0 && !o.stored {
		o.headChanged() // a piece can come before the session's own record
	}
	if err := f.refExtent(e.Extent, +1); err != nil {
		return err
	}
	for _, x := range o.addExtent(side, e) {
		if err := f.dropExtent(x); err != nil {
			return err
		}
	}
	for _, m := range o.dropMarks(side, e.Offset, e.Offset+e.Extent.Length) {
		if err := f.ref(m.Record, -1); err != nil {
			return err
		}
	}
	return nil
}

// mark takes in how far an incoming file is proved. After a failure of the log the same is said again: the later one then stands for both.
func (f *fold) mark(m openMark) error {
	o := f.openSession(m.Mark.ID, m.Record.Segment)
	for _, old := range o.dropMarks(m.Mark.Side, m.end()-1, m.end()) {
		if err := f.ref(old.Record, -1); err != nil {
			return err
		}
	}
	o.addMark(m)
	return nil
}

func (f *fold) dropExtent(e openExtent) error {
	if e.Record.Segment != 0 {
		if err := f.ref(e.Record, -1); err != nil {
			return err
		}
	}
	return f.refExtent(e.Extent, -1)
}

// ended takes in a session's full record.
func (f *fold) ended(rec *record) error {
	s := rec.session
	f.state.LastID = max(f.state.LastID, s.ID)
	if err := f.refBodies(s, +1); err != nil {
		return err
	}
	if err := f.ref(rec.at.slotID, +1); err != nil {
		return err
	}
	first, _, known, err := f.forget(s.ID)
	if err != nil {
		return err
	}
	if !known {
		first = rec.at.Segment
	}
	return f.putRow(s, rowPlace{rec.at.slotID, first})
}

// forget takes away everything the index names for the session but its row, and returns the oldest and the newest segment that speak of it.
func (f *fold) forget(id uint64) (first, last uint64, known bool, err error) {
	if o := f.ix.open[id]; o != nil {
		return o.first, 1<<64 - 1, true, f.forgetOpen(o)
	}
	v := f.tx.Bucket(bucketRows).Get(idKey(id))
	if v == nil {
		return 0, 0, false, nil
	}
	at, _, err := rowPlaceOf(v)
	if err != nil {
		return 0, 0, false, err
	}
	p, err := f.place(at.record)
	if err == nil {
		var old *Session
		if old, err = f.read(p); err == nil {
			err = f.refBodies(old, -1)
		}
	}
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errTorn) {
		return 0, 0, false, err
	}
	return at.first, at.record.Segment, true, f.ref(at.record, -1)
}

func (f *fold) forgetOpen(o *openSession) error {
	for _, slot := range []slotID{o.begun, o.doomed} {
		if slot.Segment != 0 {
			if err := f.ref(slot, -1); err != nil {
				return err
			}
		}
	}
	for _, b := range o.bodies {
		for _, e := range b.extents {
			if err := f.dropExtent(e); err != nil {
				return err
			}
		}
		for _, m := range b.marks {
			if err := f.ref(m.Record, -1); err != nil {
				return err
			}
		}
	}
	delete(f.ix.open, o.id)
	delete(f.touched, o.id)
	return o.forget(f.tx.Bucket(bucketOpen))
}

// doomed marks open sessions as deleted, for the case that Millpond ends before they do.
func (f *fold) doomed(rec *record) error {
	for _, id := range rec.gone.IDs {
		o := f.ix.open[id]
		if o == nil || o.doomed.Segment != 0 {
			continue
		}
		f.touched[id] = o
		o.doomed = rec.at.slotID
		if err := f.ref(o.doomed, +1); err != nil {
			return err
		}
		o.headChanged()
	}
	return nil
}

// deleted removes sessions. The record itself stays for as long as a segment may speak of one of them:
// else a rebuilt index would bring it back.
func (f *fold) deleted(rec *record) error {
	span := grave{first: rec.at.Segment}
	remove := func(id uint64) error {
		oldest, newest, known, err := f.forget(id)
		if err != nil || !known {
			return err
		}
		span.first, span.last = min(span.first, oldest), max(span.last, newest)
		return f.deleteRow(id)
	}
	for _, id := range rec.gone.IDs {
		if err := remove(id); err != nil {
			return err
		}
	}
	if rec.gone.Through != 0 {
		for _, id := range f.idsBetween(rec.gone.From, rec.gone.Through) {
			if err := remove(id); err != nil {
				return err
			}
		}
	}
	if span.first == rec.at.Segment {
		return nil // they go together
	}
	if err := f.ref(rec.at.slotID, +1); err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint32(idKey(rec.at.Segment), rec.at.Slot)
	return f.tx.Bucket(bucketGraves).Put(key, span.encode())
}

// idsBetween returns the ended sessions from one id through another. The caller bounds the range.
func (f *fold) idsBetween(from, through uint64) (ids []uint64) {
	c := f.tx.Bucket(bucketRows).Cursor()
	for k, _ := c.Seek(idKey(from)); k != nil && binary.BigEndian.Uint64(k) <= through; k, _ = c.Next() {
		if id := binary.BigEndian.Uint64(k); f.ix.open[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (f *fold) putRow(s *Session, at rowPlace) error {
	rows := f.tx.Bucket(bucketRows)
	rows.FillPercent = fillPercent
	row := rowOf(s, s.Timing.Started)
	b, err := encodeRow(f.row[:0], &row, at, &f.ix.dict, f.tx.Bucket(bucketWords))
	if err != nil {
		return err
	}
	f.row = b
	key := idKey(s.ID)
	if f.lastRow == 0 {
		if k, _ := rows.Cursor().Last(); k != nil {
			f.lastRow = idOf(k)
		}
	}
	if s.ID > f.lastRow || rows.Get(key) == nil { // most sessions are new, and looking them up takes as long as putting them
		f.state.Rows++
	}
	f.lastRow = max(f.lastRow, s.ID)
	if err := rows.Put(key, slices.Clone(b)); err != nil {
		return fmt.Errorf("put row: %w", err)
	}
	return nil
}

func (f *fold) deleteRow(id uint64) error {
	rows := f.tx.Bucket(bucketRows)
	key := idKey(id)
	if rows.Get(key) == nil {
		return nil
	}
	f.state.Rows--
	return rows.Delete(key)
}

// refBodies counts every extent of the session, that of its certificates too.
func (f *fold) refBodies(s *Session, by int) error {
	if s.Certificates != nil {
		if err := f.refExtent(*s.Certificates, by); err != nil {
			return err
		}
	}
	for _, b := range s.streams() {
		for _, e := range b.Extents {
			if err := f.refExtent(e, by); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fold) refExtent(e Extent, by int) error {
	if len(e.Chunk) == 0 {
		return f.ref(slotID{e.Segment, e.Slot}, by)
	}
	key := string(e.Chunk)
	c := f.chunks[key]
	if c == nil {
		c = new(chunkRow)
		c.decode(f.tx.Bucket(bucketChunks).Get(e.Chunk))
		f.grown.chunks -= uint64(c.length)
		f.chunks[key] = c
	}
	c.length = uint32(e.Length)
	c.refs = uint32(max(int(c.refs)+by, 0))
	return nil
}
