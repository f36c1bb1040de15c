package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"millpond/content/sse"
	"millpond/content/ws"
	"millpond/storage"
)

const (
	previewBytes = 300 // of a payload that a preview is made from
	previewHex   = 32  // of one that is no text

	// listWait is how long a page of the list waits for messages to be decompressed. What is not by then, has no preview yet.
	listWait = 300 * time.Millisecond
)

// errNoMessages is the answer where a session is not read as messages, or has no such message.
func errNoMessages() *Problem {
	return problem(http.StatusNotFound, "There is no such message. Only WebSockets and event streams have messages: see messages in the session.")
}

type messagesInput struct {
	ID    uint64 `path:"id"`
	From  uint64 `query:"from" doc:"The first message's number. They count from 0, in the order in which they ended."`
	Limit int    `query:"limit" minimum:"0" maximum:"500" default:"100"`
}

func (s *Server) listMessages(ctx context.Context, in *messagesInput) (*answer[MessageList], error) {
	m, err := s.openMessages(in.ID)
	if err != nil {
		return nil, err
	}
	defer m.close()
	return answerWith(m.page(ctx, in.From, in.Limit))
}

// streamReader is a BodyReader or a DerivedReader.
type streamReader interface {
	io.ReaderAt
	Size() int64
	Final() bool
	Grown() <-chan struct{}
	Close() error
}

// messages reads the messages of a session, for one answer.
type messages struct {
	s       *Server
	session *storage.Session
	list    *storage.MessageList
	bodies  [2]streamReader // by side, without the content coding; nil until one is needed
	windows [2]io.ReaderAt  // over bodies
	plain   [2]*inflated    // nil until one is needed
}

func (s *Server) openMessages(id uint64) (*messages, error) {
	session, err := s.store.Session(id)
	if err != nil {
		return nil, s.failed("read the session", err)
	}
	if session.Messages == nil {
		return nil, errNoMessages()
	}
	list, err := s.store.Messages(id)
	if err != nil {
		return nil, s.failed("read the messages", err)
	}
	return &messages{s: s, session: &session, list: list}, nil
}

func (m *messages) close() {
	m.list.Close()
	for side := range m.bodies {
		if m.bodies[side] != nil {
			m.bodies[side].Close()
		}
		if m.plain[side] != nil {
			m.plain[side].close()
		}
	}
}

// page returns the messages from one on.
func (m *messages) page(ctx context.Context, from uint64, limit int) (MessageList, error) {
	page := MessageList{Final: m.list.Final(), Messages: []StreamMessage{}} // before Len: the length of a final list is final
	page.Total = m.list.Len()
	entries := make([]storage.Entry, limit)
	n, err := m.list.Read(entries, from)
	if err != nil {
		return page, m.s.failed("read the messages", err)
	}
	entries = entries[:n]
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	for i := range entries {
		row, err := m.row(ctx, from+uint64(i), &entries[i])
		if err != nil {
			return page, err
		}
		page.Messages = append(page.Messages, row)
	}
	return page, nil
}

// row describes a message.
func (m *messages) row(ctx context.Context, number uint64, e *storage.Entry) (StreamMessage, error) {
	row := StreamMessage{
		Number: number, Side: e.Side.String(), Time: e.Time, Type: m.kind(e), Size: e.Size, Offset: e.Offset, Length: e.Length,
		Compressed: e.Compressed, Broken: e.Broken, Code: int(e.Code),
	}
	p, err := m.payload(ctx, e, true)
	if err != nil {
		return row, err
	}
	if row.Pending = p.pending; p.pending {
		return row, nil
	}
	row.Problem = p.problem
	if e.Compressed && p.problem == "" {
		row.Decoded = &p.size
	}
	start := make([]byte, min(p.size, previewBytes))
	n, err := p.r.ReadAt(start, 0)
	if n < len(start) && row.Problem == "" {
		row.Problem = "it was not passed on, or its bytes were not kept"
		if err != nil {
			m.s.log.Debug("read a message", "session", m.session.ID, "message", number, "err", err)
		}
	}
	start = start[:n]
	if m.session.Messages.Kind == storage.Events {
		event := sse.Parse(string(start))
		row.Event, row.EventID, row.Retry = oneLineText(event.Type), oneLineText(event.ID), oneLineText(event.Retry)
		if start = []byte(event.Data); e.Opcode == storage.Comment {
			start = []byte(event.Comment)
		}
	} else if e.Opcode == ws.Close {
		start = start[min(2, len(start)):]
	}
	row.Preview = preview(start)
	return row, nil
}

// messagesOf tells of a session's messages.
func messagesOf(m *storage.Messages) *Messages {
	if m == nil {
		return nil
	}
	out := &Messages{Kind: "websocket", Count: m.Count(), Compressed: m.Deflate}
	if m.Kind == storage.Events {
		out.Kind = "events"
	}
	for _, why := range append(m.Lost[:], m.List.Missing) {
		if why != "" {
			out.Lost = append(out.Lost, why)
		}
	}
	return out
}

// kind names what a message is.
func (m *messages) kind(e *storage.Entry) string {
	if m.session.Messages.Kind == storage.Events {
		if e.Opcode == storage.Comment {
			return "comment"
		}
		return "event"
	}
	switch e.Opcode {
	case ws.Text:
		return "text"
	case ws.Close:
		return "close"
	case ws.Ping:
		return "ping"
	case ws.Pong:
		return "pong"
	}
	return "binary"
}

// payload is a message's payload.
type payload struct {
	r       io.ReaderAt
	size    int64
	pending bool   // it is not there yet
	problem string // why it is the wire's although the message is compressed
}

// payload opens a message's payload: decoded, or as on the wire.
func (m *messages) payload(ctx context.Context, e *storage.Entry, decoded bool) (payload, error) {
	if e.Compressed && decoded {
		p, err := m.inflated(ctx, e)
		if err != nil || p.problem == "" {
			return p, err
		}
		wire, err := m.wire(ctx, e)
		wire.problem = p.problem
		return wire, err
	}
	return m.wire(ctx, e)
}

// wire opens a payload as it passed: for WebSocket without masking.
func (m *messages) wire(ctx context.Context, e *storage.Entry) (payload, error) {
	body, err := m.body(e.Side)
	if err != nil {
		return payload{}, err
	}
	if !m.s.await(ctx, body, int64(e.Offset+e.Length)) {
		return payload{pending: true}, nil
	}
	r := m.windows[e.Side]
	if m.session.Messages.Kind == storage.Events {
		return payload{r: io.NewSectionReader(r, int64(e.Offset), int64(e.Length)), size: int64(e.Length)}, nil
	}
	return payload{r: ws.NewPayload(r, e.Offset, e.Length, e.Opcode >= ws.Close), size: int64(e.Size)}, nil
}

// body opens a side's bytes, in which the messages lie.
func (m *messages) body(side storage.Side) (streamReader, error) {
	if m.bodies[side] != nil {
		return m.bodies[side], nil
	}
	var body streamReader
	var err error
	if m.session.Messages.Kind == storage.Events && codingOf(m.session.Sides[side].Head) != "" {
		body, err = m.s.decoded(m.session, side)
	} else if body, err = m.s.store.Body(m.session.ID, side); err != nil {
		err = m.s.failed("open the body", err)
	}
	if err != nil {
		return nil, err
	}
	m.bodies[side], m.windows[side] = body, ws.Buffered(body)
	return body, nil
}

// await waits until a stream has size bytes, or gets no more. It reports false where ctx is done first.
func (s *Server) await(ctx context.Context, r streamReader, size int64) bool {
	for {
		final, grown := r.Final(), r.Grown() // before Size, so that no growth is missed
		if final || r.Size() >= size {
			return true
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// preview shows the beginning of a payload in one line: as text, or in hexadecimal.
func preview(b []byte) string {
	text := string(wholeCharacters(b))
	odd := 0
	for _, r := range text {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			odd++
		}
	}
	if odd*8 > len(text) {
		return fmt.Sprintf("% x", b[:min(len(b), previewHex)])
	}
	return oneLineText(text)
}

// wholeCharacters cuts off a last character that has only begun.
func wholeCharacters(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// oneLineText makes text fit for one line of a list.
func oneLineText(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}
