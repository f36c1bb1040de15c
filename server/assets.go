package server

import (
	"io/fs"
	"net/http"
	"net/http/pprof"
	"time"

	"millpond/web"
)

// appPolicy lets the app's pages load their own scripts, styles and pictures, and talk to their own origin; nothing else, and no page may frame them.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) registerAssets() {
	s.routes.HandleFunc("GET /{$}", page("index.html"))
	s.routes.HandleFunc("GET /s/", page("s/index.html"))
	s.routes.HandleFunc("GET /assets/", serveAsset)
	if s.cfg.Profiles {
		s.routes.HandleFunc("GET /debug/pprof/", pprof.Index)
		s.routes.HandleFunc("GET /debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it writes after as many seconds as were asked for
			pprof.Profile(w, r)
		})
		s.routes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
}

// page answers with one of the app's pages, which are small and always asked for anew.
func page(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		html, err := fs.ReadFile(web.Files(), name)
		if err != nil {
			writeProblem(w, problem(http.StatusNotFound, "The app has no page %s.", name))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", appPolicy)
		_, _ = w.Write(html)
	}
}

// serveAsset answers with a file below assets/. Its name holds a hash of its content, so browsers need never ask again.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[1:]
	if info, err := fs.Stat(web.Files(), name); err != nil || info.IsDir() {
		writeProblem(w, problem(http.StatusNotFound, "The app has no file %s. Load the page again.", name))
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Security-Policy", appPolicy) // a worker has the policy of its own script
	http.ServeFileFS(w, r, web.Files(), name)
}
