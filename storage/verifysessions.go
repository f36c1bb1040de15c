package storage

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// rows checks each row and the record it names.
func (v *verifier) rows(tx *bbolt.Tx, ix *index) error {
	words := ix.dict.snapshot()
	return tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
		v.looked.Sessions++
		var row Row
		id := idOf(k)
		if err := decodeRow(&row, id, b, words); err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		at, state, err := rowPlaceOf(b)
		if err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		if ix.open[id] != nil || state == Open {
			if ix.open[id] == nil {
				v.problem("session %d: open, and nothing is known of it", id)
			}
			return nil
		}
		v.name(at.record)
		v.session(tx, row, at)
		return nil
	})
}

func (v *verifier) session(tx *bbolt.Tx, row Row, at rowPlace) {
	id := row.ID
	p, err := findSlot(tx, at.record)
	if err != nil {
		v.problem("session %d: %v", id, err)
		return
	}
	session, err := v.store.readSession(p)
	if err != nil {
		v.problem("session %d: %v", id, err)
		return
	}
	if session.ID != id {
		v.problem("session %d: its record is that of session %d", id, session.ID)
	} else if !sameRow(row, rowOf(session, session.Timing.Started)) {
		v.problem("session %d: its row differs from its record", id)
	}
	if e := session.Certificates; e != nil {
		v.extent(*e)
		if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil {
			v.problem("session %d: certificates: %v", id, err)
		} else if uint64(at.length) != e.Length {
			v.problem("session %d: certificates: record %d of segment %d has %d bytes of them, want %d", id, e.Slot, e.Segment, at.length, e.Length)
		}
	}
	for side, body := range session.streams() {
		v.body(tx, id, side, body)
	}
}

func (v *verifier) body(tx *bbolt.Tx, id uint64, side Side, body *Body) {
	sum := uint64(0)
	for _, e := range body.Extents {
		sum += e.Length
		v.extent(e)
	}
	if sum != body.Size {
		v.problem("session %d: %s of %d bytes, its extents have %d", id, side.stream(), body.Size, sum)
	}
	runs, err := storedRuns(tx, body.Extents)
	if err != nil {
		v.problem("session %d: %s: %v", id, side.stream(), err)
		return
	}
	for _, r := range runs {
		switch {
		case r.chunk != nil:
			if err := v.problems.chunks[string(r.chunk)]; err != nil {
				v.tell("session %d: %s from byte %d: chunk %x: %v", id, side.stream(), r.start, r.chunk, err)
				return
			}
		case uint64(r.at.length) != r.length:
			v.problem("session %d: %s: record %d of segment %d has %d bytes of it, want %d",
				id, side.stream(), r.at.Slot, r.at.Segment, r.at.length, r.length)
			return
		}
	}
	if !v.full {
		return
	}
	if err := v.store.checkRuns(runs); err != nil {
		v.problem("session %d: %s: %v", id, side.stream(), err)
		return
	}
	if !body.Complete || body.SHA256 == nil || len(runs) == 1 && bytes.Equal(runs[0].chunk, body.SHA256) {
		return
	}
	got, err := hashBody(&BodyReader{&storedBody{v.store, id, runs, *body}}, func() error { return nil })
	if err == nil && !bytes.Equal(got, body.SHA256) {
		err = fmt.Errorf("its bytes have the SHA-256 %x, its record says %x", got, body.SHA256)
	}
	if err != nil {
		v.problems.sums[bodyID{id, side}] = true
		v.tell("session %d: %s: %v", id, side.stream(), err)
	}
}

// sameRow reports whether a row is the one that is made of the session's record.
func sameRow(got, want Row) bool {
	got.Durable, want.Durable = false, false
	want.Status = int(uint16(want.Status)) // as it is stored
	same := got.Started.Equal(want.Started) || want.Started.UnixNano() == 0
	got.Started, want.Started = time.Time{}, time.Time{}
	for _, r := range []*Row{&got, &want} {
		r.Flags = slices.Sorted(slices.Values(r.Flags))
		r.Flags = slices.Compact(r.Flags)
	}
	return same && reflect.DeepEqual(got, want)
}
