package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame describes a record's payload. Stored little-endian: payload length, CRC-32C of the payload, kind, slot,
// CRC-32C of these and of the segment's number, so that a frame cannot be taken for one of another place.
type frame struct {
	length uint32
	crc    uint32
	kind   recordKind
	slot   uint32
}

func (f frame) put(b []byte, segment uint64) {
	binary.LittleEndian.PutUint32(b, f.length)
	binary.LittleEndian.PutUint32(b[4:], f.crc)
	b[8] = byte(f.kind)
	binary.LittleEndian.PutUint32(b[9:], f.slot)
	binary.LittleEndian.PutUint32(b[13:], frameSum(b[:13], segment))
}

func parseFrame(b []byte, segment uint64) (f frame, ok bool) {
	if len(b) < frameSize || binary.LittleEndian.Uint32(b[13:]) != frameSum(b[:13], segment) {
		return frame{}, false
	}
	f = frame{
		length: binary.LittleEndian.Uint32(b),
		crc:    binary.LittleEndian.Uint32(b[4:]),
		kind:   recordKind(b[8]),
		slot:   binary.LittleEndian.Uint32(b[9:]),
	}
	return f, f.length <= payloadMax
}

// frameSum is byte by byte: for so few it takes no longer than the processor's instruction, for which the bytes would have to be on the heap.
func frameSum(b []byte, segment uint64) uint32 {
	crc := ^uint32(0)
	for i := range 8 {
		crc = castagnoli[byte(crc)^byte(segment>>(8*i))] ^ crc>>8
	}
	for _, v := range b {
		crc = castagnoli[byte(crc)^v] ^ crc>>8
	}
	return ^crc
}

// errTorn is a record that is not whole.
var errTorn = errors.New("record is not whole")

// segmentReader reads the frames of a segment, one after the other.
type segmentReader struct {
	segment    uint64
	generation uint32
	r          io.ReaderAt
	offset     uint64
	end        uint64 // how much of the file counts
	payload    []byte
}

// next returns the next record. At the end it is io.EOF; a record that is not whole, does not match its checksum or cannot be decoded is errTorn,
// and the offset stays before it.
func (s *segmentReader) next() (*record, error) {
	if s.offset >= s.end {
		return nil, io.EOF
	}
	var head [frameSize]byte
	if n, err := s.r.ReadAt(head[:], int64(s.offset)); n < frameSize {
		return nil, torn(err)
	}
	f, ok := parseFrame(head[:], s.segment)
	if !ok || s.offset+frameSize+uint64(f.length) > s.end {
		return nil, errTorn
	}
	if cap(s.payload) < int(f.length) {
		s.payload = make([]byte, f.length)
	}
	s.payload = s.payload[:f.length]
	at := place{slotID{s.segment, f.slot}, s.offset + frameSize, f.length, s.generation}
	if n, err := s.r.ReadAt(s.payload, int64(at.offset)); n < len(s.payload) {
		return nil, torn(err)
	}
	if crc32.Checksum(s.payload, castagnoli) != f.crc {
		return nil, errTorn
	}
	rec, err := decodeRecord(f.kind, at, s.payload)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, errTorn)
	}
	s.offset = at.end().Offset
	return rec, nil
}

// skip moves over the next record without reading its payload. At the end it is io.EOF.
func (s *segmentReader) skip() error {
	if s.offset >= s.end {
		return io.EOF
	}
	var head [frameSize]byte
	if n, err := s.r.ReadAt(head[:], int64(s.offset)); n < frameSize {
		return torn(err)
	}
	f, ok := parseFrame(head[:], s.segment)
	if !ok || s.offset+frameSize+uint64(f.length) > s.end {
		return errTorn
	}
	s.offset += frameSize + uint64(f.length)
	return nil
}

func torn(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errTorn
	}
	return err
}

// resync moves to the next offset at which a whole record begins, and reports whether there is one.
func (s *segmentReader) resync() bool {
	const window = 64 << 10
	buf := make([]byte, window+frameSize)
	for at := s.offset + 1; at+frameSize <= s.end; at += window {
		n, _ := s.r.ReadAt(buf[:min(uint64(len(buf)), s.end-at)], int64(at))
		for i := 0; i+frameSize <= n && i < window; i++ {
			if _, ok := parseFrame(buf[i:n], s.segment); !ok {
				continue
			}
			probe := *s
			probe.offset, probe.payload = at+uint64(i), nil
			if _, err := probe.next(); err == nil {
				s.offset = at + uint64(i)
				return true
			}
		}
	}
	return false
}
