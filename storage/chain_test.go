package storage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// shown is a session with an upstream's certificates, ended.
func shown(s *Store, c *Chain) uint64 {
	r := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: c}})
	r.End(Done, "")
	return r.ID()
}

func checkCertificates(t *testing.T, s *Store, id uint64, want []byte) {
	t.Helper()
	if got, err := s.Certificates(id); err != nil || !bytes.Equal(got, want) {
		t.Errorf("session %d: got %d bytes, %v, want %d", id, len(got), err, len(want))
	}
}

func TestCertificatesAreStoredOnce(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	one, two := noise(1, 1500), noise(2, 1200)
	chain := s.Chain([][]byte{one, two})
	open := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: chain}})
	checkCertificates(t, s, open.ID(), append(bytes.Clone(one), two...))
	open.End(Done, "")
	ids := []uint64{open.ID(), shown(s, chain), shown(s, s.Chain([][]byte{bytes.Clone(one), two}))}
	other := shown(s, s.Chain([][]byte{two}))
	none := s.Begin(Session{Method: "GET"})
	none.End(Done, "")
	waitDurable(t, s)

	where := make(map[slotID]int)
	for _, id := range ids {
		checkCertificates(t, s, id, append(bytes.Clone(one), two...))
		session, err := s.Session(id)
		if err != nil || session.Certificates == nil {
			t.Fatalf("session %d: %+v, %v", id, session, err)
		}
		where[slotID{session.Certificates.Segment, session.Certificates.Slot}]++
	}
	if len(where) != 1 {
		t.Errorf("one chain is stored %d times", len(where))
	}
	checkCertificates(t, s, other, two)
	for _, id := range []uint64{none.ID(), 999} {
		if _, err := s.Certificates(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("session %d: got %v", id, err)
		}
	}
	if len(s.recent.pins) != 0 {
		t.Errorf("pins are left: %v", s.recent.pins)
	}
}

// A body of the same bytes as a chain is another record, whichever came first.
func TestCertificatesAreNoBody(t *testing.T) {
	s := openTest(t, t.TempDir())
	der := noise(3, 900)
	first := put(s, der)
	id := shown(s, s.Chain([][]byte{der}))
	waitDurable(t, s)
	second := put(s, der)
	again := shown(s, s.Chain([][]byte{der}))
	waitDurable(t, s)
	for _, r := range []*Recording{first, second} {
		checkBody(t, s, r.ID(), Response, der)
	}
	checkCertificates(t, s, id, der)
	checkCertificates(t, s, again, der)
}

// The certificates outlive the process, the index and the sessions that showed them first, and go with the last.
func TestCertificatesLast(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	der := noise(4, 2000)
	chain := s.Chain([][]byte{der})
	first, second := shown(s, chain), shown(s, chain)
	waitDurable(t, s)
	if _, err := s.Delete(t.Context(), []uint64{first}); err != nil {
		t.Fatal(err)
	}
	s = rebuild(t, s)
	checkCertificates(t, s, second, der)
	if err := s.Annotate(second, func(session *Session) { session.Note = "kept" }); err != nil {
		t.Fatal(err)
	}
	checkCertificates(t, s, second, der)
	third := shown(s, s.Chain([][]byte{der}))
	waitDurable(t, s)
	checkCertificates(t, s, third, der)
	check := func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, true, func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
		s = openTest(t, dir)
	}
	check()
	if _, err := s.Delete(t.Context(), []uint64{second, third}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{first, second, third} {
		if _, err := s.Certificates(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("deleted session %d: got %v", id, err)
		}
	}
	check() // counts of what names the chain's record, among others
}

// A chain keeps no old segment for ever: after a while it is stored again.
func TestChainMovesOnWithTheLog(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.log.mu.Lock()
	s.log.limit = 1000 // each of the bodies below fills one
	s.log.mu.Unlock()
	der := noise(6, 500)
	chain := s.Chain([][]byte{der})
	segment := func() uint64 {
		id := shown(s, chain)
		waitDurable(t, s)
		checkCertificates(t, s, id, der)
		session, err := s.Session(id)
		if err != nil {
			t.Fatal(err)
		}
		return session.Certificates.Segment
	}
	first := segment()
	for now := uint64(0); now <= first+chainReach; {
		at := segment()
		if now = s.log.end().Segment; now <= first+chainReach && at != first {
			t.Errorf("in segment %d: the chain of segment %d is stored again in %d", now, first, at)
		}
		put(s, noise(now, 1200))
		waitDurable(t, s)
	}
	if at := segment(); at == first {
		t.Errorf("in segment %d: the chain is still that of segment %d", s.log.end().Segment, first)
	}
	if len(s.recent.pins) != 0 {
		t.Errorf("pins are left: %v", s.recent.pins)
	}
}

// A session that a SIGKILL interrupts has its certificates: the log names them as soon as it tells of the session.
func TestCertificatesOfAnInterruptedSession(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	der := noise(8, 700)
	r := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: s.Chain([][]byte{der})}})
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	killed := Killed(t, dir)
	for _, name := range []string{"", "index.db"} { // and with an index made anew
		if name != "" {
			if err := os.Remove(filepath.Join(killed, name)); err != nil {
				t.Fatal(err)
			}
		}
		after, err := OpenStore(Config{Dir: killed})
		if err != nil {
			t.Fatal(err)
		}
		checkCertificates(t, after, r.ID(), der)
		if session, err := after.Session(r.ID()); err != nil || session.State != Interrupted {
			t.Errorf("got %v, %v", session.State, err)
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(killed, true, func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
	}
}

func TestLongChainIsCut(t *testing.T) {
	s := openTest(t, t.TempDir())
	half := noise(5, chainLimit/2)
	for _, test := range []struct {
		certificates [][]byte
		want         int
	}{
		{[][]byte{half, half}, chainLimit},
		{[][]byte{half, half, {1}}, chainLimit},
		{[][]byte{half, half[1:], {1}}, chainLimit},
		{[][]byte{half, append([]byte{1}, half...)}, chainLimit / 2},
	} {
		id := shown(s, s.Chain(test.certificates))
		if got, err := s.Certificates(id); err != nil || len(got) != test.want {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, test.want)
		}
	}
	if s.Chain([][]byte{append(half, append(half, 1)...)}) != nil || s.Chain(nil) != nil {
		t.Error("there is a chain of no certificate")
	}
}
