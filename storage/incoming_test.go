package storage

import (
	"testing"
	"time"
)

// At the limit of full files that wait for the committer, workers wait. The committer, which writes for recordings too, must go on: only it makes room.
func TestCommitterGoesOnAtTheLimitOfFullFiles(t *testing.T) {
	s := openTest(t, t.TempDir())
	limit := func(n int) {
		s.incomings.mu.Lock()
		s.incomings.limit = n
		s.incomings.mu.Unlock()
		s.incomings.room.Broadcast()
	}
	limit(0) // no worker does anything
	body := noise(1, smallBody+BufferSize)
	var recs []*Recording
	for range storageWorkers + 1 { // more than the workers could be held up by
		r := s.Begin(Session{})
		give(r.Body(Response), body)
		recs = append(recs, r)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.commit()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the committer waits for itself")
	}
	limit(fullLimit)
	<-done
	for _, r := range recs {
		r.Body(Response).Complete()
		r.End(Done, "")
	}
	waitDurable(t, s)
	for _, r := range recs {
		checkBody(t, s, r.ID(), Response, body)
	}
}
