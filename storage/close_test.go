package storage

import (
	"bytes"
	"testing"
)

// TestCloseKeepsWhatIsOpen ends a store while bodies of each kind are being recorded: every byte that was given is there afterwards.
func TestCloseKeepsWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	bodies := make(map[uint64][]byte)
	for i, size := range []int{0, 1000, smallBody - 1, smallBody + 1, 5 << 20} {
		r := s.Begin(Session{Method: "GET"})
		body := noise(uint64(i), size)
		write(r.Body(Request), body)
		r.Body(Request).Complete()
		write(r.Body(Response), body)
		bodies[r.ID()] = body
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	for id, body := range bodies {
		session, err := s.Session(id)
		if err != nil {
			t.Fatal(err)
		}
		if session.State != Interrupted || session.Error == "" || !session.Sides[Request].Body.Complete || session.Sides[Response].Body.Complete {
			t.Errorf("session %d: got %s, %q, complete %t and %t", id, session.State, session.Error,
				session.Sides[Request].Body.Complete, session.Sides[Response].Body.Complete)
		}
		for side := range Side(2) {
			if got := readBody(t, s, id, side); !bytes.Equal(got, body) {
				t.Errorf("%s body of session %d: got %d bytes, want %d", side, id, len(got), len(body))
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

// TestFailedUpdateOfTheIndex takes the database away between two commits: the outcome of an update that fails is looked up, and
// nothing is lost.
func TestFailedUpdateOfTheIndex(t *testing.T) {
	s := openTest(t, t.TempDir())
	first := put(s, noise(1, 1000))
	waitDurable(t, s)
	s.committing.Lock()
	if err := s.index.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.committing.Unlock()
	second := put(s, noise(2, 5<<20))
	waitDurable(t, s)
	checkBody(t, s, first.ID(), Response, noise(1, 1000))
	checkBody(t, s, second.ID(), Response, noise(2, 5<<20))
	if p := s.Status().Problem; p != "" {
		t.Errorf("problem %q", p)
	}
}
