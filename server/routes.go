package server

import (
	"net/http"
	"slices"
	"strings"
)

// open names the routes that need no token: the app itself, which holds no data, and the health check.
// Every other route needs the dashboard's token, or, below sharedPrefix, a share's.
var open = map[string]bool{
	"GET /{$}":     true,
	"GET /s/":      true,
	"GET /assets/": true,
	"GET /healthz": true,
}

// backupRoute wants the control file's secret, and nothing else will do.
const backupRoute = "POST /api/backup"

// sharedPrefix begins the path of every route that a share's token opens; the share's id follows.
const sharedPrefix = "/api/shared/"

// routes is a ServeMux that knows its patterns, so that a test can try every one. It is the humago.Mux of the API.
type routes struct {
	http.ServeMux
	patterns []string
}

func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.HandleFunc(pattern, h)
}

// ServeHTTP answers with the route that matches, or with a Problem where none does.
func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h, pattern := r.Handler(req)
	if pattern != "" {
		r.ServeMux.ServeHTTP(w, req) // not h: only this sets the path's values
		return
	}
	if r.access(req) == withShare {
		writeProblem(w, noShare()) // all alike, also the methods that would work
		return
	}
	said := unmatched{header: w.Header()}
	h.ServeHTTP(&said, req) // 404, or 405 with Allow
	if said.status == http.StatusMethodNotAllowed {
		writeProblem(w, problem(said.status, "%s does not work here. Use %s.", req.Method, w.Header().Get("Allow")))
		return
	}
	writeProblem(w, problem(http.StatusNotFound, "There is nothing at %s. The API is described at /api/openapi.json.", req.URL.Path))
}

// unmatched takes what ServeMux answers where no route matches, but for its text.
type unmatched struct {
	header http.Header
	status int
}

func (u *unmatched) Header() http.Header         { return u.header }
func (u *unmatched) Write(p []byte) (int, error) { return len(p), nil }
func (u *unmatched) WriteHeader(status int)      { u.status = status }

// access says what a request must show.
type access uint8

const (
	withToken   access = iota // the dashboard's token; also for what no route matches
	withShare                 // the token of the share in the path
	withControl               // the control file's secret, from this machine
	openToAll
)

func (r *routes) access(req *http.Request) access {
	if strings.HasPrefix(req.URL.Path, sharedPrefix) {
		return withShare
	}
	switch _, pattern := r.Handler(req); {
	case open[pattern]:
		return openToAll
	case pattern == backupRoute:
		return withControl
	}
	return withToken
}

// Routes returns the patterns of every route, "METHOD /path/{wildcard}", in order.
func (s *Server) Routes() []string {
	return slices.Sorted(slices.Values(s.routes.patterns))
}
