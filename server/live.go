package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millpond/storage"
)

const (
	maxViews       = 8   // of one connection
	maxWatches     = 8   // of one connection
	maxCount       = 500 // rows in a window
	maxLiveMessage = 16 << 10

	pingPause = 30 * time.Second
	pongTime  = 75 * time.Second // without a word from the browser
	writeTime = 30 * time.Second // for one message
	byeTime   = time.Second      // for what is being sent at the end, and the goodbye
)

// liveConn is one browser's live connection. What changes is marked; the writer makes the messages when the browser can take them, out of what is true then.
// So a browser that reads slowly costs one message, and gets the latest.
type liveConn struct {
	hub   *hub
	store *storage.Store
	ws    *websocket.Conn
	share *liveShare // nil for the dashboard

	running sync.WaitGroup // of its views

	asked chan struct{} // the browser asked for something
	wake  chan struct{} // something changed

	mu      sync.Mutex
	views   map[int]*liveView
	watches map[uint64]bool     // session id: whether it is to be sent
	refused map[uint64]*Problem // message id: why
	status  bool                // to be sent
}

// liveView is a view that runs.
type liveView struct {
	*view
	stop context.CancelFunc
}

func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	s.serveConnection(w, r, nil)
}

func (s *Server) serveSharedLive(w http.ResponseWriter, r *http.Request) {
	s.serveConnection(w, r, shareOf(r.Context()))
}

func (s *Server) serveConnection(w http.ResponseWriter, r *http.Request, share *liveShare) {
	if !websocket.IsWebSocketUpgrade(r) {
		writeProblem(w, problem(http.StatusUpgradeRequired, "This is a WebSocket: connect with ws://."))
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	c := &liveConn{
		hub: s.live, store: s.store, share: share,
		asked: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		views: map[int]*liveView{}, watches: map[uint64]bool{}, refused: map[uint64]*Problem{},
	}
	if !s.live.join(c) {
		writeProblem(w, problem(http.StatusServiceUnavailable, "There are %d live connections already. Close other tabs of the dashboard.", maxConnections))
		return
	}
	defer s.live.leave(c)

	upgrader := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second, ReadBufferSize: 1 << 10, WriteBufferSize: 4 << 10,
		CheckOrigin: func(r *http.Request) bool { // as guard did: the two must not drift apart
			origin := r.Header.Get("Origin")
			return origin == "" || s.guard.ownOrigin(r, origin)
		},
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade answered
	}
	defer ws.Close()
	c.ws = ws

	life := s.until
	login, _ := r.Context().Value(loginKey{}).(*login)
	if login != nil {
		life = func(ctx context.Context) (context.Context, context.CancelFunc) { return s.untilLogout(ctx, login) }
	}
	if share != nil {
		life = func(ctx context.Context) (context.Context, context.CancelFunc) { return s.untilDead(ctx, share) }
	}
	ctx, cancel := life(context.Background())
	defer cancel()
	// A browser that reads nothing holds up no stop: a write that waits for it ends with the connection.
	context.AfterFunc(ctx, func() { time.AfterFunc(byeTime, func() { ws.Close() }) })
	c.statusChanged()
	var writing sync.WaitGroup
	writing.Go(func() {
		defer ws.Close() // ends read
		c.write(ctx)
	})
	c.read(ctx, s, login)
	cancel()
	writing.Wait()
	c.closeViews()
}

// read takes the browser's messages until the connection ends, or the login by which it was opened, which is used as long as the browser answers.
func (c *liveConn) read(ctx context.Context, s *Server, login *login) {
	c.ws.SetReadLimit(maxLiveMessage)
	alive := func(string) error {
		if login != nil && !s.guard.logins.keep(login) {
			return errLoggedOut
		}
		return c.ws.SetReadDeadline(time.Now().Add(pongTime))
	}
	c.ws.SetPongHandler(alive)
	for {
		_ = alive("")
		_, raw, err := c.ws.ReadMessage()
		if err != nil {
			return
		}
		c.take(ctx, s, raw)
	}
}

// take does what one message asks.
func (c *liveConn) take(ctx context.Context, s *Server, raw []byte) {
	var head struct {
		Type string `json:"type"`
		ID   uint64 `json:"id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		c.refuse(0, problem(http.StatusBadRequest, "The message is no JSON object with a type and an id: %v.", err))
		return
	}
	switch head.Type {
	case "view":
		var m LiveView
		if err := json.Unmarshal(raw, &m); err != nil {
			c.refuse(head.ID, problem(http.StatusBadRequest, "The view cannot be read: %v.", err))
			return
		}
		if err := c.open(ctx, s, &m); err != nil {
			c.refuse(head.ID, asProblem(err))
		}
	case "close":
		c.mu.Lock()
		if v := c.views[int(head.ID)]; v != nil {
			v.stop()
			delete(c.views, v.id)
		}
		c.mu.Unlock()
	case "watch":
		c.watch(head.ID)
	case "unwatch":
		c.mu.Lock()
		delete(c.watches, head.ID)
		c.mu.Unlock()
	default:
		c.refuse(head.ID, problem(http.StatusBadRequest, "There is no message of type %q. Send view, close, watch or unwatch.", head.Type))
	}
}

// open opens a view, replaces it, or only moves its window.
func (c *liveConn) open(ctx context.Context, s *Server, m *LiveView) error {
	if c.share != nil {
		return noShare()
	}
	if m.Count < 0 || m.Count > maxCount {
		return problem(http.StatusUnprocessableEntity, "A window has 0 to %d rows, not %d.", maxCount, m.Count)
	}
	matches, err := parseFilter(m.Filter)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.views[m.ID]
	switch {
	case old != nil && old.filter == m.Filter:
		old.move(m)
		signal(c.asked)
		return nil
	case old != nil:
		old.stop()
	case len(c.views) >= maxViews:
		return problem(http.StatusConflict, "A connection has at most %d views. Close one.", maxViews)
	}
	ctx, stop := context.WithCancel(ctx)
	v := &liveView{newView(m, matches), stop}
	c.views[m.ID] = v
	changed := func() {
		if v.wanted() {
			signal(c.asked)
		} else {
			signal(c.wake)
		}
	}
	c.running.Go(func() {
		if err := v.run(ctx, c.store, c.hub.turns, changed); err != nil {
			c.refuse(uint64(m.ID), asProblem(s.failed("look through the sessions", err)))
		}
	})
	return nil
}

func (c *liveConn) watch(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.watches[id]; !ok && len(c.watches) >= maxWatches {
		c.refuseLocked(id, problem(http.StatusConflict, "A connection watches at most %d sessions. Unwatch one.", maxWatches))
		return
	}
	c.watches[id] = true
	signal(c.asked)
}

func (c *liveConn) refuse(id uint64, p *Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuseLocked(id, p)
}

func (c *liveConn) refuseLocked(id uint64, p *Problem) {
	if len(c.refused) < 2*maxViews { // one that sends nonsense faster than it reads needs no answer to each
		c.refused[id] = p
	}
	signal(c.asked)
}

// apply marks what the changes touch.
func (c *liveConn) apply(changes []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	touched := false
	for _, v := range c.views {
		touched = v.apply(changes) || touched
	}
	for _, ch := range changes {
		if _, ok := c.watches[ch.id]; ok {
			c.watches[ch.id] = true
			touched = true
		}
	}
	if touched {
		signal(c.wake)
	}
}

// startAgain is for when changes were missed.
func (c *liveConn) startAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.views {
		signal(v.again)
	}
	for id := range c.watches {
		c.watches[id] = true
	}
	signal(c.wake)
}

func (c *liveConn) statusChanged() {
	if c.share != nil {
		return
	}
	c.mu.Lock()
	c.status = true
	c.mu.Unlock()
	signal(c.wake)
}

// closeViews ends the views, and waits until none reads the store.
func (c *liveConn) closeViews() {
	c.mu.Lock()
	for _, v := range c.views {
		v.stop()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// write sends what is marked: at once what the browser asked for, at most each pushPause what changed.
func (c *liveConn) write(ctx context.Context) {
	ping := time.NewTicker(pingPause)
	defer ping.Stop()
	wake := c.wake
	var pause <-chan time.Time
	for {
		var err error
		select {
		case <-c.asked:
			err = c.flush(true)
		case <-wake:
			err = c.flush(false)
			wake, pause = nil, time.After(pushPause)
		case <-pause:
			wake, pause = c.wake, nil
		case <-ping.C:
			err = c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTime))
		case <-ctx.Done():
			bye := websocket.FormatCloseMessage(websocket.CloseGoingAway, "")
			_ = c.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(byeTime))
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *liveConn) flush(askedOnly bool) error {
	c.mu.Lock()
	refused, watched, status := c.refused, []uint64{}, c.status && !askedOnly
	c.refused = map[uint64]*Problem{}
	if status {
		c.status = false
	}
	for id, due := range c.watches {
		if due {
			watched = append(watched, id)
			c.watches[id] = false
		}
	}
	views := make([]*liveView, 0, len(c.views))
	for _, v := range c.views {
		views = append(views, v)
	}
	c.mu.Unlock()

	for id, p := range refused {
		if err := c.send(LiveInvalid{Type: "invalid", ID: id, Problem: *p}); err != nil {
			return err
		}
	}
	for _, v := range views {
		if w := c.windowOf(v.view, askedOnly); w != nil {
			if err := c.send(w); err != nil {
				return err
			}
		}
	}
	for _, id := range watched {
		if err := c.send(c.sessionOf(id)); err != nil {
			return err
		}
	}
	if status {
		return c.send(c.hub.lastStatus())
	}
	return nil
}

// windowOf fills a window with its rows, or returns nil where there is nothing to send.
func (c *liveConn) windowOf(v *view, askedOnly bool) *LiveWindow {
	for {
		w, ids, ok := v.window(askedOnly)
		if !ok {
			return nil
		}
		var gone []change
		for _, id := range ids {
			row, err := c.store.Row(id)
			if errors.Is(err, fs.ErrNotExist) {
				gone = append(gone, change{id, nil})
				continue
			}
			if err != nil {
				row = storage.Row{ID: id, State: storage.Failed, Error: "the row cannot be read: " + err.Error()}
			}
			w.Rows = append(w.Rows, summaryOf(&row))
		}
		if len(gone) == 0 {
			return w
		}
		v.apply(gone) // deleted since; the hub will say so too, but a window has no holes
		askedOnly = false
	}
}

func (c *liveConn) sessionOf(id uint64) LiveSession {
	m := LiveSession{Type: "session", ID: id}
	if c.share != nil && id != c.share.Session {
		return m
	}
	if row, err := c.store.Row(id); err == nil {
		if c.share != nil {
			redactRow(&row)
		}
		summary := summaryOf(&row)
		m.Session, m.Messages = &summary, c.store.MessagesSoFar(id)
	}
	return m
}

func (c *liveConn) send(m any) error {
	_ = c.ws.SetWriteDeadline(time.Now().Add(writeTime))
	return c.ws.WriteJSON(m)
}

// signal marks without waiting: one mark is enough.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
