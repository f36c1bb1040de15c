package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"millpond/storage"
)

// digestAtOnce is the size up to which a body whose digest is not known is hashed before it is answered: some 5 ms.
const digestAtOnce = 8 << 20

// representation is a body as one answer shows it. It is a snapshot: a body that grows meanwhile is answered as it was.
type representation struct {
	body  *storage.BodyReader // nil for one that does not grow
	from  io.ReaderAt
	final bool
	size  int64
	state string // of Millpond-Body
	etag  string // strong; empty while the body grows
	name  string // of its file; empty: told by the session

	whole func() bool // whether a body that became final is all there
}

// represent takes the snapshot. The name tells representations of one session apart.
func represent(session *storage.Session, name string, body *storage.BodyReader, complete bool) representation {
	r := representation{body: body, from: body, final: body.Final(), whole: body.Complete} // before Size: the size of a final body is final
	r.size = body.Size()
	switch {
	case !r.final:
		r.state = "growing"
		return r
	case complete:
		r.state = "complete"
	default:
		r.state = "incomplete"
	}
	// Ids are never used twice and a final body never changes, so these name its bytes. The start tells data directories apart.
	r.etag = fmt.Sprintf(`"%d-%s-%x-%x"`, session.ID, name, r.size, session.Timing.Started.UnixNano())
	return r
}

func parseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse id %q: %w", text, err)
	}
	return id, nil
}

// serveBody answers GET and HEAD for a body's bytes, as bodyDoc tells.
func (s *Server) serveBody(w http.ResponseWriter, r *http.Request) {
	if err := s.answerBody(w, r); err != nil {
		writeProblem(w, asProblem(err))
	}
}

// answerBody returns a Problem while nothing was sent.
func (s *Server) answerBody(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return noSession()
	}
	side, err := storage.ParseSide(r.PathValue("side"))
	if err != nil {
		return noSession()
	}
	session, err := s.store.Session(id)
	if err != nil {
		return s.failed("read the session", err)
	}
	h := w.Header()
	switch as := r.URL.Query().Get("as"); {
	case as == "" || as == "decoded" && codingOf(session.Sides[side].Head) == "":
		body, err := s.store.Body(id, side)
		if missing := session.Sides[side].Body.Missing; errors.Is(err, fs.ErrNotExist) && missing != "" {
			return problem(http.StatusNotFound, "Nothing is kept of this body: %s.", missing)
		}
		if err != nil {
			return s.failed("open the body", err)
		}
		defer body.Close()
		rep := represent(&session, side.String(), body, body.Complete())
		if digest := s.digest(r, id, side, &rep); digest != nil {
			h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(digest)+":")
		}
		return s.answerBytes(w, r, &session, side, &rep)
	case as == "decoded":
		body, err := s.decoded(&session, side)
		if err != nil {
			return err
		}
		defer body.Close()
		return s.answerDecoded(w, r, &session, side, body)
	default:
		return problem(http.StatusBadRequest, "There is no representation %q. Leave ?as out for the wire bytes, or ask for decoded.", as)
	}
}

// digest returns the SHA-256 of a final body where it is known, quickly made, or wanted (Want-Repr-Digest: RFC 9530, section 4). Else nil:
// the first byte of a large body does not wait for its last.
func (s *Server) digest(r *http.Request, id uint64, side storage.Side, rep *representation) []byte {
	if !rep.final {
		return nil
	}
	session, err := s.store.Session(id) // again, because the body may have become final since
	if err != nil {
		return nil
	}
	if known := session.Sides[side].Body.SHA256; known != nil {
		return known
	}
	if rep.size > digestAtOnce && !strings.Contains(r.Header.Get("Want-Repr-Digest"), "sha-256") {
		return nil
	}
	sum, err := s.store.SHA256(r.Context(), id, side)
	if err != nil && r.Context().Err() == nil {
		s.log.Warn("answer without a digest", "session", id, "side", side, "err", err)
	}
	return sum
}

// answerBytes sends the part that the request selects.
func (s *Server) answerBytes(w http.ResponseWriter, r *http.Request, session *storage.Session, side storage.Side, rep *representation) error {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Millpond-Body", rep.state)
	h.Set("Content-Disposition", "attachment")
	download := r.URL.Query().Has("download")
	if download {
		name := rep.name
		if name == "" {
			name = fileName(session.Path, mediaType(session, side), side)
		}
		h.Set("Content-Disposition", disposition(name))
	}
	if rep.etag != "" {
		h.Set("ETag", rep.etag)
	}
	if status := precondition(r, rep.etag); status != 0 {
		if status == http.StatusNotModified {
			w.WriteHeader(status)
			return nil
		}
		return problem(status, "The body is not the one you have a part of. Read it from the start.")
	}

	part, partial, err := selected(r, rep)
	if err != nil {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", rep.size))
		h.Del("Content-Disposition")
		return problem(http.StatusRequestedRangeNotSatisfiable, "No such part of %d bytes: %v.", rep.size, err)
	}
	switch {
	case partial && rep.final:
		h.Set("Content-Range", part.contentRange(strconv.FormatInt(rep.size, 10)))
	case partial:
		h.Set("Content-Range", part.contentRange("*"))
	case rep.final:
	case download:
		if r.Method == http.MethodHead {
			return nil
		}
		ctx, cancel := s.until(r.Context())
		defer cancel()
		s.follow(ctx, w, rep)
		return nil
	case rep.size == 0:
		w.WriteHeader(http.StatusNoContent)
		return nil
	default: // what is there of a body that grows: a 200 would say that it is all
		partial = true
		h.Set("Content-Range", part.contentRange("*"))
	}
	if err := readable(rep.from, part); err != nil {
		s.log.Error("answer with 500", "doing", "read a body", "at", part.from, "err", err)
		for _, name := range []string{"Content-Disposition", "Content-Range", "ETag", "Millpond-Body", "Repr-Digest"} {
			h.Del(name)
		}
		advice := " millpond verify --repair finds out what is lost."
		if errors.Is(err, storage.ErrFileGone) { // that says it itself
			advice = ""
		}
		return problem(http.StatusInternalServerError, "The body's bytes from %d on cannot be read: %v.%s", part.from, err, advice)
	}
	h.Set("Content-Length", strconv.FormatInt(part.to-part.from, 10))
	if partial {
		w.WriteHeader(http.StatusPartialContent)
	}
	if r.Method != http.MethodHead {
		s.send(r.Context(), w, rep.from, part)
	}
	return nil
}

// readable tries a part's first byte, while a problem can still be answered.
func readable(from io.ReaderAt, part span) error {
	var b [1]byte
	n, err := from.ReadAt(b[:min(int64(len(b)), part.to-part.from)], part.from)
	if n == len(b) || part.to == part.from {
		return nil
	}
	return cmp.Or(err, io.ErrUnexpectedEOF)
}

// selected returns the part that the request asks for, and whether it asked for a part.
func selected(r *http.Request, rep *representation) (part span, partial bool, err error) {
	all := span{0, rep.size}
	field := r.Header.Get("Range")
	if field == "" || r.Method != http.MethodGet { // RFC 9110, section 14.2: for GET alone
		return all, false, nil
	}
	if ifRange := r.Header.Get("If-Range"); ifRange != "" && ifRange != rep.etag { // a date is never ours
		return all, false, nil
	}
	if rep.final && rep.size == 0 {
		return all, false, nil // a client that adds Range to everything gets all of nothing, as from net/http
	}
	part, ok, err := parseRange(field, rep.size)
	if err != nil {
		return span{}, false, err
	}
	if !ok {
		return all, false, nil
	}
	return part, true, nil
}

// precondition returns 412 or 304 where If-Match or If-None-Match say so, else 0. RFC 9110, section 13.2.2.
func precondition(r *http.Request, etag string) int {
	if list := r.Header.Get("If-Match"); list != "" && !etagListed(list, etag) {
		return http.StatusPreconditionFailed
	}
	if list := r.Header.Get("If-None-Match"); list != "" && etag != "" && etagListed(list, etag) {
		return http.StatusNotModified
	}
	return 0
}

// until returns a context that also ends when the server shuts down.
func (s *Server) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { unhook(); cancel() }
}

// mediaType returns the type that a side's head names.
func mediaType(session *storage.Session, side storage.Side) string {
	for _, f := range fieldsOf(session.Sides[side].Head) {
		if strings.EqualFold(f[0], "Content-Type") {
			return f[1]
		}
	}
	return ""
}
