package proxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// longAgo is a deadline that ends a read at once.
var longAgo = time.Unix(1, 0)

// watch sees a connection end while nobody reads from it. A goroutine for each wait would be a cost to every exchange, so a timer starts one
// only where the wait is long. What the peer sends meanwhile stays in the reader's buffer, which bounds it.
type watch struct {
	conn  net.Conn
	r     *bufio.Reader
	after time.Duration // of waiting, before it is watched
	eager bool          // bytes count as an end: the peer has nothing to say now
	ended func()        // called at most once a wait, while it lasts

	timer *time.Timer

	mu      sync.Mutex
	wanted  bool
	running chan struct{} // closed when the goroutine is done with r; nil: none runs
}

// start begins a wait.
func (w *watch) start() {
	w.mu.Lock()
	w.wanted = true
	w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.after, w.run)
	} else {
		w.timer.Reset(w.after)
	}
}

// stop ends a wait. When it returns, r and the connection's read deadline are the caller's again, and ended is not called any more.
// It reports whether it had to move the deadline, which is then unset.
func (w *watch) stop() (moved bool) {
	if w.timer == nil {
		return false
	}
	w.timer.Stop()
	w.mu.Lock()
	w.wanted = false
	running := w.running
	w.mu.Unlock()
	if running == nil {
		return false
	}
	w.conn.SetReadDeadline(longAgo)
	<-running
	w.conn.SetReadDeadline(time.Time{})
	return true
}

func (w *watch) run() {
	w.mu.Lock()
	if !w.wanted || w.running != nil {
		w.mu.Unlock()
		return
	}
	done := make(chan struct{})
	w.running = done
	w.mu.Unlock()
	for w.look() {
	}
	w.mu.Lock()
	w.running = nil
	w.mu.Unlock()
	close(done)
}

// look reads once, and reports whether to look on.
func (w *watch) look() bool {
	have := w.r.Buffered()
	if have == w.r.Size() {
		return false
	}
	_, err := w.r.Peek(have + 1)
	w.mu.Lock()
	ended := w.wanted && (w.eager || err != nil && !timedOut(err))
	on := w.wanted && !ended
	if on && err != nil {
		w.conn.SetReadDeadline(time.Time{}) // one that was set for the time before the wait
	}
	w.mu.Unlock()
	if ended {
		w.ended()
	}
	return on
}
