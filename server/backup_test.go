package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

const testControl = "the secret of the control file"

func TestBackupRoute(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Control = testControl })
	r.record(exchange{url: "http://a/b", response: strings.Repeat("x", 100_000)})
	parent := t.TempDir()
	ask := func(dir, auth string, fields ...string) *http.Response {
		t.Helper()
		body, _ := json.Marshal(BackupRequest{Dir: dir})
		return r.call("POST", "/api/backup", string(body), append([]string{"Authorization", auth}, fields...)...)
	}
	login := r.call("POST", "/api/login", "").Cookies()
	if len(login) == 0 {
		t.Fatal("no cookie")
	}
	cookie := login[0].Name + "=" + login[0].Value
	for why, res := range map[string]*http.Response{
		"the dashboard's token":           ask(filepath.Join(parent, "1"), "Bearer "+testToken),
		"a cookie of our own page":        ask(filepath.Join(parent, "2"), "", "Cookie", cookie, "Origin", r.base),
		"no secret":                       ask(filepath.Join(parent, "3"), "Bearer "),
		"the secret, from our own page":   ask(filepath.Join(parent, "4"), "Bearer "+testControl, "Origin", r.base),
		"the secret, from a page's fetch": ask(filepath.Join(parent, "5"), "Bearer "+testControl, "Sec-Fetch-Site", "same-origin"),
	} {
		if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			t.Errorf("with %s: %s", why, res.Status)
		}
	}
	if made, err := os.ReadDir(parent); err != nil || len(made) > 0 {
		t.Errorf("it was made all the same: %v, %v", made, err)
	}
	for _, token := range []string{testControl} { // it opens nothing else
		if res := r.call("GET", "/api/status", "", "Authorization", "Bearer "+token); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("the control secret for the API: %s", res.Status)
		}
	}

	to := filepath.Join(parent, "backup")
	res := ask(to, "Bearer "+testControl)
	var last BackupLine
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		last = BackupLine{}
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
	}
	if res.StatusCode != 200 || !last.Done || last.Error != "" || last.Sessions != 1 || last.Copied == 0 {
		t.Errorf("%s: %+v", res.Status, last)
	}
	if _, err := storage.Verify(to, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
	for dir, want := range map[string]string{to: "not empty", "backup": "absolute"} {
		res := ask(dir, "Bearer "+testControl)
		if text := r.text(res); res.StatusCode < 400 || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, want) {
			t.Errorf("to %s: %s %s", dir, res.Status, text)
		}
	}
}

func TestNoBackupWithoutControl(t *testing.T) {
	r := newRig(t)
	for _, auth := range []string{"Bearer " + testToken, "Bearer x"} {
		if res := r.call("POST", "/api/backup", `{"dir": "/nowhere/backup"}`, "Authorization", auth); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", auth, res.Status)
		}
	}
}

// A backup ends when who asked for it leaves.
func TestBackupIsLeft(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Control = testControl })
	for range 40 {
		r.record(exchange{url: "http://a/b", response: strings.Repeat("0123456789", 1_000_000)})
	}
	to := filepath.Join(t.TempDir(), "backup")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body, _ := json.Marshal(BackupRequest{Dir: to, Copy: true})
	r.server.replacing.Lock() // it comes to the authority, and no further
	req, err := http.NewRequestWithContext(ctx, "POST", r.base+"/api/backup", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testControl)
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(res.Body).Scan() {
		t.Error("it tells nothing")
	}
	cancel()
	res.Body.Close()
	time.Sleep(time.Second) // for the server to see it
	r.server.replacing.Unlock()
	eventually(t, "what was made is removed", func() bool {
		_, err := os.Lstat(to)
		return errors.Is(err, fs.ErrNotExist)
	})
}
