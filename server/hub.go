package server

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"sync"
	"time"

	"millpond/storage"
)

const (
	pushPause   = 100 * time.Millisecond // between two pushes: 10 a second
	statusPause = time.Second

	// maxConnections bounds the live connections: each may hold maxViews sets of ids.
	maxConnections = 64

	// scansAtOnce bounds how many views look through the sessions at a time, so that the relay keeps most of the machine.
	scansAtOnce = 2
)

// hub takes the store's changes, once for all live connections, while there are any.
type hub struct {
	store *storage.Store
	now   func() time.Time

	deletions *deletions

	turns chan struct{} // for view.run

	running sync.WaitGroup // run

	mu     sync.Mutex
	conns  map[*liveConn]struct{}
	stop   context.CancelFunc // ends run; nil while nobody is connected
	status LiveStatus
}

func newHub(store *storage.Store, deletions *deletions, now func() time.Time) *hub {
	return &hub{store: store, deletions: deletions, now: now, turns: make(chan struct{}, scansAtOnce), conns: map[*liveConn]struct{}{}}
}

// join adds a connection, which gets every change from here on. It reports false when there are too many.
func (h *hub) join(c *liveConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) >= maxConnections {
		return false
	}
	h.conns[c] = struct{}{}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		h.status = LiveStatus{Type: "status", Store: storeOf(h.store.Status()), Deletions: h.deletions.list()}
		feed := h.store.Subscribe() // here, so that the connection misses nothing
		h.running.Go(func() { h.run(ctx, feed) })
	}
	return true
}

func (h *hub) leave(c *liveConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	if len(h.conns) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *hub) connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

func (h *hub) each(fn func(*liveConn)) {
	h.mu.Lock()
	conns := make([]*liveConn, 0, len(h.conns))
	for c := range h.conns {
		conns = append(conns, c)
	}
	h.mu.Unlock()
	for _, c := range conns {
		fn(c)
	}
}

func (h *hub) run(ctx context.Context, feed *storage.Feed) {
	defer feed.Close()
	meter := newMeter(h.now(), h.status.Store.LastID)
	tick := time.NewTicker(statusPause)
	defer tick.Stop()
	wake := feed.Wake()
	var pause <-chan time.Time
	for {
		select {
		case <-wake:
			h.distribute(feed, meter)
			wake, pause = nil, time.After(pushPause)
		case <-pause:
			wake, pause = feed.Wake(), nil
		case <-tick.C:
			h.tell(meter)
		case <-ctx.Done():
			return
		}
	}
}

// distribute reads each changed row once and gives it to every connection.
func (h *hub) distribute(feed *storage.Feed, meter *meter) {
	ids, overflowed := feed.Take()
	changes := make([]change, 0, len(ids))
	for _, id := range ids {
		row, err := h.store.Row(id)
		switch {
		case err == nil:
			meter.count(&row)
			changes = append(changes, change{id, &row})
		case errors.Is(err, fs.ErrNotExist):
			meter.forget(id)
			changes = append(changes, change{id, nil})
		} // a row that cannot be read just now is shown as it was
	}
	h.each(func(c *liveConn) {
		if overflowed {
			c.startAgain()
		}
		c.apply(changes)
	})
}

// tell gives the store's status to the connections, where it changed.
func (h *hub) tell(meter *meter) {
	status := LiveStatus{Type: "status", Store: storeOf(h.store.Status()), Deletions: h.deletions.list()}
	status.BytesPerSecond, status.SessionsPerSecond = meter.rates(h.now(), status.Store.LastID)
	h.mu.Lock()
	changed := !reflect.DeepEqual(status, h.status)
	h.status = status
	h.mu.Unlock()
	if changed {
		h.each((*liveConn).statusChanged)
	}
}

func (h *hub) lastStatus() LiveStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// maxMetered bounds the open sessions whose bytes are counted.
const maxMetered = 16 << 10

// meter counts what passes.
type meter struct {
	known  map[uint64]uint64 // body bytes of open sessions, as last seen
	bytes  uint64            // since the last rates
	since  time.Time
	lastID uint64
}

func newMeter(now time.Time, lastID uint64) *meter {
	return &meter{known: map[uint64]uint64{}, since: now, lastID: lastID}
}

func (m *meter) count(r *storage.Row) {
	total := r.RequestBytes + r.ResponseBytes
	before, seen := m.known[r.ID]
	if (seen || r.ID > m.lastID) && total > before { // what a session had before we looked did not pass just now
		m.bytes += total - before
	}
	if r.State != storage.Open {
		delete(m.known, r.ID)
	} else if seen || len(m.known) < maxMetered {
		m.known[r.ID] = total
	}
}

func (m *meter) forget(id uint64) { delete(m.known, id) }

// rates returns bytes and sessions a second since the last call.
func (m *meter) rates(now time.Time, lastID uint64) (bytes, sessions float64) {
	seconds := now.Sub(m.since).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	bytes, sessions = float64(m.bytes)/seconds, float64(lastID-min(lastID, m.lastID))/seconds
	m.bytes, m.since, m.lastID = 0, now, lastID
	return bytes, sessions
}
