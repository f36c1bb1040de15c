package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// messageList is a third stream of a session beside its two bodies: an Entry for each message that they hold, all of one size, so that any is found by
// arithmetic. It is written, synced, recovered, counted and deleted as a body is, a million of them as 40 MB of chunks.
const messageList Side = 2

// streams is how many streams a session can have: its bodies and the list.
const streams = 3

func (s Side) valid() error {
	if s < streams {
		return nil
	}
	return fmt.Errorf("there is no side %d", uint8(s))
}

// stream says for people which of a session's streams it is.
func (s Side) stream() string {
	if s == messageList {
		return "list of messages"
	}
	return s.String() + " body"
}

// MessageKind says how a session's bodies are read as messages.
type MessageKind uint8

// The kinds of messages.
const (
	WebSocket MessageKind = 1 + iota // RFC 6455: the frames of both sides
	Events                           // server-sent events: the response's body, without its content coding
)

// Messages tells of the messages that a session's bodies hold.
type Messages struct {
	Kind    MessageKind `cbor:"1,keyasint"`
	Deflate bool        `cbor:"2,keyasint,omitempty"` // permessage-deflate was agreed. RFC 7692
	Fresh   [2]bool     `cbor:"3,keyasint"`           // by Side: each of its messages is compressed without the ones before (no_context_takeover)
	Lost    [2]string   `cbor:"4,keyasint"`           // by Side: where and why reading ended before the body did, or decompression failed, for people
	List    Body        `cbor:"5,keyasint"`           // the entries. Storage owns it
}

// Count returns how many messages are listed.
func (m *Messages) Count() uint64 { return m.List.Size / EntrySize }

// Entry tells of one message, and where it lies.
type Entry struct {
	Side   Side
	Opcode uint8     // RFC 6455, section 5.2; 0 for an event, or Comment
	Time   time.Time // its last byte passed, to the nanosecond

	Offset uint64 // of its first byte in the side's body, a frame's head included
	Length uint64 // from there to its last byte. Control frames that came between its fragments lie within
	Size   uint64 // of its payload, without the heads of frames; before decompression

	Compressed bool
	Broken     bool   // its end did not come
	Code       uint16 // of a close that has one
	Nth        uint64 // how many compressed messages its side had before it
}

// Comment is the Opcode of what stands in an event stream and has no data, so that a browser dispatches no event.
const Comment = 1

// EntrySize is the stored size of an Entry. Little-endian: time (ns since 1970), offset, length, size; Nth in six bytes; opcode, bits; code.
const EntrySize = 42

// The bits of a stored Entry. The first is its side.
const (
	entrySide = 1 << iota
	entryCompressed
	entryBroken
)

func (e *Entry) encode() (b [EntrySize]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(e.Time.UnixNano()))
	le.PutUint64(b[8:], e.Offset)
	le.PutUint64(b[16:], e.Length)
	le.PutUint64(b[24:], e.Size)
	le.PutUint64(b[32:], e.Nth) // its last two bytes are written over
	b[38] = e.Opcode
	b[39] = byte(e.Side)
	if e.Compressed {
		b[39] |= entryCompressed
	}
	if e.Broken {
		b[39] |= entryBroken
	}
	le.PutUint16(b[40:], e.Code)
	return b
}

func decodeEntry(b []byte) Entry {
	le := binary.LittleEndian
	return Entry{
		Side: Side(b[39] & entrySide), Opcode: b[38], Time: time.Unix(0, int64(le.Uint64(b))).UTC(),
		Offset: le.Uint64(b[8:]), Length: le.Uint64(b[16:]), Size: le.Uint64(b[24:]), Nth: le.Uint64(b[32:]) & (1<<48 - 1),
		Compressed: b[39]&entryCompressed != 0, Broken: b[39]&entryBroken != 0, Code: le.Uint16(b[40:]),
	}
}

// ListMessages says that the session's bodies hold messages, which List is going to be called for. What m says of the list is ignored.
func (r *Recording) ListMessages(m Messages) {
	m.List = Body{}
	r.Change(func(s *Session) { s.Messages = &m })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = true
}

// List adds a message. It is safe for both sides' goroutines, and never blocks.
func (r *Recording) List(e Entry) {
	b := e.encode()
	_, _ = r.writers[messageList].Write(b[:])
}

// LoseMessages says where and why the reading of a side as messages ended before its body.
func (r *Recording) LoseMessages(side Side, why string) {
	r.Change(func(s *Session) { s.loseMessages(side, why) })
}

// LoseMessages is Recording.LoseMessages for who finds out later. What was said before stays.
func (s *Store) LoseMessages(id uint64, side Side, why string) error {
	if err := s.amend(id, func(session *Session) { session.loseMessages(side, why) }); err != nil {
		return fmt.Errorf("note what is wrong with the messages of session %d: %w", id, err)
	}
	return nil
}

func (s *Session) loseMessages(side Side, why string) {
	if s.Messages != nil && s.Messages.Lost[side] == "" {
		m := *s.Messages // the old one may be shared with a snapshot
		m.Lost[side] = why
		s.Messages = &m
	}
}

// ReadAlong has every byte of a side's body that comes from here on written to w, in order, by the goroutine that writes the body. w must not
// keep what it is given, and must not take long. It is closed when the session ends.
// nil ends that.
func (r *Recording) ReadAlong(side Side, w io.WriteCloser) {
	if w == nil {
		r.writers[side].reader.Store(nil)
		return
	}
	r.writers[side].reader.Store(&w)
}

// Passing says that p, which Give or Write is going to be called with once it was forwarded, is about to be. Who reads along is told now, so that a message is
// listed before any answer to it can be.
func (w *BodyWriter) Passing(p []byte) {
	if reader := w.reader.Load(); reader != nil {
		_, _ = (*reader).Write(p)
		w.announced = true
	}
}

func (w *BodyWriter) readAlong(p []byte) {
	if w.announced {
		w.announced = false
		return
	}
	if reader := w.reader.Load(); reader != nil {
		_, _ = (*reader).Write(p)
	}
}

// closeReaders tells those that read along that the session ends.
func (r *Recording) closeReaders() {
	for side := range r.writers {
		if reader := r.writers[side].reader.Swap(nil); reader != nil {
			_ = (*reader).Close()
		}
	}
}

// large reports whether a stream is in files of its own. r.mu is held.
func (r *Recording) large() bool {
	for i := range r.bodies {
		if r.bodies[i].incoming != nil {
			return true
		}
	}
	return false
}

// holds reports whether bytes of a stream are in memory. r.mu is held.
func (r *Recording) holds() bool {
	for i := range r.bodies {
		if len(r.bodies[i].queue) > 0 {
			return true
		}
	}
	return false
}

// streams yields what is kept of each stream that the session has.
func (s *Session) streams() iter.Seq2[Side, *Body] {
	return func(yield func(Side, *Body) bool) {
		if yield(Request, &s.Sides[Request].Body) && yield(Response, &s.Sides[Response].Body) && s.Messages != nil {
			yield(messageList, &s.Messages.List)
		}
	}
}

// stream returns what is kept of a stream; nil where the session has no such.
func (s *Session) stream(side Side) *Body {
	for at, b := range s.streams() {
		if at == side {
			return b
		}
	}
	return nil
}

// MessageList reads the entries of a session, also while there come more.
type MessageList struct {
	body *BodyReader
	part []byte
}

// Messages opens the list of a session's messages. A session that has none, or is unknown, is fs.ErrNotExist.
func (s *Store) Messages(id uint64) (*MessageList, error) {
	body, err := s.Body(id, messageList)
	if err != nil {
		return nil, fmt.Errorf("open messages of session %d: %w", id, err)
	}
	return &MessageList{body: body}, nil
}

// MessagesSoFar returns how many messages are listed of a session that is being recorded; else 0.
func (s *Store) MessagesSoFar(id uint64) uint64 {
	r := s.live.get(id)
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[messageList].kept / EntrySize
}

// Len returns how many messages are listed so far.
func (l *MessageList) Len() uint64 { return uint64(l.body.Size()) / EntrySize }

// Final reports whether no message will be added.
func (l *MessageList) Final() bool { return l.body.Final() }

// Grown returns a channel that is closed at the next message, or when the list is final.
func (l *MessageList) Grown() <-chan struct{} { return l.body.Grown() }

// Read fills entries with those from the nth on, and returns how many there were.
func (l *MessageList) Read(entries []Entry, nth uint64) (int, error) {
	if nth >= l.Len() {
		return 0, nil
	}
	entries = entries[:min(uint64(len(entries)), l.Len()-nth)]
	if need := len(entries) * EntrySize; cap(l.part) < need {
		l.part = make([]byte, need)
	}
	part := l.part[:len(entries)*EntrySize]
	n, err := l.body.ReadAt(part, int64(nth*EntrySize))
	if err != nil && !(errors.Is(err, io.EOF) && n == len(part)) {
		return 0, fmt.Errorf("read messages: %w", err)
	}
	for i := range entries {
		entries[i] = decodeEntry(part[i*EntrySize:])
	}
	return len(entries), nil
}

// Close lets go of the list.
func (l *MessageList) Close() error { return l.body.Close() }
