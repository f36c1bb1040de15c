package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"millpond/storage"
)

type hub struct{}

func newHub(*storage.Store, func() time.Time) *hub                              { return nil }
func parseID(s string) (uint64, error)                                          { return strconv.ParseUint(s, 10, 64) }
func (s *Server) serveBody(w http.ResponseWriter, r *http.Request)              {}
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request)              {}
func (s *Server) serveSharedLive(w http.ResponseWriter, r *http.Request)        {}
func (s *Server) serveCA(w http.ResponseWriter, r *http.Request)                {}
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request)           {}
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request)            {}
func (s *Server) registerAssets()                                               {}
func (s *Server) getStatus(context.Context, *struct{}) (*answer[Status], error) { return nil, nil }
