package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// requestInput gives an operation the request itself.
type requestInput struct{ request *http.Request }

// Resolve is called by huma before the operation.
func (in *requestInput) Resolve(ctx huma.Context) []error {
	in.request, _ = humago.Unwrap(ctx)
	return nil
}

// cookieAnswer is 204 with a cookie.
type cookieAnswer struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

// login wants the token itself, so that a cookie cannot prolong itself.
func (s *Server) login(_ context.Context, in *requestInput) (*cookieAnswer, error) {
	if !s.guard.isToken(bearer(in.request)) {
		return nil, problem(http.StatusUnauthorized, "Send the token itself, as Authorization: Bearer.")
	}
	return &cookieAnswer{cookie(cookieName("millpond", in.request), s.guard.logins.begin(), "/", loginLife)}, nil
}

// logout also ends the login, so that a copy of the cookie is worth nothing, and the live connections that it opened.
func (s *Server) logout(_ context.Context, in *requestInput) (*cookieAnswer, error) {
	for _, c := range in.request.CookiesNamed(cookieName("millpond", in.request)) {
		s.guard.logins.end(c.Value)
	}
	return &cookieAnswer{cookie(cookieName("millpond", in.request), "", "/", -time.Second)}, nil
}

// cookie returns one that scripts cannot read and other sites' pages cannot send. It is not Secure: on loopback there is no TLS.
func cookie(name, value, path string, life time.Duration) http.Cookie {
	return http.Cookie{Name: name, Value: value, Path: path, MaxAge: int(life / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

var errLoggedOut = errors.New("the login has ended")

// untilLogout is until, which also ends with a login.
func (s *Server) untilLogout(ctx context.Context, login *login) (context.Context, context.CancelFunc) {
	ctx, cancel := s.until(ctx)
	unhook := context.AfterFunc(login.ctx, cancel)
	return ctx, func() { unhook(); cancel() }
}
