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

// access says what a request must show.
type access uint8

const (
	withToken access = iota // the dashboard's token; also for what no route matches
	withShare               // the token of the share in the path
	openToAll
)

func (r *routes) access(req *http.Request) access {
	if strings.HasPrefix(req.URL.Path, sharedPrefix) {
		return withShare
	}
	if _, pattern := r.Handler(req); open[pattern] {
		return openToAll
	}
	return withToken
}

// Routes returns the patterns of every route, "METHOD /path/{wildcard}", in order.
func (s *Server) Routes() []string {
	return slices.Sorted(slices.Values(s.routes.patterns))
}
