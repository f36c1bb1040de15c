package server

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"runtime"

	"millpond/storage"
)

// SetupURL is the page that helps a device whose proxy is set.
const SetupURL = "http://millpond.internal/"

func storeOf(s storage.Status) Store {
	return Store{
		Sessions: s.Sessions, Open: s.Open, LastID: s.LastID, DurableUntil: s.DurableUntil,
		Bytes: s.Bytes, Free: s.Free, Total: s.Total, Capturing: s.Problem == "", Problem: s.Problem,
		Retention: retentionOf(&s.Retention),
	}
}

func retentionOf(r *storage.Retention) Retention {
	shown := Retention{
		MaxBytes: r.Bytes, MaxAge: r.Age.Seconds(), MaxSessions: r.Sessions, Used: r.Used, Next: r.Next, Stuck: r.Stuck, Short: r.Short,
	}
	if r.Next != 0 {
		shown.NextStarted = r.NextStarted.UTC()
	}
	return shown
}

func (s *Server) getStatus(context.Context, *struct{}) (*answer[Status], error) {
	store := storeOf(s.store.Status())
	return answerWith(Status{
		Version: s.cfg.Version, Proxy: s.cfg.Proxies[0].String(), ProxyAuth: s.cfg.ProxyAuth, Dashboard: s.cfg.Dashboard.String(),
		Addresses: deviceAddresses(s.cfg.Proxies), Setup: SetupURL, CA: s.cfg.CAFile, Authority: s.authority(), Started: s.started,
		Store: store, Deletions: s.deletions.list(), DurableUntil: store.DurableUntil,
	}, nil)
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// serveMetrics answers in Prometheus' text format, version 0.0.4.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	status := s.store.Status()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	capturing := 0
	if status.Problem == "" {
		capturing = 1
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	out := bufio.NewWriter(w)
	for _, m := range []struct {
		name, kind, help string
		value            any
	}{
		{"millpond_sessions", "gauge", "Sessions kept.", status.Sessions},
		{"millpond_sessions_open", "gauge", "Sessions that are being captured.", status.Open},
		{"millpond_session_last_id", "counter", "The newest session id given.", status.LastID},
		{"millpond_session_durable_id", "gauge", "Every ended session up to this id is durable.", status.DurableUntil},
		{"millpond_storage_bytes", "gauge", "Bytes on disk, all told.", status.Bytes},
		{"millpond_retention_used_bytes", "gauge", "Bytes that count against the limit.", status.Retention.Used},
		{"millpond_retention_max_bytes", "gauge", "The limit of bytes; 0 for none.", status.Retention.Bytes},
		{"millpond_disk_free_bytes", "gauge", "Bytes the file system has left.", status.Free},
		{"millpond_disk_total_bytes", "gauge", "Bytes the file system holds.", status.Total},
		{"millpond_capturing", "gauge", "1 while capture works.", capturing},
		{"millpond_live_connections", "gauge", "Live connections of dashboards and shares.", s.live.connections()},
		{"go_goroutines", "gauge", "Goroutines.", runtime.NumGoroutine()},
		{"go_memstats_heap_alloc_bytes", "gauge", "Bytes of the heap in use.", memory.HeapAlloc},
		{"go_memstats_sys_bytes", "gauge", "Bytes taken from the system.", memory.Sys},
	} {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
	_ = out.Flush()
}
