package server

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func readAll(res *http.Response) ([]byte, error) { return io.ReadAll(res.Body) }

func TestListSessions(t *testing.T) {
	r := newRig(t)
	var ids []uint64
	for i := range 7 {
		ids = append(ids, r.record(exchange{url: fmt.Sprintf("http://%s/%d", []string{"even.test", "odd.test"}[i%2], i)}))
	}
	r.begin(exchange{url: "https://even.test/open"})
	for _, test := range []struct {
		query string
		total int // -1: not given
		paths string
	}{
		{"", 8, "/open /6 /5 /4 /3 /2 /1 /0"},
		{"?limit=3", 8, "/open /6 /5"},
		{fmt.Sprintf("?limit=3&before=%d", ids[5]), 8, "/4 /3 /2"},
		{fmt.Sprintf("?before=%d", ids[0]), 8, ""},
		{"?filter=ODD.test", -1, "/5 /3 /1"},
		{"?filter=odd.test&limit=2", -1, "/5 /3"},
		{"?filter=odd.test&limit=2&count=true", 3, "/5 /3"},
		{fmt.Sprintf("?filter=odd.test&limit=2&count=true&before=%d", ids[3]), 3, "/1"},
		{"?filter=https://&limit=5", -1, "/open"},
		{"?filter=nothing", -1, ""},
		{"?limit=0", 8, ""},
	} {
		t.Run(test.query, func(t *testing.T) {
			var list SessionList
			r.json(r.call("GET", "/api/sessions"+test.query, ""), 200, &list)
			got := []string{}
			for _, s := range list.Sessions {
				got = append(got, s.Path)
			}
			if want := strings.Fields(test.paths); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			total := -1
			if list.Total != nil {
				total = int(*list.Total)
			}
			if total != test.total {
				t.Errorf("got total %d, want %d", total, test.total)
			}
		})
	}
	for query, want := range map[string]int{"?limit=1001": 422, "?limit=x": 422, "?before=x": 422, "?filtre=x": 422, "?filter=" + strings.Repeat("x", maxFilter+1): 422} {
		if res := r.call("GET", "/api/sessions"+query, ""); res.StatusCode != want {
			t.Errorf("%.40s: got %s, want %d", query, res.Status, want)
		}
	}
}

func TestGetSession(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b?c", request: "ask", response: "answer", fields: "X-Name: caf\xe9\r\nContent-Encoding: gzip\r\n"})
	var s Session
	eventually(t, "the session is kept", func() bool {
		r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", id), ""), 200, &s)
		return s.Response.Body.SHA256 != ""
	})
	if s.ID != id || s.State != "done" || s.Host != "a" || s.Path != "/b?c" || s.Status != 200 || s.RequestBytes != 3 || s.ResponseBytes != 6 {
		t.Errorf("got %+v", s.Summary)
	}
	if want := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: s3cret\r\nX-Name: café\r\nContent-Encoding: gzip\r\n\r\n"; s.Response.Head != want {
		t.Errorf("got %q, want %q", s.Response.Head, want)
	}
	if got, want := s.Response.Fields[2], (Field{"X-Name", "café"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if b := s.Response.Body; b.Size != 6 || !b.Complete || len(b.SHA256) != 64 || b.Coding != "gzip" {
		t.Errorf("got %+v", b)
	}
	if s.Timing.Started.IsZero() || s.Timing.ResponseHead == nil || s.Timing.Connect != nil {
		t.Errorf("got %+v", s.Timing)
	}
	for path, want := range map[string]int{"/api/sessions/999": 404, "/api/sessions/x": 422, "/api/sessions/-1": 422} {
		if res := r.call("GET", path, ""); res.StatusCode != want || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %s %q, want %d", path, res.Status, res.Header.Get("Content-Type"), want)
		}
	}
}

func TestDeleteSessions(t *testing.T) {
	r := newRig(t)
	var ids []uint64
	for i := range 2*deleteStep + 10 {
		ids = append(ids, r.record(exchange{url: fmt.Sprintf("http://%s/%d", []string{"even.test", "odd.test"}[i%2], i)}))
	}
	deleted := func(method, path string) (d Deleted) {
		t.Helper()
		r.json(r.call(method, path, ""), 200, &d)
		return d
	}
	left := func() int {
		var list SessionList
		r.json(r.call("GET", "/api/sessions?filter=test&count=true&limit=0", ""), 200, &list)
		return int(*list.Total)
	}
	if got := deleted("DELETE", fmt.Sprintf("/api/sessions/%d", ids[0])); got.Deleted != 1 {
		t.Errorf("one: got %+v", got)
	}
	if res := r.call("DELETE", fmt.Sprintf("/api/sessions/%d", ids[0]), ""); res.StatusCode != 404 {
		t.Errorf("again: got %s", res.Status)
	}
	if res := r.call("DELETE", "/api/sessions?fitler=odd", ""); res.StatusCode != 422 {
		t.Errorf("a misspelt filter: got %s", res.Status)
	}
	for _, blank := range []string{"", "%20", "%20%09", "%20&filter=odd.test"} {
		if res := r.call("DELETE", "/api/sessions?filter="+blank, ""); res.StatusCode != 422 || !strings.Contains(r.text(res), "blank") {
			t.Errorf("a blank filter: got %s", res.Status)
		}
	}
	for _, body := range []string{`{}`, `{"filter":""}`, `{"filter":" \n"}`, `{"all":false}`, `{"all":true,"filter":"odd.test"}`, `{"filter":"status:"}`} {
		if res := r.call("POST", "/api/deletions", body); res.StatusCode != 422 {
			t.Errorf("%s: got %s", body, res.Status)
		}
	}
	if got := left(); got != 2*deleteStep+9 {
		t.Errorf("%d are left", got)
	}
	if got, want := deleted("DELETE", "/api/sessions?filter=odd.test").Deleted, deleteStep+5; got != want || left() != deleteStep+4 {
		t.Errorf("by filter: got %d and %d left, want %d", got, left(), want)
	}
	if got, want := deleted("DELETE", "/api/sessions").Deleted, deleteStep+4; got != want || left() != 0 {
		t.Errorf("all: got %d and %d left, want %d", got, left(), want)
	}
}

func TestAnnotateSession(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b"})
	path := fmt.Sprintf("/api/sessions/%d", id)
	var s Summary
	r.json(r.call("PATCH", path, `{"pinned":true,"note":"look","color":"red"}`), 200, &s)
	if !s.Pinned || s.Note != "look" || s.Color != "red" {
		t.Errorf("got %+v", s)
	}
	r.json(r.call("PATCH", path, `{"pinned":false}`), 200, &s)
	if s.Pinned || s.Note != "look" {
		t.Errorf("got %+v", s)
	}
	long := strings.Repeat("é", 4000)
	r.json(r.call("PATCH", path, fmt.Sprintf(`{"note":%q}`, long)), 200, &s)
	if s.Note != long {
		t.Errorf("got a note of %d bytes", len(s.Note))
	}
	for body, want := range map[string]int{
		fmt.Sprintf(`{"note":%q}`, long+"x"): 422,
		`{"color":"RED"}`:                    422,
		`{"color":"aaaaaaaaaaaaaaaaa"}`:      422,
		`{"pinned":"yes"}`:                   422,
		`{"state":"done"}`:                   422,
		`{`:                                  400,
	} {
		if res := r.call("PATCH", path, body); res.StatusCode != want {
			t.Errorf("%.30s: got %s, want %d", body, res.Status, want)
		}
	}
	if res := r.call("PATCH", "/api/sessions/999", `{"pinned":true}`); res.StatusCode != 404 {
		t.Errorf("got %s", res.Status)
	}
}

func TestStatusAndFigures(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b"})
	var status Status
	eventually(t, "the session is durable", func() bool {
		r.json(r.call("GET", "/api/status", ""), 200, &status)
		return status.DurableUntil == id
	})
	if status.Version != "test" || status.Store.Sessions != 1 || !status.Store.Capturing || status.Store.Total == 0 || len(status.Addresses) != 0 {
		t.Errorf("got %+v", status)
	}
	metrics := r.text(r.call("GET", "/metrics", ""))
	if !strings.Contains(metrics, "\nmillpond_sessions 1\n") || !strings.Contains(metrics, "# TYPE millpond_sessions gauge\n") {
		t.Errorf("got %s", metrics)
	}
	if pem := r.text(r.call("GET", "/api/ca", "")); !strings.HasPrefix(pem, "-----BEGIN CERTIFICATE-----\n") {
		t.Errorf("got %q", pem)
	}
	if der := r.text(r.call("GET", "/api/ca?form=der", "")); der != string(r.server.cfg.CA().Raw) {
		t.Errorf("got %d bytes", len(der))
	}
	if res := r.call("GET", "/api/ca?form=x", ""); res.StatusCode != 400 {
		t.Errorf("got %s", res.Status)
	}
	if doc := r.text(r.call("GET", "/api/openapi.json", "")); !strings.Contains(doc, `"openapi": "3.1.0"`) {
		t.Errorf("got %.100s", doc)
	}
	if res := r.call("GET", "/debug/pprof/", ""); res.StatusCode != 404 {
		t.Errorf("profiles without the flag: got %s", res.Status)
	}
}
