package storage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fillMany records sessions until the index has some pages, and returns the directory, as it is after a clean end or as a SIGKILL leaves it.
func fillMany(t *testing.T, clean bool) (dir string, sessions uint64) {
	t.Helper()
	dir = t.TempDir()
	s := openTest(t, dir)
	for sessions = range uint64(150) {
		r := s.Begin(Session{Method: "GET", Host: fmt.Sprint("example.com:", sessions), Path: fmt.Sprint("/", sessions)})
		give(r.Body(Response), noise(sessions, 300))
		r.Body(Response).Complete()
		r.End(Done, "")
	}
	waitDurable(t, s)
	if clean {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return dir, sessions + 1
	}
	killed := t.TempDir()
	s.committing.Lock()
	defer s.committing.Unlock()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return killed, sessions + 1
}

// TestDamagedPageOfTheIndexStopsNoStart changes the kind of each page of the index: the store opens all the same. After an end that was not clean, a page that no
// start would look at shows too.
func TestDamagedPageOfTheIndexStopsNoStart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		dir, sessions := fillMany(t, clean)
		whole, err := os.ReadFile(filepath.Join(dir, "index.db"))
		if err != nil {
			t.Fatal(err)
		}
		page := os.Getpagesize()
		for at := 2 * page; at < len(whole); at += page {
			if whole[at+8] == 0 {
				continue // it was never used
			}
			b := bytes.Clone(whole)
			b[at+8] ^= 0x40 // its flags
			copied := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(copied, "index.db"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			s := openTest(t, copied)
			for id := uint64(1); id <= sessions && !clean; id++ {
				if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id-1, 300)) {
					t.Fatalf("page %d damaged: body of session %d differs", at/page, id)
				}
			}
			put(s, noise(1, 1000))
			if err := s.Close(); err != nil && !clean {
				t.Errorf("page %d damaged: %v", at/page, err)
			}
			os.RemoveAll(copied)
		}
	}
}

// TestTextThatIsNotUTF8IsReadAgain records what no rule forbids a client to send: the session is read, and does not stop the rebuilding of the index.
func TestTextThatIsNotUTF8IsReadAgain(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := s.Begin(Session{Method: "GET", Host: "example.com", Path: "/\xff\xfe"})
	r.End(Done, "")
	waitDurable(t, s)
	for range 2 {
		session, err := s.Session(r.ID())
		if err != nil || session.Path != "/\xff\xfe" {
			t.Fatalf("got path %q, %v", session.Path, err)
		}
		s = rebuild(t, s)
	}
}

// TestRecordThatCannotBeDecodedStopsNoStart has a record in the log whose checksum is right and whose content is not: it is damage like any other.
func TestRecordThatCannotBeDecodedStopsNoStart(t *testing.T) {
	s := openTest(t, t.TempDir())
	before := put(s, noise(1, 100))
	s.log.append(&record{kind: recordReserved}, []byte("no CBOR"))
	after := put(s, noise(2, 100))
	waitDurable(t, s)
	s = rebuild(t, s)
	checkBody(t, s, before.ID(), Response, noise(1, 100))
	checkBody(t, s, after.ID(), Response, noise(2, 100))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told := 0
	if err := Verify(s.dir, true, func(string) { told++ }); err != nil || told == 0 {
		t.Errorf("%d problems told, %v", told, err)
	}
}
