// Package ws reads WebSocket messages (RFC 6455) out of the bytes that pass on a connection: one direction at a time, from outside. It holds no payload: a
// Parser says where each message lies, a Payload reads one there, and Inflate undoes permessage-deflate (RFC 7692) for all of a direction.
package ws

import (
	"encoding/binary"
	"fmt"
)

// Opcodes. RFC 6455, section 5.2.
const (
	Continuation = 0x0
	Text         = 0x1
	Binary       = 0x2
	Close        = 0x8
	Ping         = 0x9
	Pong         = 0xA
)

// Message is one message, or control frame, of a direction.
type Message struct {
	Opcode     byte
	Compressed bool   // its payload is compressed
	Broken     bool   // its end did not come
	Offset     uint64 // of its first frame's head, from the first byte of the direction
	Length     uint64 // from there to its last byte. Control frames that came between its fragments lie within
	Size       uint64 // of its payload, as on the wire
	Code       uint16 // of a Close that has one. Section 7.4
}

// Parser finds the messages of one direction. It takes bytes in pieces of any size, and holds some 200 bytes whatever they are.
type Parser struct {
	Deflate bool                        // permessage-deflate was agreed: RSV1 marks a compressed message. RFC 7692, section 6
	Found   func(Message)               // called for each message once its last byte was written, in the order of these
	Lost    func(at uint64, why string) // called once, where the bytes at an offset are no frame: nothing is found from there on

	at   uint64 // bytes written
	lost bool

	head [maxHead]byte
	have int // bytes of head
	f    frame
	left uint64 // bytes of the frame's payload to come
	code [2]byte

	data    Message // the one whose fragments come
	open    bool    // there is one
	control Message
}

// Write takes the next bytes. It takes all, and never fails.
func (p *Parser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && !p.lost {
		if p.left == 0 {
			b = p.readHead(b)
			continue
		}
		take := min(p.left, uint64(len(b)))
		p.payload(b[:take])
		b = b[take:]
	}
	return n, nil
}

// End says that no more comes. A message that is not whole is found as it is.
func (p *Parser) End() {
	if p.lost {
		return
	}
	p.lost = true
	p.giveUp()
}

// giveUp tells of what is not whole.
func (p *Parser) giveUp() {
	if inControl := p.left > 0 && p.f.control(); inControl {
		p.emit(&p.control, true)
	}
	if p.open {
		p.emit(&p.data, true)
	}
}

func (p *Parser) emit(m *Message, broken bool) {
	m.Broken = broken
	m.Length = p.at - m.Offset
	p.Found(*m)
}

// readHead takes the bytes of a frame's head, and returns what follows them.
func (p *Parser) readHead(b []byte) []byte {
	for {
		need := 2
		if p.have >= need {
			need = headSize(p.head[1])
		}
		if p.have == need {
			break
		}
		if len(b) == 0 {
			return nil
		}
		n := copy(p.head[p.have:need], b)
		p.have += n
		p.at += uint64(n)
		b = b[n:]
	}
	p.f = parseFrame(p.head[:p.have])
	start := p.at - uint64(p.have)
	p.have = 0
	if why := p.wrong(); why != "" {
		p.lost = true
		p.at = start
		p.giveUp()
		p.Lost(start, why)
		return nil
	}
	p.left = p.f.length
	switch {
	case p.f.control():
		p.control = Message{Opcode: p.f.opcode, Offset: start}
	case p.f.opcode != Continuation:
		p.data = Message{Opcode: p.f.opcode, Compressed: p.f.rsv != 0, Offset: start}
		p.open = true
	}
	if p.left == 0 {
		p.frameEnded()
	}
	return b
}

// wrong says why the head that was read cannot be one, or is empty.
func (p *Parser) wrong() string {
	f := &p.f
	switch {
	case f.opcode > Binary && f.opcode < Close || f.opcode > Pong:
		return fmt.Sprintf("a frame has the opcode %d, which is reserved", f.opcode)
	case f.rsv != 0 && (f.rsv != rsv1 || !p.Deflate):
		return "a frame has a reserved bit set that no extension gives a meaning"
	case f.rsv != 0 && (f.control() || f.opcode == Continuation):
		return "a frame is marked as compressed that is not the first of a message"
	case f.control() && f.length > maxControl:
		return fmt.Sprintf("a control frame has %d bytes, more than 125", f.length)
	case f.control() && !f.fin:
		return "a control frame is fragmented"
	case f.length >= 1<<63:
		return "a frame is longer than a frame can be"
	case f.opcode == Continuation && !p.open:
		return "a fragment comes without a message's first"
	case (f.opcode == Text || f.opcode == Binary) && p.open:
		return "a message begins before the one before has ended"
	}
	return ""
}

// payload takes bytes of the frame's payload.
func (p *Parser) payload(b []byte) {
	m := &p.data
	if p.f.control() {
		m = &p.control
		for i := m.Size; i < 2 && i-m.Size < uint64(len(b)); i++ {
			p.code[i] = b[i-m.Size] ^ p.f.key[i]
		}
	}
	n := uint64(len(b))
	m.Size += n
	p.at += n
	if p.left -= n; p.left == 0 {
		p.frameEnded()
	}
}

func (p *Parser) frameEnded() {
	switch {
	case p.f.control():
		if p.f.opcode == Close && p.control.Size >= 2 {
			p.control.Code = binary.BigEndian.Uint16(p.code[:])
		}
		p.emit(&p.control, false)
	case p.f.fin:
		p.open = false
		p.emit(&p.data, false)
	}
}
