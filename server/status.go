package server

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"

	"millpond/storage"
)

// SetupURL is the page that helps a device whose proxy is set.
const SetupURL = "http://millpond.internal/"

func storeOf(s storage.Status) Store {
	return Store{
		Sessions: s.Sessions, Open: s.Open, LastID: s.LastID, DurableUntil: s.DurableUntil,
		Bytes: s.Bytes, Free: s.Free, Total: s.Total, Capturing: s.Problem == "", Problem: s.Problem,
	}
}

func (s *Server) getStatus(context.Context, *struct{}) (*answer[Status], error) {
	store := storeOf(s.store.Status())
	return answerWith(Status{
		Version: s.cfg.Version, Proxy: s.cfg.Proxy.String(), Dashboard: s.cfg.Dashboard.String(),
		Addresses: deviceAddresses(s.cfg.Proxy), Setup: SetupURL, CA: s.cfg.CAFile, Started: s.started,
		Store: store, DurableUntil: store.DurableUntil,
	}, nil)
}

// deviceAddresses returns where devices in the network reach a listener: its own address, or where it listens on all, each of this machine's
// but loopback and link-local ones.
func deviceAddresses(listener netip.AddrPort) []string {
	addresses := []string{}
	ip := listener.Addr()
	if !ip.IsUnspecified() {
		if ip.IsValid() && !ip.IsLoopback() {
			addresses = append(addresses, listener.String())
		}
		return addresses
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return addresses // none is what we know
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		found := prefix.Addr().Unmap()
		if found.IsLoopback() || found.IsLinkLocalUnicast() || ip.Is4() && !found.Is4() {
			continue
		}
		addresses = append(addresses, netip.AddrPortFrom(found, listener.Port()).String())
	}
	return addresses
}

func (s *Server) serveCA(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query().Get("form")
	if form != "" && form != "pem" && form != "der" {
		writeProblem(w, problem(http.StatusBadRequest, "There is no form %q. Ask for pem or der.", form))
		return
	}
	writeCA(w, s.cfg.CA.Raw, form == "der")
}

// writeCA answers with a certificate as a download: DER for Android and Windows, PEM for everything else.
func writeCA(w http.ResponseWriter, der []byte, asDER bool) {
	h := w.Header()
	if asDER {
		h.Set("Content-Type", "application/x-x509-ca-cert")
		h.Set("Content-Disposition", `attachment; filename="millpond-ca.crt"`)
		_, _ = w.Write(der)
		return
	}
	h.Set("Content-Type", "application/x-pem-file")
	h.Set("Content-Disposition", `attachment; filename="millpond-ca.pem"`)
	_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: der})
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
