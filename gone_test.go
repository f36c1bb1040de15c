package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirectoryRemovedWhileServing: traffic passes whole, and status and log say what happened and what to do.
func TestDataDirectoryRemovedWhileServing(t *testing.T) {
	const told = "the data directory was removed or replaced: nothing is kept until Millpond is restarted"
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data)
	p.capture(t, 4)
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer origin.Close()
	for range 5 {
		res, err := p.client.Get(origin.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d of %d bytes passed: %v", len(got), len(body), err)
		}
	}
	var status struct {
		Store struct {
			Capturing bool
			Problem   string
		}
	}
	if p.call(t, "/api/status", &status); status.Store.Capturing || status.Store.Problem != told {
		t.Errorf("got %+v", status)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || strings.Count(p.log.String(), "msg=\"keep sessions\" error=\""+told) != 1 {
		t.Errorf("it ended with %v: %s", err, p.log)
	}
}
