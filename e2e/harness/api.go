package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// Summary is what the API tells of a session in a list.
type Summary struct {
	ID            uint64    `json:"id"`
	State         string    `json:"state"`
	Durable       bool      `json:"durable"`
	Method        string    `json:"method"`
	Scheme        string    `json:"scheme"`
	Host          string    `json:"host"`
	Upstream      string    `json:"upstream"`
	Path          string    `json:"path"`
	Protocol      string    `json:"protocol"`
	Status        int       `json:"status"`
	ContentType   string    `json:"content_type"`
	RequestBytes  int64     `json:"request_bytes"`
	ResponseBytes int64     `json:"response_bytes"`
	Started       time.Time `json:"started"`
	Duration      float64   `json:"duration"` // milliseconds
	Client        string    `json:"client"`
	Error         string    `json:"error"`
	Flags         []string  `json:"flags"`
}

// Session is what the API tells of one session.
type Session struct {
	Summary
	Request  Side `json:"request"`
	Response Side `json:"response"`
}

// Side is one side of a session. Heads are one character for each byte.
type Side struct {
	Head          string      `json:"head"`
	Fields        [][2]string `json:"fields"`
	Received      string      `json:"received"`
	Informational []string    `json:"informational"`
	Trailers      [][2]string `json:"trailers"`
	Body          struct {
		Size     int64  `json:"size"`
		Passed   int64  `json:"passed"`
		Complete bool   `json:"complete"`
		SHA256   string `json:"sha256"`
		Missing  string `json:"missing"`
	} `json:"body"`
}

// Status is what the API tells of the program.
type Status struct {
	LastID       uint64 `json:"last_id"`
	DurableUntil uint64 `json:"durable_until"`
}

// Call sends a request to the program's API, with its token. The path begins with a slash; fields are name, value, …
func (p *Program) Call(ctx context.Context, method, path string, fields ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.Dashboard+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.Token)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return http.DefaultClient.Do(req)
}

// Get reads what the API answers at the path into answer.
func (p *Program) Get(t testing.TB, path string, answer any) {
	t.Helper()
	res, err := p.Call(t.Context(), http.MethodGet, path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s: %s", path, res.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		t.Fatalf("get %s: %v: %s", path, err, text)
	}
}

// Sessions returns the newest sessions that the filter matches, newest first.
func (p *Program) Sessions(t testing.TB, filter string) []Summary {
	t.Helper()
	var list struct{ Sessions []Summary }
	p.Get(t, "/api/sessions?limit=500&filter="+url.QueryEscape(filter), &list)
	return list.Sessions
}

// Session returns one session.
func (p *Program) Session(t testing.TB, id uint64) Session {
	t.Helper()
	var s Session
	p.Get(t, fmt.Sprintf("/api/sessions/%d", id), &s)
	return s
}

// Await waits until the newest session that the filter matches is as fn wants it, and returns it. It waits 10 s at most.
func (p *Program) Await(t testing.TB, filter string, fn func(Summary) bool) Session {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for {
		found := p.Sessions(t, filter)
		if len(found) > 0 && fn(found[0]) {
			return p.Session(t, found[0].ID)
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no session with %q came to be as awaited; there are: %+v", filter, found)
		}
	}
}

// Ended is for Await: the session has ended, in whatever way.
func Ended(s Summary) bool { return s.State != "open" }

// BodyURL is the path of a session's body in the API.
func BodyURL(id uint64, side string) string { return fmt.Sprintf("/api/sessions/%d/%s/body", id, side) }

// Download gets what the API gives at the path and returns its digest and size. The range may be empty, or as in "bytes=0-9".
func (p *Program) Download(t testing.TB, path, byteRange string) (digest string, size int64) {
	t.Helper()
	// Asking for identity keeps net/http from asking for gzip, and so from decoding.
	fields := []string{"Accept-Encoding", "identity"}
	want := http.StatusOK
	if byteRange != "" {
		fields = append(fields, "Range", byteRange)
		want = http.StatusPartialContent
	}
	res, err := p.Call(t.Context(), http.MethodGet, path, fields...)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		t.Fatalf("get %s %s: %s: %s", path, byteRange, res.Status, text)
	}
	digest, size, err = Digest(res.Body)
	if err != nil {
		t.Fatalf("get %s %s: %v", path, byteRange, err)
	}
	return digest, size
}
