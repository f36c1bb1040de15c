package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Problem is what every error answers: RFC 9457, application/problem+json. Its detail says what to do.
type Problem = huma.ErrorModel

// problem makes a Problem whose detail is for people.
func problem(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...)}
}

// noSession is the one answer for a session, side or body that is not there, or not for this caller.
func noSession() *Problem {
	return problem(http.StatusNotFound, "There is no such session or body. It may have been deleted; list the sessions again.")
}

// writeProblem answers a plain handler's request.
func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have left; nobody is left to tell
}

// asProblem returns the Problem that err is, or one that tells it.
func asProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return problem(http.StatusInternalServerError, "%v", err)
}
