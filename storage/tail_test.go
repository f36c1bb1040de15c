package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTornTailIsNoDamageOnceTheNextSegmentIsGone: how much of a segment counts is said by the next one, which is removed when nothing in it is named.
func TestTornTailIsNoDamageOnceTheNextSegmentIsGone(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	first := put(s, noise(1, 5000))
	waitDurable(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, segmentName(1))
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(whole, whole[:100]...), 0o600); err != nil { // as a kill in a write leaves it
		t.Fatal(err)
	}
	s = openTest(t, dir)
	s.log.limit = 1000
	second := put(s, noise(2, 5000))
	waitDurable(t, s)
	third := put(s, noise(3, 5000))
	waitDurable(t, s)
	if _, err := s.Delete(t.Context(), []uint64{second.ID()}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, segmentName(2))); err == nil {
		t.Fatal("the segment in between is still there")
	}
	if told := verifyAll(t, dir); len(told) > 0 {
		t.Errorf("told: %s", told)
	}
	s = rebuild(t, s)
	checkBody(t, s, first.ID(), Response, noise(1, 5000))
	checkBody(t, s, third.ID(), Response, noise(3, 5000))
}
