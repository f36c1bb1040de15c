package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// request is one for each route: the pattern's wildcards are filled with what exists.
func request(pattern string, session uint64, share string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	path = strings.NewReplacer("{id}", fmt.Sprint(session), "{side}", "response", "{number}", "0", "{share}", share, "{$}", "").Replace(path)
	return method, path
}

// Every route but the named ones refuses whoever has no token, a wrong one, names the dashboard by a foreign name, or comes from another site.
// The walk is over the router, so that a new route cannot be forgotten.
func TestEveryRouteIsGuarded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Profiles = true })
	id := r.record(exchange{url: "http://a/b", response: "x"})
	share, _, err := r.server.shares.create(id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	opened := map[string]bool{"GET /{$}": true, "GET /s/": true, "GET /assets/": true, "GET /healthz": true}
	if len(r.server.Routes()) < 20 {
		t.Fatalf("the walk sees too few routes: %q", r.server.Routes())
	}
	for _, pattern := range r.server.Routes() {
		method, path := request(pattern, id, share.ID)
		if strings.Contains(path, "{") {
			t.Fatalf("%s: the test cannot fill the path", pattern)
		}
		refused := func(why string, want int, fields ...string) {
			t.Helper()
			res := r.call(method, path, "", fields...)
			body := r.text(res)
			if res.StatusCode != want {
				t.Errorf("%s with %s: got %s, want %d", pattern, why, res.Status, want)
			}
			if method != "HEAD" && (res.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(body, "\"id\"")) {
				t.Errorf("%s with %s: got %q %s", pattern, why, res.Header.Get("Content-Type"), body)
			}
			if len(res.Cookies()) > 0 {
				t.Errorf("%s with %s: gave a cookie", pattern, why)
			}
		}
		refused("a foreign Host", http.StatusMisdirectedRequest, "Host", "evil.example")
		refused("a foreign Host and the port", http.StatusMisdirectedRequest, "Host", "evil.example"+r.host[strings.LastIndex(r.host, ":"):])
		refused("another port", http.StatusMisdirectedRequest, "Host", "127.0.0.1:1")
		refused("a foreign Origin", http.StatusForbidden, "Origin", "http://evil.example")
		refused("another port's Origin", http.StatusForbidden, "Origin", "http://127.0.0.1:1")
		refused("the Origin of TLS on the same port", http.StatusForbidden, "Origin", "https://"+r.host)
		refused("a sandboxed Origin", http.StatusForbidden, "Origin", "null")
		refused("another site's fetch", http.StatusForbidden, "Sec-Fetch-Site", "cross-site")
		refused("another port's fetch", http.StatusForbidden, "Sec-Fetch-Site", "same-site")
		if opened[pattern] {
			continue
		}
		wrong := http.StatusUnauthorized
		if strings.HasPrefix(path, sharedPrefix) {
			wrong = http.StatusNotFound
		}
		noToken := wrong
		if method != "GET" && method != "HEAD" {
			noToken = http.StatusForbidden // neither an Origin nor a token
		}
		refused("no token", noToken, "Authorization", "")
		refused("no token, from our own page", wrong, "Authorization", "", "Origin", r.base)
		refused("a wrong token", wrong, "Authorization", "Bearer wrong")
		refused("an empty token", noToken, "Authorization", "Bearer ")
		refused("the token as Basic", noToken, "Authorization", "Basic "+testToken)
		refused("a wrong cookie", wrong, "Authorization", "", "Origin", r.base, "Cookie", cookieOf(r, "millpond", "9999999999.AAAA"))
	}
	for _, path := range []string{"/", "/s/abc", "/healthz"} {
		if res := r.call("GET", path, "", "Authorization", ""); res.StatusCode != 200 {
			t.Errorf("%s without a token: got %s", path, res.Status)
		}
	}
	if res := r.call("GET", "/nowhere", "", "Authorization", ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("no route without a token: got %s", res.Status)
	}
	if res := r.call("GET", "/nowhere", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("no route: got %s", res.Status)
	}
}

func cookieOf(r *rig, name, value string) string {
	_, port, _ := strings.Cut(r.host, ":")
	return name + "_" + port + "=" + value
}

func TestHostNames(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AllowHosts = []string{"Pond.example", "other.example:9000"} })
	port := r.host[strings.LastIndex(r.host, ":"):]
	for host, want := range map[string]int{
		"127.0.0.1" + port:          200,
		"localhost" + port:          200,
		"LOCALHOST." + port:         200,
		"[::1]" + port:              200,
		"pond.example":              200,
		"pond.example" + port:       200,
		"other.example:9000":        200,
		"other.example":             421,
		"localhost":                 421,
		"localhost:1":               421,
		"192.0.2.1" + port:          421,
		"a.localhost" + port:        421,
		"millpond.localhost" + port: 200,
		"millpond.localhost":        421,
		"127.0.0.1.evil" + port:     421,
		"millpond.internal":         421,
	} {
		if res := r.call("GET", "/healthz", "", "Host", host); res.StatusCode != want {
			t.Errorf("%s: got %s, want %d", host, res.Status, want)
		}
	}
	// Behind a reverse proxy that keeps its own name, pages have that name's origin.
	if res := r.call("GET", "/api/status", "", "Host", "pond.example", "Origin", "https://pond.example"); res.StatusCode != 200 {
		t.Errorf("got %s", res.Status)
	}
	if res := r.call("GET", "/api/status", "", "Origin", "https://pond.example"); res.StatusCode != 200 {
		t.Errorf("got %s", res.Status)
	}
}

// A link on another site may lead to the app, which asks for a token by itself; to nothing else.
func TestLinksFromOtherSites(t *testing.T) {
	r := newRig(t)
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for path, want := range map[string]int{"/": 200, "/s/abc": 200, "/api/status": 403, "/metrics": 403, "/api/shared/x": 403} {
		if res := r.call("GET", path, "", link...); res.StatusCode != want {
			t.Errorf("%s: got %s, want %d", path, res.Status, want)
		}
	}
	if res := r.call("GET", "/", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"); res.StatusCode != 403 {
		t.Errorf("in a frame: got %s", res.Status)
	}
}

func TestLoginGivesACookie(t *testing.T) {
	r := newRig(t)
	res := r.call("POST", "/api/login", "")
	if res.StatusCode != http.StatusNoContent || len(res.Cookies()) != 1 {
		t.Fatalf("got %s, %v", res.Status, res.Cookies())
	}
	cookie := res.Cookies()[0]
	_, port, _ := strings.Cut(r.host, ":")
	if cookie.Name != "millpond_"+port || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.MaxAge <= 0 || strings.Contains(cookie.Value, testToken) {
		t.Errorf("got %v", cookie)
	}
	with := func(method, path string, fields ...string) int {
		return r.call(method, path, "", append(fields, "Authorization", "", "Cookie", cookie.Name+"="+cookie.Value)...).StatusCode
	}
	if got := with("GET", "/api/status"); got != 200 {
		t.Errorf("with the cookie: got %d", got)
	}
	if got := with("DELETE", "/api/sessions/999", "Origin", r.base); got != 404 {
		t.Errorf("a change from our page: got %d", got)
	}
	if got := with("DELETE", "/api/sessions/999"); got != 403 {
		t.Errorf("a change without an Origin: got %d", got)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	if got := with("GET", "/api/live", upgrade...); got != 403 {
		t.Errorf("a WebSocket without an Origin: got %d", got)
	}
	if got := with("GET", "/api/live", append(upgrade, "Origin", r.base)...); got != 101 {
		t.Errorf("a WebSocket from our page: got %d", got)
	}
	if got := with("POST", "/api/login", "Origin", r.base); got != 401 {
		t.Errorf("a cookie that prolongs itself: got %d", got)
	}
	if got := r.call("GET", "/api/status", "", "Authorization", "Bearer wrong", "Cookie", cookie.Name+"="+cookie.Value).StatusCode; got != 401 {
		t.Errorf("a wrong token beside the cookie: got %d", got)
	}
	live := r.open("/api/live", http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}, "Origin": {r.base}})
	next(live, "status", func(struct{}) bool { return true })
	if res := r.call("DELETE", "/api/login", "", "Authorization", "", "Origin", r.base, "Cookie", cookie.Name+"="+cookie.Value); len(res.Cookies()) != 1 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: got %s, %v", res.Status, res.Cookies())
	}
	if got := with("GET", "/api/status"); got != 401 {
		t.Errorf("with the cookie after logout: got %d", got)
	}
	_ = live.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	for { // what was on its way, and then the end
		if _, _, err := live.ws.ReadMessage(); err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Error("a live connection goes on after logout")
			}
			break
		}
	}
}

// Of two Origin fields neither is believed.
func TestTwoOrigins(t *testing.T) {
	r := newRig(t)
	for _, origins := range [][]string{{r.base, "http://evil.example"}, {"http://evil.example", r.base}, {"", "http://evil.example"}, {r.base, r.base}} {
		req, err := http.NewRequest("DELETE", r.base+"/api/sessions/999", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + testToken}, "Origin": origins}
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%q: got %s", origins, res.Status)
		}
	}
}

func TestLogins(t *testing.T) {
	now := time.Now()
	l := newLogins(func() time.Time { return now })
	idle, busy := l.begin(), l.begin()
	for range 6 {
		now = now.Add(loginIdle - time.Second)
		if l.use(busy) == nil {
			t.Fatal("a login that is used ends")
		}
	}
	if l.use(idle) != nil {
		t.Error("a login that nobody uses goes on")
	}
	now = now.Add(loginIdle - time.Second) // still used, and a week old with this
	l.use(busy)
	if now = now.Add(time.Minute); l.use(busy) != nil {
		t.Error("a login goes on for more than a week")
	}
	var ids []string
	for range maxLogins {
		ids = append(ids, l.begin())
		now = now.Add(time.Second)
	}
	l.use(ids[0])
	now = now.Add(time.Second)
	ids = append(ids, l.begin())
	for i, id := range ids {
		if got := l.use(id) != nil; got != (i != 1) {
			t.Errorf("login %d of %d holds: %v", i, len(ids), got)
		}
	}
	if len(l.byID) != maxLogins {
		t.Errorf("%d logins are held", len(l.byID))
	}
}
