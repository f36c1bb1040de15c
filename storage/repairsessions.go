package storage

import (
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"
)

// sessions gives each session that lost something a record that says what.
func (r *repair) sessions() error {
	for next := uint64(0); ; {
		var batch []uint64
		if err := r.store.index.view(func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucketRows).Cursor()
			for k, _ := c.Seek(idKey(next)); k != nil && len(batch) < repairBatch; k, _ = c.Next() {
				batch = append(batch, idOf(k))
			}
			return nil
		}); err != nil {
			return err
		}
		if len(batch) == 0 {
			return r.commit()
		}
		for _, id := range batch {
			if err := r.session(id); err != nil {
				return err
			}
		}
		next = batch[len(batch)-1] + 1
	}
}

func (r *repair) session(id uint64) error {
	var session Session
	var lost []string
	changed := false
	err := r.store.stored(id, func(tx *bbolt.Tx, stored *Session) error {
		session = *stored
		if row, ok := r.rows[id]; ok {
			changed = fromRow(&session, row)
		}
		for side, body := range session.streams() {
			if changed && !body.Complete && body.Missing != "" {
				lost = append(lost, fmt.Sprintf("its %s is %s", side.stream(), body.Missing))
			}
		}
		lost = append(lost, r.losses(tx, &session)...)
		return nil
	})
	if err != nil {
		r.say("session %d: %v", id, err) // it is told again when all is verified
		return nil
	}
	for _, what := range lost {
		r.lost[id] = true
		r.say("session %d (%s): %s", id, describe(&session), what)
	}
	if !changed && len(lost) == 0 {
		return nil
	}
	return r.append(&record{kind: recordEnded, session: &session}, &session)
}

// describe names a session for people. What was captured may hold anything.
func describe(s *Session) string {
	const most = 200
	text := s.Method + " " + s.Host + s.Path
	if len(text) > most {
		text = text[:most] + "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// losses puts into the session what it lost, and says it in words.
func (r *repair) losses(tx *bbolt.Tx, s *Session) (lost []string) {
	if e := s.Certificates; e != nil {
		if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil || uint64(at.length) != e.Length {
			s.Certificates = nil
			lost = append(lost, "its upstream's certificates are lost: their record was damaged on disk")
		}
	}
	for side, body := range s.streams() {
		why := r.bodyLoss(tx, bodyID{s.ID, side}, body)
		if why == "" {
			continue
		}
		s.SetFlag(FlagCut)
		lost = append(lost, fmt.Sprintf("its %s is %s", side.stream(), body.Missing))
	}
	return lost
}

// fromRow puts what the row tells into a session whose newest record is lost, and reports whether that changes it.
func fromRow(s *Session, row Row) (changed bool) {
	before := *s
	s.Pinned, s.Note, s.Color = row.Pinned, row.Note, row.Color
	if s.State == Interrupted && s.Error != damagedRecord {
		s.Error = damagedRecord
		if row.State != Open {
			s.State, s.Status, s.ContentType, s.Protocol, s.Upstream = row.State, row.Status, row.ContentType, row.Protocol, row.Upstream
			s.Timing.Ended = s.Timing.Started.Add(row.Duration)
		}
		if row.Error != "" {
			s.Error = row.Error
		}
		for side, passed := range [2]uint64{row.RequestBytes, row.ResponseBytes} {
			b := &s.Sides[side].Body
			if b.Passed = max(b.Passed, passed); !b.Complete && b.Passed > 0 {
				b.Missing = fmt.Sprintf("captured to byte %d: %s", b.Size, damagedRecord)
				s.SetFlag(FlagCut)
			}
		}
	}
	return s.State != before.State || s.Error != before.Error || s.Pinned != before.Pinned || s.Note != before.Note || s.Color != before.Color
}

// bodyLoss cuts a body at the first run that is damaged, and says why.
func (r *repair) bodyLoss(tx *bbolt.Tx, id bodyID, body *Body) (why string) {
	size := uint64(0)
	for i, e := range body.Extents {
		if why = r.runLoss(tx, e); why != "" {
			body.Extents = slices.Clip(body.Extents[:i])
			body.Size = size
			break
		}
		size += e.Length
	}
	if why == "" && r.problems.sums[id] {
		why = "the bytes are not those of which its SHA-256 was made"
	}
	if why == "" && size != body.Size {
		why, body.Size = "its record was wrong", size
	}
	if why != "" {
		body.SHA256, body.Complete = nil, false
		body.Passed = max(body.Passed, body.Size)
		body.Missing = fmt.Sprintf("captured to byte %d: %s", body.Size, why)
	}
	return why
}

func (r *repair) runLoss(tx *bbolt.Tx, e Extent) string {
	if len(e.Chunk) > 0 {
		if _, bad := r.problems.chunks[string(e.Chunk)]; !bad {
			if info, err := r.files.Stat(chunkName(e.Chunk)); err == nil && uint64(info.Size()) == e.Length {
				return ""
			}
		}
		return "a chunk of it was damaged on disk"
	}
	if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil || uint64(at.length) != e.Length+pieceHeadSize {
		return "a piece of it was damaged on disk"
	}
	return ""
}
