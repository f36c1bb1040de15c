package storage

import (
	"bytes"
	"testing"
)

// TestEqualKeysAreNotEqualBodies: a body whose key is that of another is stored, and what was found is let go.
func TestEqualKeysAreNotEqualBodies(t *testing.T) {
	s := openTest(t, t.TempDir())
	put := func(body []byte) *Recording {
		r := s.Begin(Session{Method: "GET"})
		r.Body(Response).Write(body)
		r.Body(Response).Complete()
		r.End(Done, "")
		waitDurable(t, s)
		return r
	}
	first, second := noise(1, 5000), noise(2, 5000)
	a := put(first)
	at, ok := s.recent.find(s.recent.key([][]byte{first}))
	if !ok {
		t.Fatal("the first body is not remembered")
	}
	s.recent.unpin(segmentsOf(at))
	s.recent.add(s.recent.key([][]byte{second}), at...)
	b := put(second)
	checkBody(t, s, a.ID(), Response, first)
	checkBody(t, s, b.ID(), Response, second)
	if len(s.recent.pins) != 0 {
		t.Errorf("pins are left: %v", s.recent.pins)
	}
	c := put(bytes.Clone(second))
	one, _ := s.Session(b.ID())
	two, _ := s.Session(c.ID())
	if got, want := two.Sides[Response].Body.Extents[0], one.Sides[Response].Body.Extents[0]; got.Slot != want.Slot || got.Segment != want.Segment {
		t.Errorf("the second body is stored twice, at %v and %v", got, want)
	}
}
