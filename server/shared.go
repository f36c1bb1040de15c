package server

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"millpond/storage"
)

// shareKey finds, in a request's context, the liveShare that guard let it through with.
type shareKey struct{}

// noShare is the one answer for a share that never was, expired, was revoked, or whose token is wrong.
func noShare() *Problem {
	return problem(http.StatusNotFound, "There is nothing here. The link may have expired or been revoked: ask whoever sent it for another.")
}

// sharedBy returns the share whose id is in the path, if the request shows its token: as Bearer, or in the cookie that loginShared gave.
func (g *guard) sharedBy(r *http.Request) (*liveShare, bool) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, sharedPrefix), "/")
	if token := bearer(r); token != "" {
		return g.shares.find(id, token)
	}
	for _, c := range r.CookiesNamed(cookieName("millpond_share", r)) {
		if share, ok := g.shares.find(id, c.Value); ok {
			return share, true
		}
	}
	return nil, false
}

func shareOf(ctx context.Context) *liveShare { return ctx.Value(shareKey{}).(*liveShare) }

type createShareInput struct {
	requestInput
	Body ShareRequest
}

func (s *Server) createShare(_ context.Context, in *createShareInput) (*answer[NewShare], error) {
	if _, err := s.store.Row(in.Body.Session); err != nil {
		return nil, s.failed("read the session", err)
	}
	share, token, err := s.shares.create(in.Body.Session, time.Duration(in.Body.ExpiresIn)*time.Second)
	if errors.Is(err, errTooManyShares) {
		return nil, problem(http.StatusConflict, "There are %d shares already. Revoke some.", maxShares)
	}
	if err != nil {
		return nil, s.failed("make the share", err)
	}
	scheme := "http"
	if in.request.TLS != nil || in.request.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return answerWith(NewShare{Share: share, URL: scheme + "://" + in.request.Host + "/s/" + share.ID + "#token=" + token}, nil)
}

func (s *Server) listShares(context.Context, *struct{}) (*answer[ShareList], error) {
	shares := slices.DeleteFunc(s.shares.list(), func(share Share) bool {
		_, err := s.store.Row(share.Session)
		return errors.Is(err, fs.ErrNotExist) // its link shows nothing any more
	})
	return answerWith(ShareList{shares}, nil)
}

type shareInput struct {
	ID string `path:"id"`
}

func (s *Server) revokeShare(_ context.Context, in *shareInput) (*struct{}, error) {
	found, err := s.shares.revoke(in.ID)
	if err != nil {
		return nil, s.failed("revoke the share", err)
	}
	if !found {
		return nil, problem(http.StatusNotFound, "There is no such share. It may have expired or been revoked already.")
	}
	return nil, nil
}

// sharedInput names a share; guard has checked it.
type sharedInput struct {
	requestInput
	Share string `path:"share"`
}

func (s *Server) getShared(ctx context.Context, _ *sharedInput) (*answer[Grant], error) {
	share := shareOf(ctx)
	return answerWith(Grant{Session: share.Session, Expires: share.Expires}, nil)
}

// loginShared puts the token into a cookie for this share's paths, because a download and a WebSocket of a browser carry no Authorization.
func (s *Server) loginShared(ctx context.Context, in *sharedInput) (*cookieAnswer, error) {
	token := bearer(in.request)
	if token == "" {
		return nil, noShare()
	}
	share := shareOf(ctx)
	life := min(share.Expires.Sub(s.now()), loginLife)
	return &cookieAnswer{cookie(cookieName("millpond_share", in.request), token, sharedPrefix+share.ID, max(life, time.Second))}, nil
}

type sharedSessionInput struct {
	Share string `path:"share"`
	ID    string `path:"id" doc:"The session's. Any other is 404."`
}

func (s *Server) getSharedSession(ctx context.Context, in *sharedSessionInput) (*answer[Session], error) {
	share := shareOf(ctx)
	if id, err := parseID(in.ID); err != nil || id != share.Session {
		return nil, noShare()
	}
	row, session, err := s.load(share.Session)
	if err != nil {
		return nil, err
	}
	redactRow(&row)
	redact(&session)
	return answerWith(sessionOf(&row, &session), nil)
}

type sharedMessagesInput struct {
	Share string `path:"share"`
	ID    string `path:"id" doc:"The session's. Any other is 404."`
	From  uint64 `query:"from"`
	Limit int    `query:"limit" minimum:"0" maximum:"500" default:"100"`
}

func (s *Server) listSharedMessages(ctx context.Context, in *sharedMessagesInput) (*answer[MessageList], error) {
	share := shareOf(ctx)
	if id, err := parseID(in.ID); err != nil || id != share.Session {
		return nil, noShare()
	}
	return s.listMessages(ctx, &messagesInput{ID: share.Session, From: in.From, Limit: in.Limit})
}

func (s *Server) serveSharedPayload(w http.ResponseWriter, r *http.Request) {
	if id, err := parseID(r.PathValue("id")); err != nil || id != shareOf(r.Context()).Session {
		writeProblem(w, noShare())
		return
	}
	ctx, cancel := s.untilDead(r.Context(), shareOf(r.Context()))
	defer cancel()
	s.servePayload(w, r.WithContext(ctx))
}

func (s *Server) serveSharedBody(w http.ResponseWriter, r *http.Request) {
	if id, err := parseID(r.PathValue("id")); err != nil || id != shareOf(r.Context()).Session {
		writeProblem(w, noShare())
		return
	}
	if _, err := storage.ParseSide(r.PathValue("side")); err != nil {
		writeProblem(w, noShare())
		return
	}
	ctx, cancel := s.untilDead(r.Context(), shareOf(r.Context()))
	defer cancel()
	s.serveBody(w, r.WithContext(ctx))
}

// untilDead returns a context that also ends when the share is revoked or expires, or the server shuts down.
func (s *Server) untilDead(ctx context.Context, share *liveShare) (context.Context, context.CancelFunc) {
	ctx, cancel := s.until(ctx)
	unhook := context.AfterFunc(share.ctx, cancel)
	ctx, expire := context.WithTimeout(ctx, share.Expires.Sub(s.now()))
	return ctx, func() { unhook(); expire(); cancel() }
}
