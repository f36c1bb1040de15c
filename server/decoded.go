package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"millpond/content"
	"millpond/storage"
)

const (
	// maxDecoded bounds a decoded copy, in bytes. What a small body may become is bounded much lower, by content.LimitRatio.
	maxDecoded = 16 << 30

	// maxDecoding bounds how many bodies are decoded at a time: each takes up to 8 MiB for its window. Further ones wait.
	maxDecoding = 16

	// decodeWait is how long an answer waits for a copy that is being made, so that a small one is answered whole.
	decodeWait = 2 * time.Second
)

// decoded opens the copy of a body without its content codings, which is made in the background where it is not there yet.
func (s *Server) decoded(session *storage.Session, side storage.Side) (*storage.DerivedReader, error) {
	coding := codingOf(session.Sides[side].Head)
	if probe, err := content.Decode(strings.NewReader(""), coding); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "The body cannot be decoded: %v. Read the wire bytes, without ?as.", err)
	} else {
		probe.Close()
	}
	derived, err := s.store.Derive(session.ID, side.String()+".decoded", maxDecoded, func(ctx context.Context, w io.Writer) error {
		return s.decode(ctx, w, session.ID, side, coding)
	})
	if err != nil {
		return nil, s.failed("decode the body", err)
	}
	return derived, nil
}

func (s *Server) decode(ctx context.Context, w io.Writer, id uint64, side storage.Side, coding string) error {
	ctx, cancel := s.until(ctx)
	defer cancel()
	select {
	case s.decoding <- struct{}{}:
		defer func() { <-s.decoding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	body, err := s.store.Body(id, side)
	if err != nil {
		return fmt.Errorf("open the body: %w", err)
	}
	defer body.Close()
	decoder, err := content.Decode(body.Follow(ctx), coding)
	if err != nil {
		return err
	}
	defer decoder.Close()
	buffer := sendBuffers.Get().(*[64 << 10]byte)
	defer sendBuffers.Put(buffer)
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, decoder, buffer[:])
	return err
}

// answerDecoded sends the part of a decoded copy that the request selects, also while the copy is being made.
func (s *Server) answerDecoded(w http.ResponseWriter, r *http.Request, session *storage.Session, side storage.Side, derived *storage.DerivedReader) error {
	body := &derived.BodyReader
	size := int64(1) // of a body that grows, what is there; the rest follows as it comes
	if wire, err := s.store.Body(session.ID, side); err == nil {
		if wire.Final() {
			size = wanted(r)
		}
		wire.Close()
	}
	s.awaitDecoded(r, body, size)
	rep := represent(session, side.String()+".decoded", body, body.Complete())
	rep.whole = func() bool { return body.Complete() || errors.Is(derived.Err(), content.ErrTrailing) }
	if err := derived.Err(); rep.final && err != nil {
		if rep.size == 0 {
			return undecodable(err)
		}
		w.Header().Set("Millpond-Decode-Error", oneLine(err.Error()))
		rep.state = "incomplete"
		if errors.Is(err, content.ErrTrailing) {
			rep.state = "complete"
		}
	}
	return s.answerBytes(w, r, session, side, &rep)
}

// undecodable tells why nothing of a body can be decoded.
func undecodable(err error) *Problem {
	const instead = "Read the wire bytes, without ?as."
	switch {
	case errors.Is(err, storage.ErrDiskLow):
		return problem(http.StatusInsufficientStorage, "There is no room for a decoded copy: %v. Make some, or read the wire bytes, without ?as.", err)
	case errors.Is(err, content.ErrNotEncoded):
		return problem(http.StatusUnprocessableEntity, "The body is not encoded as its Content-Encoding says (%v): it may be plain. %s", err, instead)
	}
	return problem(http.StatusUnprocessableEntity, "Nothing of the body can be decoded: %v. %s", err, instead)
}

// wanted returns how many bytes of a copy the request needs to be answered as if the copy were whole.
func wanted(r *http.Request) int64 {
	if r.URL.Query().Has("download") {
		return 1 // the rest follows as it is made
	}
	if part, ok, err := parseRange(r.Header.Get("Range"), math.MaxInt64); ok && err == nil {
		return part.to
	}
	return math.MaxInt64
}

// awaitDecoded waits a little until size bytes of a copy are there, or it is final.
func (s *Server) awaitDecoded(r *http.Request, body *storage.BodyReader, size int64) {
	ctx, cancel := s.patiently(r)
	defer cancel()
	s.await(ctx, body, size)
}

// patiently ends with the request, or once it has waited for decodeWait.
func (s *Server) patiently(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), decodeWait)
}

// oneLine makes text fit for a field's value.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, text)
}
