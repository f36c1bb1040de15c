package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millpond/storage"
)

// guest is a second browser profile that has nothing but a link.
type guest struct {
	*rig
	share, token string
}

func (r *rig) share(session uint64, expiresIn int) (NewShare, *guest) {
	r.Helper()
	var made NewShare
	r.json(r.call("POST", "/api/shares", fmt.Sprintf(`{"session":%d,"expires_in":%d}`, session, expiresIn)), http.StatusOK, &made)
	page, token, ok := strings.Cut(made.URL, "#token=")
	if want := r.base + "/s/" + made.ID; !ok || page != want {
		r.Fatalf("got %s, want %s#token=…", made.URL, want)
	}
	return made, &guest{r, made.ID, token}
}

func (g *guest) get(path string, fields ...string) *http.Response {
	g.Helper()
	return g.call("GET", sharedPrefix+g.share+path, "", append([]string{"Authorization", "Bearer " + g.token}, fields...)...)
}

func TestShareShowsItsSessionAlone(t *testing.T) {
	r := newRig(t)
	other := r.record(exchange{url: "http://a/other", response: "other"})
	id := r.record(exchange{url: "http://a/shared", request: "asked", response: "answered"})
	if err := r.store.Annotate(id, func(s *storage.Session) { s.Note = "mine" }); err != nil {
		t.Fatal(err)
	}
	made, g := r.share(id, 3600)
	if left := time.Until(made.Expires); left < 59*time.Minute || left > time.Hour {
		t.Errorf("expires in %v", left)
	}
	var grant Grant
	g.json(g.get(""), 200, &grant)
	if grant.Session != id {
		t.Errorf("got %+v", grant)
	}
	res := g.get(fmt.Sprintf("/sessions/%d", id))
	text := g.text(res)
	var session Session
	if err := json.Unmarshal([]byte(text), &session); err != nil || session.ID != id || session.Path != "/shared" {
		t.Fatalf("got %s", text)
	}
	if strings.Contains(text, "s3cret") || strings.Contains(text, "mine") || strings.Count(text, hidden) < 4 {
		t.Errorf("a secret is shown: %s", text)
	}
	for side, want := range map[string]string{"request": "asked", "response": "answered"} {
		if got := g.text(g.get(fmt.Sprintf("/sessions/%d/%s/body", id, side))); got != want {
			t.Errorf("%s: got %q", side, got)
		}
	}
	for _, test := range []struct {
		name, method, path string
		status             int
	}{
		{"another session", "GET", g.path("/sessions/%d", other), 404},
		{"another session's body", "GET", g.path("/sessions/%d/response/body", other), 404},
		{"a session that is not there", "GET", g.path("/sessions/%d", 999), 404},
		{"no number", "GET", g.path("/sessions/x"), 404},
		{"another side", "GET", g.path("/sessions/%d/both/body", id), 404},
		{"another share", "GET", sharedPrefix + "0000000000000000", 404},
		{"a list", "GET", g.path("/sessions"), 404},
		{"nothing there", "GET", g.path("/x"), 404},
		{"delete", "DELETE", g.path("/sessions/%d", id), 404},
		{"annotate", "PATCH", g.path("/sessions/%d", id), 404},
		{"the dashboard's list", "GET", "/api/sessions", 401},
		{"the dashboard's session", "GET", fmt.Sprintf("/api/sessions/%d", id), 401},
		{"the dashboard's body", "GET", bodyPath(id, "response"), 401},
		{"the dashboard's status", "GET", "/api/status", 401},
		{"the dashboard's live view", "GET", "/api/live", 401},
		{"other shares", "GET", "/api/shares", 401},
		{"a cookie for the dashboard", "POST", "/api/login", 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := r.call(test.method, test.path, "", "Authorization", "Bearer "+g.token)
			if res.StatusCode != test.status || len(res.Cookies()) > 0 {
				t.Errorf("got %s, want %d", res.Status, test.status)
			}
			if text := r.text(res); test.status == 404 && text != r.text(g.get(fmt.Sprintf("/sessions/%d", other))) && !strings.Contains(text, "nothing") {
				t.Errorf("it tells what is there: %s", text)
			}
		})
	}
	for name, authorization := range map[string]string{"none": "", "wrong": "Bearer wrong", "the dashboard's": "Bearer " + testToken} {
		if res := g.get("", "Authorization", authorization); res.StatusCode != 404 {
			t.Errorf("token %s: got %s", name, res.Status)
		}
	}
}

func (g *guest) path(format string, args ...any) string {
	return sharedPrefix + g.share + fmt.Sprintf(format, args...)
}

// The browser itself downloads a shared body, and opens the live connection: both without Authorization.
func TestShareCookie(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/big.bin", response: noise(1 << 20)})
	_, g := r.share(id, 3600)
	_, second := r.share(id, 3600)
	res := g.call("POST", g.path("/login"), "", "Authorization", "Bearer "+g.token, "Origin", r.base)
	if res.StatusCode != http.StatusNoContent || len(res.Cookies()) != 1 {
		t.Fatalf("got %s %v", res.Status, res.Cookies())
	}
	c := res.Cookies()[0]
	if c.Path != g.path("") || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge < 3500 || c.MaxAge > 3600 {
		t.Errorf("got %v", c)
	}
	cookie := c.Name + "=" + c.Value
	download := g.call("GET", g.path("/sessions/%d/response/body?download", id), "", "Authorization", "", "Cookie", cookie)
	if got := g.text(download); download.StatusCode != 200 || len(got) != 1<<20 || download.Header.Get("Content-Disposition") != `attachment; filename="big.bin"` {
		t.Errorf("got %s, %d bytes, %q", download.Status, len(got), download.Header.Get("Content-Disposition"))
	}
	if res := g.call("GET", second.path(""), "", "Authorization", "", "Cookie", cookie); res.StatusCode != 404 {
		t.Errorf("another share with this one's cookie: got %s", res.Status)
	}
	if res := g.call("POST", g.path("/login"), "", "Authorization", "", "Cookie", cookie, "Origin", r.base); res.StatusCode != 404 {
		t.Errorf("a cookie that prolongs itself: got %s", res.Status)
	}
	g.open(g.path("/live"), http.Header{"Cookie": {cookie}, "Origin": {r.base}})
}

// A shared page follows its session, and no other; when the share dies, so does the page's connection.
func TestShareLive(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "http://a/shared"})
	other := r.begin(exchange{url: "http://a/other"})
	_, g := r.share(rec.ID(), 3600)
	b := g.open(g.path("/live"), http.Header{"Authorization": {"Bearer " + g.token}})
	b.send(`{"type":"watch","id":%d}`, other.ID())
	if m := next(b, "session", func(LiveSession) bool { return true }); m.ID != other.ID() || m.Session != nil {
		t.Errorf("another session: got %+v", m)
	}
	b.send(`{"type":"view","id":1,"from":0,"count":10}`)
	if m := next(b, "invalid", func(LiveInvalid) bool { return true }); m.Problem.Status != 404 {
		t.Errorf("a view: got %+v", m)
	}
	b.send(`{"type":"watch","id":%d}`, rec.ID())
	next(b, "session", func(m LiveSession) bool { return m.Session != nil && m.Session.ResponseBytes == 0 })
	write(rec.Body(storage.Response), "0123456789")
	next(b, "session", func(m LiveSession) bool { return m.Session != nil && m.Session.ResponseBytes == 10 })
	download := g.get(fmt.Sprintf("/sessions/%d/response/body?download", rec.ID()))

	var list ShareList
	r.json(r.call("GET", "/api/shares", ""), 200, &list)
	if len(list.Shares) != 1 || list.Shares[0].ID != g.share {
		t.Fatalf("got %+v", list)
	}
	if res := r.call("DELETE", "/api/shares/"+g.share, ""); res.StatusCode != http.StatusNoContent {
		t.Fatalf("revoke: got %s", res.Status)
	}
	_ = b.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, _, err := b.ws.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
				t.Errorf("the live connection: got %v", err)
			}
			break
		}
	}
	if _, err := readAll(download); err == nil {
		t.Error("a download that follows the body outlived the share")
	}
	if res := g.get(""); res.StatusCode != 404 {
		t.Errorf("after revoking: got %s", res.Status)
	}
	if res := r.call("DELETE", "/api/shares/"+g.share, ""); res.StatusCode != 404 {
		t.Errorf("revoke again: got %s", res.Status)
	}
	rec.End(storage.Done, "")
	other.End(storage.Done, "")
}

func TestShareExpires(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/shared"})
	_, g := r.share(id, 1)
	b := g.open(g.path("/live"), http.Header{"Authorization": {"Bearer " + g.token}})
	_ = b.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := b.ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("the live connection: got %v", err)
	}
	eventually(t, "the link is dead", func() bool { return g.get("").StatusCode == 404 })
	var list ShareList
	r.json(r.call("GET", "/api/shares", ""), 200, &list)
	if len(list.Shares) != 0 {
		t.Errorf("got %+v", list)
	}
}

// Shares outlive the process, and what is kept of one does not open it.
func TestSharesAreKeptHashed(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b"})
	_, g := r.share(id, 3600)
	records, err := r.store.Shares()
	if err != nil || len(records) != 1 {
		t.Fatalf("got %v, %v", records, err)
	}
	if raw := string(records[g.share]); strings.Contains(raw, g.token) {
		t.Errorf("the token is kept: %s", raw)
	}
	again, err := loadShares(r.store, clock, r.server.log)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := again.find(g.share, g.token); !ok {
		t.Error("after a restart the share is gone")
	}
	if _, ok := again.find(g.share, string(records[g.share])); ok {
		t.Error("what is kept opens the share")
	}
	now = now.Add(2 * time.Hour)
	if _, err = loadShares(r.store, clock, r.server.log); err != nil {
		t.Fatal(err)
	}
	if records, err := r.store.Shares(); err != nil || len(records) != 0 {
		t.Errorf("an expired share is kept: %v, %v", records, err)
	}
}

func TestShareRequests(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b"})
	for body, want := range map[string]int{
		fmt.Sprintf(`{"session":%d}`, id): 200,
		`{"session":999}`:                 404,
		`{}`:                              422,
		fmt.Sprintf(`{"session":%d,"expires_in":-1}`, id):           422,
		fmt.Sprintf(`{"session":%d,"expires_in":99999999}`, id):     422,
		fmt.Sprintf(`{"session":%d,"other":1}`, id):                 422,
		`{"session":"` + strings.Repeat("x", maxRequestBody) + `"}`: 413,
	} {
		if res := r.call("POST", "/api/shares", body); res.StatusCode != want {
			t.Errorf("%.60s: got %s, want %d", body, res.Status, want)
		}
	}
	var list ShareList
	r.json(r.call("GET", "/api/shares", ""), 200, &list)
	if left := time.Until(list.Shares[0].Expires); left < 6*24*time.Hour || left > 7*24*time.Hour {
		t.Errorf("expires in %v, want a week", left)
	}
}

// The share of a session that was deleted is no longer listed: its link shows nothing.
func TestSharesOfDeletedSessionsAreNotListed(t *testing.T) {
	r := newRig(t)
	gone := r.record(exchange{url: "http://a/gone", response: "gone"})
	id := r.record(exchange{url: "http://a/kept", response: "kept"})
	_, g := r.share(gone, 3600)
	kept, _ := r.share(id, 3600)
	var deleted Deleted
	r.json(r.call("DELETE", fmt.Sprintf("/api/sessions/%d", gone), ""), 200, &deleted)
	var list ShareList
	r.json(r.call("GET", "/api/shares", ""), 200, &list)
	if len(list.Shares) != 1 || list.Shares[0].ID != kept.ID {
		t.Errorf("got %+v, want %s alone", list.Shares, kept.ID)
	}
	if res := g.get(fmt.Sprintf("/sessions/%d", gone)); res.StatusCode != 404 {
		t.Errorf("the deleted session is answered with %d", res.StatusCode)
	}
}
