package server

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"

	"millpond/storage"
)

type listInput struct {
	Filter string `query:"filter" maxLength:"2000" doc:"A part of the URL, upper and lower case alike; or status:404, status:40, status:4xx, or both."`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" default:"100"`
	Before uint64 `query:"before" doc:"Only sessions with a lower id: the last id of the page before. 0: from the newest."`
	Count  bool   `query:"count" doc:"Give total also with a filter, which looks at every session."`
}

func (s *Server) listSessions(ctx context.Context, in *listInput) (*answer[SessionList], error) {
	matches, err := parseFilter(in.Filter)
	if err != nil {
		return nil, err
	}
	list := SessionList{Sessions: []Summary{}}
	if matches == nil {
		total := s.store.Status().Sessions
		list.Total = &total
	}
	before := in.Before
	if before == 0 {
		before = math.MaxUint64
	}
	if matches == nil {
		err = s.store.ScanDown(0, before, func(r *storage.Row) bool {
			if len(list.Sessions) < in.Limit {
				list.Sessions = append(list.Sessions, summaryOf(r))
			}
			return len(list.Sessions) < in.Limit && ctx.Err() == nil
		})
	} else {
		err = s.listMatches(ctx, &list, before, in.Limit, in.Count, matches)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, s.failed("read the sessions", err)
	}
	return answerWith(list, nil)
}

// listMatches puts the newest sessions below before that match into the list, and with counting the total, which is over all pages.
func (s *Server) listMatches(ctx context.Context, list *SessionList, before uint64, limit int, counting bool, matches storage.Match) error {
	from := before
	if counting {
		from = math.MaxUint64
	}
	var total uint64
	var page []uint64
	err := s.store.Find(0, from, true, matches, func(ids []uint64, _, _ uint64) bool {
		total += uint64(len(ids))
		for _, id := range ids {
			if id < before && len(page) < limit {
				page = append(page, id)
			}
		}
		return (counting || len(page) < limit) && ctx.Err() == nil
	})
	if err != nil {
		return err
	}
	for _, id := range page {
		row, err := s.store.Row(id)
		switch {
		case err == nil:
			list.Sessions = append(list.Sessions, summaryOf(&row))
		case !errors.Is(err, fs.ErrNotExist): // else it was deleted meanwhile
			return err
		}
	}
	if counting {
		list.Total = &total
	}
	return nil
}

func (s *Server) getSession(_ context.Context, in *idInput) (*answer[Session], error) {
	row, session, err := s.load(in.ID)
	if err != nil {
		return nil, err
	}
	return answerWith(sessionOf(&row, &session), nil)
}

// load returns a session's row and record, or a Problem.
func (s *Server) load(id uint64) (storage.Row, storage.Session, error) {
	row, err := s.store.Row(id)
	if err != nil {
		return storage.Row{}, storage.Session{}, s.failed("read the session", err)
	}
	session, err := s.store.Session(id)
	if err != nil {
		return storage.Row{}, storage.Session{}, s.failed("read the session", err)
	}
	return row, session, nil
}

// failed turns an error of the store into a Problem, and logs those that are no fault of the caller.
func (s *Server) failed(doing string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noSession()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "The call was given up before it was done. Ask for less, or try again.")
	}
	s.log.Error("answer with 500", "doing", doing, "err", err)
	return problem(http.StatusInternalServerError, "Millpond could not %s: %v. Its log says more.", doing, err)
}

func (s *Server) deleteSession(ctx context.Context, in *idInput) (*answer[Deleted], error) {
	n, err := s.store.Delete(ctx, []uint64{in.ID})
	if err != nil {
		return nil, s.failed("delete the session", err)
	}
	if n == 0 {
		return nil, noSession()
	}
	return answerWith(Deleted{n}, nil)
}

type annotateInput struct {
	ID   uint64 `path:"id"`
	Body Annotation
}

func (s *Server) annotateSession(_ context.Context, in *annotateInput) (*answer[Summary], error) {
	err := s.store.Annotate(in.ID, func(session *storage.Session) {
		if in.Body.Pinned != nil {
			session.Pinned = *in.Body.Pinned
		}
		if in.Body.Note != nil {
			session.Note = *in.Body.Note
		}
		if in.Body.Color != nil {
			session.Color = *in.Body.Color
		}
	})
	if err != nil {
		return nil, s.failed("change the session", err)
	}
	row, err := s.store.Row(in.ID)
	if err != nil {
		return nil, s.failed("read the session", err)
	}
	return answerWith(summaryOf(&row), nil)
}
