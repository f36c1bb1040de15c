package storage

import "testing"

// TestEverySessionIsCountedOnce: also between the moment at which the log has it and the commit that puts it into the index.
func TestEverySessionIsCountedOnce(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.committing.Lock()
	for n := range uint64(3) {
		r := s.Begin(Session{Method: "GET"})
		if n == 1 {
			r.End(Done, "")
		}
		s.flushNoted() // as the writer does, between two commits
		if got := s.Status().Sessions; got != n+1 {
			t.Errorf("got %d sessions of %d before a commit", got, n+1)
		}
	}
	s.committing.Unlock()
	s.commit()
	if got := s.Status().Sessions; got != 3 {
		t.Errorf("got %d sessions of 3 after a commit", got)
	}
}
