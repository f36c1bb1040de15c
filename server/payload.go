package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"millpond/content/sse"
	"millpond/storage"
)

// maxEvent bounds the event that ?as=decoded takes apart, in bytes: it is held whole.
const maxEvent = 16 << 20

// servePayload answers GET for a message's payload, as payloadDoc tells.
func (s *Server) servePayload(w http.ResponseWriter, r *http.Request) {
	if err := s.answerPayload(w, r); err != nil {
		writeProblem(w, asProblem(err))
	}
}

// answerPayload returns a Problem while nothing was sent.
func (s *Server) answerPayload(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return noSession()
	}
	number, err := strconv.ParseUint(r.PathValue("number"), 10, 64)
	if err != nil {
		return errNoMessages()
	}
	as := r.URL.Query().Get("as")
	if as != "" && as != "decoded" {
		return problem(http.StatusBadRequest, "There is no representation %q. Leave ?as out for the payload as it passed, or ask for decoded.", as)
	}
	m, err := s.openMessages(id)
	if err != nil {
		return err
	}
	defer m.close()
	var entry [1]storage.Entry
	if n, err := m.list.Read(entry[:], number); err != nil {
		return s.failed("read the messages", err)
	} else if n == 0 {
		return errNoMessages()
	}
	p, err := m.whole(r, &entry[0], as == "decoded")
	if err != nil {
		return err
	}
	rep := representation{
		from: p.r, size: p.size, final: true, state: "complete",
		etag: fmt.Sprintf(`"%d-message-%d-%s-%x-%x"`, id, number, as, p.size, m.session.Timing.Started.UnixNano()),
		name: fmt.Sprintf("message-%d%s", number, payloadExtension(m.kind(&entry[0]), as == "decoded" || !entry[0].Compressed)),
	}
	if entry[0].Broken {
		rep.state = "incomplete"
	}
	return s.answerBytes(w, r, m.session, entry[0].Side, &rep)
}

// payloadExtension ends a payload's file name.
func payloadExtension(kind string, readable bool) string {
	if readable && (kind == "text" || kind == "event" || kind == "comment") {
		return ".txt"
	}
	return ".bin"
}

// whole opens a payload of which every byte is there, and waits a little for that.
func (m *messages) whole(r *http.Request, e *storage.Entry, decoded bool) (payload, error) {
	ctx, cancel := m.s.patiently(r)
	defer cancel()
	p, err := m.payload(ctx, e, decoded)
	switch {
	case err != nil:
		return p, err
	case p.pending:
		return p, problem(http.StatusServiceUnavailable, "The message is still being decompressed. Ask again in a moment, or for the payload as it passed, without ?as.")
	case p.problem != "":
		return p, problem(http.StatusUnprocessableEntity, "The message cannot be decoded: %s. Ask for the payload as it passed, without ?as.", p.problem)
	}
	if p.size > 0 {
		var last [1]byte
		if n, _ := p.r.ReadAt(last[:], p.size-1); n == 0 {
			return p, problem(http.StatusNotFound, "The message's bytes were not kept: %s", m.session.Sides[e.Side].Body.Missing)
		}
	}
	if !decoded || m.session.Messages.Kind != storage.Events {
		return p, nil
	}
	if p.size > maxEvent {
		return p, problem(http.StatusUnprocessableEntity, "The event has %d bytes, too many to be taken apart. Ask for them as they passed, without ?as.", p.size)
	}
	text := make([]byte, p.size)
	if _, err := io.ReadFull(io.NewSectionReader(p.r, 0, p.size), text); err != nil {
		return p, m.s.failed("read the event", err)
	}
	data := sse.Parse(string(text)).Data
	return payload{r: strings.NewReader(data), size: int64(len(data))}, nil
}
