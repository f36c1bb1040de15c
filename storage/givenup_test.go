package storage

import (
	"errors"
	"testing"
	"time"
)

// TestNothingNamesWhatWasGivenUp: what is found in the log just before that gives it up is named by no session, whether the log fails before the session is
// told of it, or after.
func TestNothingNamesWhatWasGivenUp(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	first := put(s, noise(1, 3000))
	waitDurable(t, s)

	s.committing.Lock() // what comes now is not synced
	body, cert := noise(2, 3000), noise(3, 2000)
	chain := s.Chain([][]byte{cert})
	lost := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: chain}})
	give(lost.Body(Response), body)
	lost.Body(Response).Complete()
	lost.End(Done, "")
	s.flushNoted()
	at, ok := s.recent.find(s.recent.key([][]byte{body}))
	if !ok {
		t.Fatal("it is not remembered")
	}
	key := s.recent.key([][]byte{body})

	late := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: chain}}) // has found both, and is told of them afterwards
	late.mu.Lock()
	s.keepChain(late)
	late.mu.Unlock()
	s.logFailed(errors.New("the test's"))
	s.recent.add(key, at...) // as by a goroutine that had just appended it
	s.recent.unpin(segmentsOf(at))
	if used, err := s.reuse(late, Response, at, 0); used || err != nil {
		t.Errorf("what was given up is named: %v, %v", used, err)
	}
	s.committing.Unlock()
	if err := s.commit(); err != nil { // the log works again
		t.Fatal(err)
	}
	give(late.Body(Response), body)
	late.Body(Response).Complete()
	late.End(Done, "")
	waitDurable(t, s)
	for _, r := range []*Recording{lost, late} {
		if got, err := s.Certificates(r.ID()); err != nil || string(got) != string(cert) {
			t.Errorf("session %d: certificates: %d bytes, %v", r.ID(), len(got), err)
		}
	}
	checkBody(t, s, late.ID(), Response, body)
	checkBody(t, s, first.ID(), Response, noise(1, 3000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir)
}

// TestLastRecordThatNamesWhatWasGivenUpIsSaidAgain: a session's last record came into the log right after that gave up what it names.
func TestLastRecordThatNamesWhatWasGivenUpIsSaidAgain(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	put(s, noise(1, 3000))
	waitDurable(t, s)
	cert := noise(3, 2000)
	chain := s.Chain([][]byte{cert})
	r := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: chain}})
	give(r.Body(Response), noise(4, 1<<20)) // in a chunk, which both of its last records name
	r.Body(Response).Complete()
	for named := false; !named; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		named = len(r.bodies[Response].runs) > 0 && r.bodies[Response].runs[0].chunk != nil && r.naming == 0
		r.mu.Unlock()
	}
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	s.committing.Lock()
	opener := s.Begin(Session{Method: "GET", TLS: &TLS{Chain: chain}})
	s.flushNoted() // the chain is in the log
	r.mu.Lock()
	s.keepChain(r)
	at, chainAt := *r.session.Certificates, r.chainAt
	r.mu.Unlock()
	gone, _, _ := s.log.abandon(errors.New("the test's"))
	s.recent.forgetAll()
	r.mu.Lock() // it ends in this moment, with what it found
	r.ended, r.session.State, r.session.Certificates = true, Done, &at
	r.finished, r.chainAt = true, chainAt
	session := r.snapshot()
	s.appendValue(&record{kind: recordEnded, session: &session, rec: r}, &session)
	r.mu.Unlock()
	s.relog(r, gone, false, errors.New("the test's"))
	s.relog(opener, gone, false, errors.New("the test's"))
	s.committing.Unlock()
	opener.End(Done, "")
	waitDurable(t, s)
	for _, r := range []*Recording{opener, r} {
		if got, err := s.Certificates(r.ID()); err != nil || string(got) != string(cert) {
			t.Errorf("session %d: certificates: %d bytes, %v", r.ID(), len(got), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir)
}
