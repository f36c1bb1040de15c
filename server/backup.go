package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"

	"millpond/storage"
)

// BackupRequest is what `millpond backup` asks of the Millpond that runs, with POST /api/backup. That route is no part of the API: it writes where it is told
// to, so it takes the secret of the control file alone, which only the user who runs Millpond can read.
type BackupRequest struct {
	Dir       string `json:"dir"` // absolute
	WithoutCA bool   `json:"withoutCa"`
	Copy      bool   `json:"copy"`
}

// BackupLine is a line of the answer. The last one has Done or Error.
type BackupLine struct {
	storage.BackupProgress
	Lacks string `json:"lacks,omitempty"` // what is gone or damaged, and so is in the backup
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// serveBackup makes a backup, and tells how far it is, until the client leaves or the dashboard ends.
func (s *Server) serveBackup(w http.ResponseWriter, r *http.Request) {
	var in BackupRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody)) // to its end: only then the server sees that the client leaves
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil || !filepath.IsAbs(in.Dir) {
		writeProblem(w, problem(http.StatusUnprocessableEntity, "A backup wants the absolute path of its directory."))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	begun := false
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	tell := func(line BackupLine) {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		_ = lines.Encode(line) // a client that has left ends the request's context
		_ = flush.Flush()
	}
	done, err := s.store.Backup(ctx, storage.BackupTo{
		Dir: in.Dir, WithoutCA: in.WithoutCA, Copy: in.Copy, Authority: &s.replacing,
		Progress: func(p storage.BackupProgress) { tell(BackupLine{BackupProgress: p}) },
		Lacks: func(problem string) {
			s.log.Warn("back up", "lacks", problem)
			tell(BackupLine{Lacks: problem})
		},
	})
	switch {
	case err == nil:
		s.log.Info("backed up", "to", in.Dir, "sessions", done.Sessions, "copied", done.Copied, "linked", done.Linked)
		tell(BackupLine{BackupProgress: done, Done: true})
	case !begun && errors.Is(err, storage.ErrBackup):
		writeProblem(w, problem(http.StatusConflict, "%v", err))
	case !begun:
		writeProblem(w, problem(http.StatusInternalServerError, "%v", err))
	default:
		s.log.Warn("back up", "error", err)
		tell(BackupLine{BackupProgress: done, Error: err.Error()})
	}
}
