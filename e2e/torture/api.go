package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"millpond/e2e/harness"
)

// api talks to one program's dashboard.
type api struct {
	p      *harness.Program
	client *http.Client
}

// summary is what the API tells of a session in a list.
type summary struct {
	harness.Summary
	mark
}

func newAPI(p *harness.Program) *api {
	return &api{p, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}}
}

func (a *api) close() { a.client.CloseIdleConnections() }

// do makes a call. in and answer may be nil; answer is read where the status is 200.
func (a *api) do(ctx context.Context, method, path string, in, answer any) (code int, err error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.p.Dashboard+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+a.p.Token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return res.StatusCode, nil
}

// get is do for what must be there.
func (a *api) get(ctx context.Context, path string, answer any) error {
	code, err := a.do(ctx, http.MethodGet, path, nil, answer)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("get %s: answered %d", path, code)
	}
	return err
}

// list returns the sessions whose URL holds the text, newest first, of so many pages of 1000 at most; 0 for all.
func (a *api) list(ctx context.Context, part string, pages int) (all []summary, err error) {
	const page = 1000
	for n, before := 0, uint64(0); pages == 0 || n < pages; n++ {
		var list struct{ Sessions []summary }
		if err := a.get(ctx, fmt.Sprintf("/api/sessions?limit=%d&filter=%s&before=%d", page, part, before), &list); err != nil {
			return nil, err
		}
		all = append(all, list.Sessions...)
		if len(list.Sessions) < page {
			break
		}
		before = list.Sessions[page-1].ID
	}
	return all, nil
}

// status is what the API tells of the program.
type status struct {
	DurableUntil uint64 `json:"durable_until"`
	Store        struct {
		Problem string
	}
}

func (a *api) status(ctx context.Context) (s status, err error) {
	err = a.get(ctx, "/api/status", &s)
	return s, err
}

// digest returns the SHA-256 and size of what the API gives at the path.
func (a *api) digest(ctx context.Context, path, byteRange string) (digest string, size int64, code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.p.Dashboard+path, nil)
	if err != nil {
		return "", 0, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+a.p.Token)
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	res, err := a.client.Do(req)
	if err != nil {
		return "", 0, 0, err
	}
	defer res.Body.Close()
	digest, size, err = harness.Digest(res.Body)
	return digest, size, res.StatusCode, err
}
