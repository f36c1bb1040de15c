package h2

import (
	"errors"
	"testing"

	"golang.org/x/net/http2"
)

// A stream may end between the booking of a hook's bytes and their writing. Who does not get them gives no credit for them.
func TestUnsentBytesCostNoCredit(t *testing.T) {
	wrote := make(chan error, 1)
	r := greeted(t, takeRequest(func(s *Stream, in *Incoming) {
		defer in.Close()
		_, err := s.Outgoing(Response).Write(make([]byte, 5000))
		wrote <- err
	}), nil, nil)
	real := func() int64 {
		r.relay.mu.Lock()
		defer r.relay.mu.Unlock()
		return r.relay.windows[Response].real
	}
	client := r.relay.peers[Request].w
	client.lock()
	r.client.headers(1, false, get)
	eventually(t, "the booking", func() bool { return real() == initialWindow-5000 })
	r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	r.watch.until(t, "the stream's end", func() bool { return len(r.watch.streams) == 1 && r.watch.streams[0].closed != nil })
	client.unlock(true)
	if err := <-wrote; !errors.Is(err, errOver) {
		t.Errorf("wrote with %v", err)
	}
	if got := real(); got != initialWindow {
		t.Errorf("the window is %d, not %d", got, initialWindow)
	}
}
