package ws

import "encoding/binary"

const (
	maxHead    = 14  // two bytes, a length of eight, a key of four
	maxControl = 125 // bytes of a control frame's payload. RFC 6455, section 5.5
	rsv1       = 4
)

// frame is the head of a frame. RFC 6455, section 5.2.
type frame struct {
	fin    bool
	rsv    byte // RSV1 to RSV3, as a number of three bits
	opcode byte
	length uint64  // of the payload
	key    [4]byte // zero where the payload is not masked
}

func (f *frame) control() bool { return f.opcode&8 != 0 }

// headSize is the length of a head whose second byte is b.
func headSize(b byte) int {
	n := 2
	switch b & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if b&0x80 != 0 {
		n += 4
	}
	return n
}

// parseFrame reads a head that is whole.
func parseFrame(b []byte) frame {
	f := frame{fin: b[0]&0x80 != 0, rsv: b[0] >> 4 & 7, opcode: b[0] & 0xf, length: uint64(b[1] & 0x7f)}
	switch f.length {
	case 126:
		f.length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		f.length = binary.BigEndian.Uint64(b[2:])
	}
	if b[1]&0x80 != 0 {
		f.key = [4]byte(b[len(b)-4:])
	}
	return f
}

// unmask undoes the masking of a part of a payload that begins at an offset of it. RFC 6455, section 5.3.
func unmask(b []byte, key [4]byte, at uint64) {
	if key == [4]byte{} {
		return
	}
	var two [8]byte
	for i := range two {
		two[i] = key[(at+uint64(i))%4]
	}
	word := binary.LittleEndian.Uint64(two[:])
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= two[i]
	}
}
