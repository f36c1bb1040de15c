package proxy

import (
	"bufio"
	"sync"
	"time"
)

// watch sees a connection end while nobody reads from it. A goroutine for each wait would cost every exchange; so a timer starts one
// only where the wait is long. What the peer sends meanwhile stays in the reader's buffer, which bounds it.
type watch struct {
	r     *bufio.Reader
	after time.Duration   // of waiting, before it is watched
	clear func()          // removes a read deadline that has passed; nil: there is none
	ended func(data bool) // called once while watched: the connection ended, or (data) its buffer has something to read
	eager bool            // data counts too

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

// stop ends a wait: ended is not called after it. The goroutine may still be reading: see join.
func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	w.wanted = false
	w.mu.Unlock()
}

// join waits until nobody else reads from r. The read that it waits for is the one that the caller would have made: it ends
// with the peer's next bytes, its end, or the connection's deadline.
func (w *watch) join() {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if running != nil {
		<-running
	}
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
	defer w.mu.Unlock()
	switch {
	case !w.wanted:
		return false
	case err != nil && timedOut(err) && w.clear != nil:
		w.clear()
		return true
	case err != nil || w.eager:
		w.wanted = false
		w.ended(err == nil)
		return false
	}
	return true
}
