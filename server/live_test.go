package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millpond/storage"
)

// tab is a browser's live connection.
type tab struct {
	*rig
	ws *websocket.Conn
}

func (r *rig) open(path string, header http.Header) *tab {
	r.Helper()
	if header == nil {
		header = http.Header{"Authorization": {"Bearer " + testToken}}
	}
	ws, res, err := websocket.DefaultDialer.Dial("ws://"+r.host+path, header)
	if err != nil {
		r.Fatalf("connect: %v %v", err, res)
	}
	r.Cleanup(func() { ws.Close() })
	return &tab{r, ws}
}

func (b *tab) send(message string, args ...any) {
	b.Helper()
	if err := b.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, message, args...)); err != nil {
		b.Fatal(err)
	}
}

// next reads messages until one of this type satisfies want.
func next[T any](b *tab, kind string, want func(T) bool) T {
	b.Helper()
	_ = b.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	var seen []string
	for {
		_, raw, err := b.ws.ReadMessage()
		if err != nil {
			b.Fatalf("wait for %s: %v; came: %s", kind, err, strings.Join(seen, "\n"))
		}
		seen = append(seen, string(raw[:min(len(raw), 300)]))
		var head struct{ Type string }
		if err := json.Unmarshal(raw, &head); err != nil {
			b.Fatal(err)
		}
		var m T
		if head.Type == kind && json.Unmarshal(raw, &m) == nil && want(m) {
			return m
		}
	}
}

func (b *tab) window(want func(LiveWindow) bool) LiveWindow {
	b.Helper()
	return next(b, "window", want)
}

func paths(w LiveWindow) []string {
	var all []string
	for _, row := range w.Rows {
		all = append(all, row.Path)
	}
	return all
}

func shows(want ...string) func(LiveWindow) bool {
	return func(w LiveWindow) bool { return slices.Equal(paths(w), want) }
}

func TestViewFollowsTheSessions(t *testing.T) {
	r := newRig(t)
	ids := map[string]uint64{}
	record := func(path string) { ids[path] = r.record(exchange{url: "http://a" + path, response: "x"}) }
	for i := range 5 {
		record(fmt.Sprintf("/%d", i))
	}
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":7,"from":0,"count":3}`)
	w := b.window(shows("/0", "/1", "/2"))
	if w.ID != 7 || w.First != 0 || w.Total != 5 || w.From != 0 || w.Scanning {
		t.Fatalf("got %+v", w)
	}
	record("/5") // an append changes the total and moves nothing
	b.window(func(w LiveWindow) bool { return w.Total == 6 && shows("/0", "/1", "/2")(w) && w.From == 0 })

	b.send(`{"type":"view","id":7,"from":4,"count":3}`)
	b.window(func(w LiveWindow) bool { return w.From == 4 && shows("/4", "/5")(w) })
	record("/6") // into the window
	b.window(func(w LiveWindow) bool { return w.Total == 7 && shows("/4", "/5", "/6")(w) })

	if _, err := r.store.Delete(t.Context(), []uint64{ids["/0"], ids["/1"]}); err != nil { // the oldest: nothing moves
		t.Fatal(err)
	}
	w = b.window(func(w LiveWindow) bool { return w.Total == 5 })
	if w.First != 2 || w.From != 4 || !shows("/4", "/5", "/6")(w) {
		t.Errorf("after the oldest went: got %+v", w)
	}
	if _, err := r.store.Delete(t.Context(), []uint64{ids["/5"]}); err != nil { // from the middle: what follows moves
		t.Fatal(err)
	}
	w = b.window(func(w LiveWindow) bool { return w.Total == 4 })
	if w.First != 2 || w.From != 4 || !shows("/4", "/6")(w) {
		t.Errorf("after one went from the middle: got %+v", w)
	}
	b.send(`{"type":"view","id":7,"from":0,"count":3}`) // before the first: clipped
	b.window(func(w LiveWindow) bool { return w.From == 2 && shows("/2", "/3", "/4")(w) })
	b.send(`{"type":"view","id":7,"from":100,"count":3}`) // beyond the last
	b.window(func(w LiveWindow) bool { return w.From == 100 && len(w.Rows) == 0 && w.Total == 4 })
	b.send(`{"type":"view","id":7,"from":0,"count":2,"tail":true}`)
	b.window(func(w LiveWindow) bool { return w.From == 4 && shows("/4", "/6")(w) })
	record("/7") // the tail moves along
	b.window(func(w LiveWindow) bool { return w.From == 5 && shows("/6", "/7")(w) })

	if err := r.store.Annotate(ids["/7"], func(s *storage.Session) { s.Note = "see" }); err != nil {
		t.Fatal(err)
	}
	b.window(func(w LiveWindow) bool { return len(w.Rows) == 2 && w.Rows[1].Note == "see" })

	if _, err := r.store.DeleteThrough(t.Context(), r.store.Status().LastID); err != nil { // cleared
		t.Fatal(err)
	}
	w = b.window(func(w LiveWindow) bool { return w.Total == 0 })
	if w.First < 3 || w.First > 7 || len(w.Rows) != 0 { // what goes before older ones do counts as gone from the middle
		t.Errorf("cleared: got %+v", w)
	}
}

func TestViewFilters(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.record(exchange{url: fmt.Sprintf("http://%s/%d", []string{"even.test", "odd.test"}[i%2], i)})
	}
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":1,"filter":"ODD.test","from":0,"count":10}`)
	b.window(shows("/1", "/3", "/5", "/7", "/9"))
	r.record(exchange{url: "http://even.test/10"})
	r.record(exchange{url: "http://odd.test/11"})
	b.window(shows("/1", "/3", "/5", "/7", "/9", "/11"))
	b.send(`{"type":"view","id":1,"filter":"://even","from":4,"count":10}`) // the same id: another view
	w := b.window(func(w LiveWindow) bool { return w.From == 4 })
	if w.Total != 6 || !shows("/8", "/10")(w) {
		t.Errorf("got %+v", w)
	}
	b.send(`{"type":"view","id":1,"filter":%q,"from":0,"count":1}`, strings.Repeat("x", maxFilter+1))
	invalid := next(b, "invalid", func(LiveInvalid) bool { return true })
	if invalid.ID != 1 || invalid.Problem.Status != 422 {
		t.Errorf("got %+v", invalid)
	}
	r.record(exchange{url: "http://even.test/12"}) // the old view stays
	b.window(func(w LiveWindow) bool { return w.From == 4 && shows("/8", "/10", "/12")(w) })
}

// A session matches a status from when it has one.
func TestViewFiltersByStatus(t *testing.T) {
	r := newRig(t)
	r.record(exchange{url: "http://a/ok"})
	rec := r.store.Begin(storage.Session{Method: "GET", Scheme: "http", Host: "a", Path: "/late"})
	defer rec.End(storage.Done, "")
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":1,"filter":"status:4","from":0,"count":10}`)
	b.window(func(w LiveWindow) bool { return w.Total == 0 && !w.Scanning })
	rec.Change(func(s *storage.Session) { s.Status = 404 })
	b.window(shows("/late"))
	rec.Change(func(s *storage.Session) { s.Status = 504 })
	b.window(shows())
}

// An open session's row changes while its body grows.
func TestViewShowsAnOpenSessionGrow(t *testing.T) {
	r := newRig(t)
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":1,"from":0,"count":10}`)
	b.window(func(w LiveWindow) bool { return w.Total == 0 })
	rec := r.begin(exchange{url: "http://a/b"})
	b.send(`{"type":"watch","id":%d}`, rec.ID())
	b.window(func(w LiveWindow) bool { return w.Total == 1 && w.Rows[0].State == "open" })
	body := rec.Body(storage.Response)
	for i := range 3 {
		write(body, "0123456789")
		want := uint64(10 * (i + 1))
		next(b, "session", func(m LiveSession) bool { return m.Session != nil && m.Session.ResponseBytes == want })
	}
	body.Complete()
	rec.End(storage.Done, "")
	next(b, "session", func(m LiveSession) bool { return m.Session.State == "done" })
	if _, err := r.store.Delete(t.Context(), []uint64{rec.ID()}); err != nil {
		t.Fatal(err)
	}
	next(b, "session", func(m LiveSession) bool { return m.Session == nil })
}

func TestLiveLimits(t *testing.T) {
	r := newRig(t)
	b := r.open("/api/live", nil)
	refused := func(id uint64, status int) {
		t.Helper()
		got := next(b, "invalid", func(m LiveInvalid) bool { return m.ID == id })
		if got.Problem.Status != status || got.Problem.Detail == "" {
			t.Errorf("got %+v", got)
		}
	}
	for i := range maxViews {
		b.send(`{"type":"view","id":%d,"from":0,"count":1}`, i)
		b.window(func(w LiveWindow) bool { return w.ID == i })
	}
	b.send(`{"type":"view","id":100,"from":0,"count":1}`)
	refused(100, http.StatusConflict)
	b.send(`{"type":"close","id":0}`)
	b.send(`{"type":"view","id":100,"from":0,"count":%d}`, maxCount)
	b.window(func(w LiveWindow) bool { return w.ID == 100 })
	b.send(`{"type":"view","id":100,"from":0,"count":%d}`, maxCount+1)
	refused(100, http.StatusUnprocessableEntity)
	for i := range maxWatches {
		b.send(`{"type":"watch","id":%d}`, 1000+i)
		next(b, "session", func(m LiveSession) bool { return m.ID == uint64(1000+i) && m.Session == nil })
	}
	b.send(`{"type":"watch","id":2000}`)
	refused(2000, http.StatusConflict)
	b.send(`{"type":"unwatch","id":1000}`)
	b.send(`{"type":"watch","id":2000}`)
	next(b, "session", func(m LiveSession) bool { return m.ID == 2000 })
	b.send(`{"type":"dance","id":5}`)
	refused(5, http.StatusBadRequest)
	b.send(`{"type":"view","id":6,"from":-1}`)
	refused(6, http.StatusBadRequest)
	b.send(`no JSON`)
	refused(0, http.StatusBadRequest)

	b.send(`{"type":"view","id":1,"filter":%q}`, strings.Repeat("x", maxLiveMessage))
	_ = b.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, _, err := b.ws.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
				t.Errorf("too large a message: got %v", err)
			}
			break
		}
	}
}

func TestLiveConnectionsAreBounded(t *testing.T) {
	r := newRig(t)
	var tabs []*tab
	for range maxConnections {
		tabs = append(tabs, r.open("/api/live", nil))
	}
	_, res, err := websocket.DefaultDialer.Dial("ws://"+r.host+"/api/live", http.Header{"Authorization": {"Bearer " + testToken}})
	if err == nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("got %v %v", err, res)
	}
	tabs[0].ws.Close()
	eventually(t, "a place is free", func() bool { return r.server.live.connections() < maxConnections })
	r.open("/api/live", nil)
}

// A browser that reads nothing while thousands of sessions pass holds nobody up, and then gets the latest state within few messages.
func TestSlowBrowserGetsTheLatest(t *testing.T) {
	r := newRig(t)
	slow := r.open("/api/live", nil)
	slow.send(`{"type":"view","id":1,"from":0,"count":500,"tail":true}`)
	quick := r.open("/api/live", nil)
	quick.send(`{"type":"view","id":1,"from":0,"count":1,"tail":true}`)
	const sessions = 3000
	for i := range sessions {
		r.record(exchange{url: fmt.Sprintf("http://a/%s/%d", strings.Repeat("long", 200), i)})
	}
	quick.window(func(w LiveWindow) bool { return w.Total == sessions })
	messages := 0
	slow.window(func(w LiveWindow) bool { messages++; return w.Total == sessions })
	t.Logf("%d windows of 500 rows", messages)
}

// A browser that reads nothing is in the middle of a message when Millpond stops: nobody waits until that message has its time.
func TestBrowserThatReadsNothingHoldsUpNoStop(t *testing.T) {
	r := newRig(t)
	for i := range maxCount {
		r.record(exchange{url: fmt.Sprintf("http://a/%s/%d", strings.Repeat("long", 5000), i)})
	}
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":1,"from":0,"count":%d}`, maxCount)
	for {
		_, m, err := b.ws.NextReader()
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, len(`{"type":"window"`))
		if _, err := io.ReadFull(m, head); err != nil {
			t.Fatal(err)
		}
		if string(head) == `{"type":"window"` {
			break
		}
	}
	start := time.Now()
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > writeTime/2 {
		t.Errorf("it took %v to stop", took)
	}
}

// Changes come at most ten times a second, however many there are.
func TestViewIsCoalesced(t *testing.T) {
	r := newRig(t)
	b := r.open("/api/live", nil)
	b.send(`{"type":"view","id":1,"from":0,"count":10}`)
	b.window(func(w LiveWindow) bool { return w.Total == 0 })
	start, messages := time.Now(), 0
	go func() {
		for range 500 {
			r.record(exchange{url: "http://a/b"})
			time.Sleep(time.Millisecond)
		}
	}()
	b.window(func(w LiveWindow) bool { messages++; return w.Total == 500 })
	if most := int(time.Since(start)/pushPause) + 2; messages > most {
		t.Errorf("got %d windows in %v, want at most %d", messages, time.Since(start), most)
	}
}

func TestStatusIsPushed(t *testing.T) {
	r := newRig(t)
	b := r.open("/api/live", nil)
	next(b, "status", func(m LiveStatus) bool { return m.Store.Sessions == 0 && m.Store.Capturing })
	rec := r.begin(exchange{url: "http://a/b"})
	body := rec.Body(storage.Response)
	write(body, noise(100_000))
	m := next(b, "status", func(m LiveStatus) bool { return m.BytesPerSecond > 0 })
	if m.Store.Sessions != 1 || m.Store.Open != 1 || m.SessionsPerSecond == 0 {
		t.Errorf("got %+v", m)
	}
	body.Complete()
	rec.End(storage.Done, "")
	next(b, "status", func(m LiveStatus) bool { return m.Store.Open == 0 && m.BytesPerSecond == 0 })
}

// What changed while changes were missed is found by looking through the sessions again; positions stay.
func TestViewStartsAgainAfterMissedChanges(t *testing.T) {
	r := newRig(t)
	var ids []uint64
	for i := range 10 {
		ids = append(ids, r.record(exchange{url: fmt.Sprintf("http://a/%d", i)}))
	}
	eventually(t, "the sessions are kept", func() bool { return r.store.Status().Open == 0 })
	v := newView(&LiveView{ID: 1, Count: 3, From: 5}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	changed := make(chan struct{}, 1)
	go func() { ended <- v.run(ctx, r.store, make(chan struct{}, 1), func() { signal(changed) }) }()
	<-changed
	if w, got, ok := v.window(false); !ok || w.Total != 10 || !slices.Equal(got, ids[5:8]) {
		t.Fatalf("got %+v %v", w, got)
	}
	if _, err := r.store.Delete(t.Context(), []uint64{ids[0], ids[1], ids[6]}); err != nil {
		t.Fatal(err)
	}
	signal(v.again)
	<-changed
	if w, got, ok := v.window(false); !ok || w.First != 2 || w.Total != 7 || !slices.Equal(got, []uint64{ids[5], ids[7], ids[8]}) {
		t.Fatalf("got %+v %v", w, got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
