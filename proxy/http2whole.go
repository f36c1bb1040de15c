package proxy

import (
	"net/http"
	"sync/atomic"

	"golang.org/x/net/http2"

	"millpond/proxy/h2"
)

// delivery counts a response's body on its way to the client. A server may end the stream in a frame of its own, after the last bytes, and a client that
// counts them against Content-Length leaves before that comes: it has got the whole response.
type delivery struct {
	owed    atomic.Int64  // by the head that the client got; -1: it does not tell, or has not come
	passing atomic.Int64  // bytes that were about to be written
	passed  atomic.Int64  // bytes that were written and recorded
	booked  chan struct{} // closed when all that is owed has passed; nil: nobody waits. Guarded by http2Stream.mu
}

// owes notes what the client is to get for a request with the method.
func (d *delivery) owes(method string, h *head) {
	switch {
	case bodyless(method, h.status):
		d.owed.Store(0)
	case method == http.MethodConnect && h.status < 300: // a tunnel. RFC 9110, section 9.3.6
	default:
		d.owed.Store(bodyLength(h, false))
	}
}

// whole reports whether the client got all that was owed.
func (d *delivery) whole() bool {
	owed := d.owed.Load()
	return owed >= 0 && d.passed.Load() >= owed
}

// satisfied reports whether a client that ended a stream with a code found nothing wrong with it. RFC 9113, section 7; curl uses STREAM_CLOSED where it
// wants no more.
func satisfied(c *h2.Close) bool {
	return c.By == h2.Client && (c.Code == http2.ErrCodeNo || c.Code == http2.ErrCodeCancel || c.Code == http2.ErrCodeStreamClosed)
}

// passed books bytes of the response that the client got and that are recorded.
func (e *http2Stream) passed(n int) {
	if e.toClient.passed.Add(int64(n)) != e.toClient.owed.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.toClient.booked != nil {
		close(e.toClient.booked)
	}
}

// awaitBooking keeps the exchange until the response's last bytes are recorded, where the client was faster to leave with them than that. e.mu is held.
func (e *http2Stream) awaitBooking() {
	d := &e.toClient
	if owed := d.owed.Load(); owed < 0 || d.passing.Load() < owed || d.passed.Load() >= owed {
		return
	}
	d.booked = make(chan struct{})
	e.busy++
	e.hc.work.Go(func() {
		defer e.release()
		select {
		case <-d.booked:
		case <-e.hc.ctx.Done(): // they could not be written
		}
	})
}
