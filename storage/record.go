package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// recordKind says what a record of the log tells. The numbers are part of the stored format.
type recordKind uint8

const (
	recordSegment  recordKind = 1 + iota // the first of each segment: segmentHead
	recordBegun                          // a Session that is open, or whose fields changed since
	recordPiece                          // bytes of a body: pieceHead, then the bytes
	recordNamed                          // a run of a body lies elsewhere: named
	recordMark                           // how far an incoming file is known good: mark
	recordEnded                          // a whole Session with its extents; a later one for the same id replaces it
	recordDeleted                        // sessions that are gone: deletion
	recordDoomed                         // open sessions that go at their end: deletion
	recordReserved                       // ids that may have been given: reservation
	recordChain                          // certificates, DER one after the other; ended sessions name it
	recordHole                           // what was damaged, and was set aside: nothing reads its payload
)

// slotID names a record: the segment it is in, and its number there.
type slotID struct {
	Segment uint64
	Slot    uint32
}

// place is where a record's payload lies.
type place struct {
	slotID
	offset     uint64 // of the payload in its segment's file
	length     uint32 // of the payload
	generation uint32 // of the segment's file
}

// end is the position after the record.
func (p place) end() position { return position{p.Segment, p.offset + uint64(p.length)} }

// position is a point in the log.
type position struct {
	Segment uint64 `cbor:"1,keyasint"`
	Offset  uint64 `cbor:"2,keyasint"`
}

func (p position) before(q position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// record is one record of the log, decoded. Only the field of its kind is set.
type record struct {
	kind    recordKind
	at      place
	head    segmentHead
	session *Session
	piece   pieceHead
	named   named
	mark    mark
	gone    deletion
	ids     reservation
	rec     *Recording // whose record it is, while it is live
}

// segmentHead opens a segment. It carries what must outlive all former segments.
type segmentHead struct {
	Version  int    `cbor:"1,keyasint"` // of the stored format
	Segment  uint64 `cbor:"2,keyasint"`
	Prev     uint64 `cbor:"3,keyasint"` // the segment before; any between were given up
	PrevEnd  uint64 `cbor:"4,keyasint"` // how much of Prev counts, in bytes
	Reserved uint64 `cbor:"5,keyasint"` // ids up to this one may have been given
	Cutoff   uint64 `cbor:"6,keyasint"` // open sessions up to this id go at their end

	// Of a segment that was rewritten, see rewrite.
	Generation uint32 `cbor:"7,keyasint,omitempty"`
	Size       uint64 `cbor:"8,keyasint,omitempty"` // of the file, all of which counts, whatever the next segment says
	Cleaned    uint64 `cbor:"9,keyasint,omitempty"` // what deletions in segments before this one deleted is not in the file
}

// pieceHead tells which bytes of a body a piece holds.
type pieceHead struct {
	ID     uint64
	Side   Side
	Offset uint64
	Length uint64
}

// pieceHeadSize is the stored size of a pieceHead: id, side and offset.
const pieceHeadSize = 17

// named tells that a run of a body lies in a chunk or in an earlier slot of the log. It takes the place of pieces and marks of the same run.
type named struct {
	_        struct{} `cbor:",toarray"`
	ID       uint64
	Side     Side
	Offset   uint64
	Extent   Extent
	Incoming uint64 // the incoming file that becomes the chunk, if it has not yet; 0 for none
}

// mark tells that the first Length bytes of an incoming file, which hold the body from Offset on, have this CRC-32C.
type mark struct {
	_        struct{} `cbor:",toarray"`
	ID       uint64
	Side     Side
	Offset   uint64
	Incoming uint64
	Length   uint64
	CRC      uint32
}

// deletion names sessions: the ids, and those from From to Through.
type deletion struct {
	IDs     []uint64 `cbor:"1,keyasint,omitempty"`
	From    uint64   `cbor:"2,keyasint,omitempty"`
	Through uint64   `cbor:"3,keyasint,omitempty"`
}

// reservation says that ids up to Through may have been given, and that open sessions up to Cutoff go at their end.
type reservation struct {
	Through uint64 `cbor:"1,keyasint"`
	Cutoff  uint64 `cbor:"2,keyasint"`
}

var (
	encoder = mustMode(cbor.EncOptions{}.UserBufferEncMode())
	decoder = mustMode(cbor.DecOptions{
		MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 16,
		UTF8: cbor.UTF8DecodeInvalid, // what was captured can be any bytes, and Go's strings hold them
	}.DecMode())
)

func mustMode[M any](mode M, err error) M {
	if err != nil {
		panic(err) // the options above are constants
	}
	return mode
}

var encodeBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// encodeBufferLimit is the largest buffer worth keeping: heads of common sessions, not the extents of a terabyte.
const encodeBufferLimit = 256 << 10

// encoded calls fn with v in CBOR. The bytes are fn's only until it returns.
func encoded(v any, fn func([]byte) error) error {
	buf := encodeBuffers.Get().(*bytes.Buffer)
	buf.Reset()
	defer func() {
		if buf.Cap() <= encodeBufferLimit {
			encodeBuffers.Put(buf)
		}
	}()
	if err := encoder.MarshalToBuffer(v, buf); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	return fn(buf.Bytes())
}

func (p pieceHead) encode() (b [pieceHeadSize]byte) {
	binary.LittleEndian.PutUint64(b[0:], p.ID)
	b[8] = byte(p.Side)
	binary.LittleEndian.PutUint64(b[9:], p.Offset)
	return b
}

// decodeRecord decodes a record's payload. A piece's bytes are left where they are.
func decodeRecord(kind recordKind, at place, payload []byte) (*record, error) {
	r := &record{kind: kind, at: at}
	var into any
	switch kind {
	case recordSegment:
		into = &r.head
	case recordBegun, recordEnded:
		r.session = new(Session)
		into = r.session
	case recordPiece:
		if len(payload) < pieceHeadSize {
			return nil, fmt.Errorf("decode piece: %d bytes", len(payload))
		}
		r.piece = pieceHead{
			ID:     binary.LittleEndian.Uint64(payload),
			Side:   Side(payload[8]),
			Offset: binary.LittleEndian.Uint64(payload[9:]),
			Length: uint64(len(payload) - pieceHeadSize),
		}
		return r, r.piece.Side.valid()
	case recordChain, recordHole:
		return r, nil
	case recordNamed:
		into = &r.named
	case recordMark:
		into = &r.mark
	case recordDeleted, recordDoomed:
		into = &r.gone
	case recordReserved:
		into = &r.ids
	default:
		return nil, fmt.Errorf("decode record: unknown kind %d", kind)
	}
	if err := decoder.Unmarshal(payload, into); err != nil {
		return nil, fmt.Errorf("decode record of kind %d: %w", kind, err)
	}
	if err := errors.Join(r.named.Side.valid(), r.mark.Side.valid()); err != nil {
		return nil, fmt.Errorf("decode record of kind %d: %w", kind, err)
	}
	return r, nil
}

// timingMoments is Timing as it is stored: nanoseconds since 1970 in UTC, 0 for a moment that did not come.
// New ones come last: a record of fewer, or of more, reads as far as both go.
type timingMoments [11]int64

// MarshalCBOR stores the moments as integers, a third of the size of their text.
// By hand: that saves a fifth of the
// time that a small session takes to encode.
func (t Timing) MarshalCBOR() ([]byte, error) {
	setup := t.Setup
	if setup == nil {
		setup = new(Setup)
	}
	moments := t.moments(setup)
	b := make([]byte, 0, 1+9*len(moments))
	b = append(b, 0x80|byte(len(moments))) // an array of fewer than 24 items. RFC 8949, section 3.1
	for _, moment := range moments {
		if ns := moment.UnixNano(); moment.IsZero() || ns < 0 {
			b = append(b, 0)
		} else {
			b = binary.BigEndian.AppendUint64(append(b, 0x1b), uint64(ns))
		}
	}
	return b, nil
}

// UnmarshalCBOR reads what MarshalCBOR wrote.
func (t *Timing) UnmarshalCBOR(b []byte) error {
	var m timingMoments
	if err := decoder.Unmarshal(b, &m); err != nil {
		return err
	}
	*t = Timing{}
	var setup Setup
	for i, moment := range t.moments(&setup) {
		if m[i] != 0 {
			*moment = time.Unix(0, m[i]).UTC()
		}
	}
	if setup != (Setup{}) {
		t.Setup = &setup
	}
	return nil
}

func (t *Timing) moments(s *Setup) [len(timingMoments{})]*time.Time {
	return [...]*time.Time{
		&t.Started, &s.Connect, &s.Connected, &s.Secured, &t.RequestSent, &t.ResponseHead, &t.Ended,
		&s.Resolved, &s.ClientHello, &s.ClientSecured, &t.FirstByte,
	}
}
