package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// kept is what a test knows of a session that it recorded.
type kept struct {
	body    []byte
	note    string
	deleted bool
}

// repairCase is a closed store that holds some of everything.
type repairCase struct {
	dir     string
	kept    map[uint64]kept
	picture picture
	large   uint64 // of three chunks
	noted   uint64 // a small one, whose newest record came with a note
	plain   uint64 // a small one in a segment in the middle
	gone    uint64 // a deleted one, whose segment is there
}

func newRepairCase(t *testing.T) *repairCase { return newRepairCaseOf(t, 9<<20) }

func newRepairCaseOf(t *testing.T, size int) *repairCase {
	t.Helper()
	c := &repairCase{dir: t.TempDir(), kept: make(map[uint64]kept)}
	s, err := OpenStore(Config{Dir: c.dir, still: true}) // else what each segment holds is a matter of time
	if err != nil {
		t.Fatal(err)
	}
	s.log.limit = 12 << 10
	record := func(n, size int) uint64 {
		body := noise(uint64(n), size)
		small := size <= 1000
		if small {
			s.committing.Lock() // it is in the log once, ended
		}
		r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/session-", n), Sides: [2]Message{{Head: noise(uint64(n), 30)}}})
		r.Change(func(s *Session) { s.TLS = &TLS{} })
		chain := s.Chain([][]byte{noise(7, 500)})
		r.Change(func(s *Session) { s.TLS.Chain = chain })
		give(r.Body(Response), body)
		r.Body(Response).Complete()
		r.End(Done, "")
		if small {
			s.committing.Unlock()
		}
		c.kept[r.ID()] = kept{body: body}
		waitDurable(t, s)
		return r.ID()
	}
	for n := range 40 {
		id := record(n, 1000)
		switch n {
		case 12:
			c.plain = id
		case 20:
			c.noted = id
		case 22:
			c.gone = id
		}
	}
	record(5, 1000) // the same bytes again
	c.large = record(100, size)
	record(100, size) // and again
	record(101, size/2)
	for n := 41; n < 60; n++ {
		record(n, 1000)
		if n == 45 {
			note := kept{body: c.kept[c.noted].body, note: "a note"}
			if err := s.Annotate(c.noted, func(s *Session) { s.Note, s.Pinned = note.note, true }); err != nil {
				t.Fatal(err)
			}
			c.kept[c.noted] = note
		}
		if n == 50 {
			if _, err := s.Delete(t.Context(), []uint64{c.gone}); err != nil {
				t.Fatal(err)
			}
			c.kept[c.gone] = kept{deleted: true}
		}
	}
	waitDigests(t, s)
	if err := s.PutShare("share", []byte("its record")); err != nil {
		t.Fatal(err)
	}
	c.picture = takePicture(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *repairCase) copy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// change writes over bytes of a file.
func change(t *testing.T, path string, at int64, with ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(with, at); err != nil {
		t.Fatal(err)
	}
}

// find returns the segment and the last or first offset at which the log has the bytes.
func find(t *testing.T, dir string, what []byte, last bool) (path string, at int64) {
	t.Helper()
	at = -1
	segments, _ := filepath.Glob(filepath.Join(dir, "log", "*"))
	for _, segment := range segments {
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.LastIndex(b, what); i >= 0 && (last || at < 0) {
			path, at = segment, int64(i)
		}
	}
	if at < 0 {
		t.Fatal("the log does not have it")
	}
	return path, at
}

// tree returns the files of a data directory and their content, but for the lock.
func tree(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	all := make(map[string][32]byte)
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = sha256.Sum256(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// verifyAll returns what verify tells with every byte read.
func verifyAll(t *testing.T, dir string) (told []string) {
	t.Helper()
	if _, err := Verify(dir, true, func(p string) { told = append(told, p) }); err != nil {
		t.Fatal(err)
	}
	return told
}

// repairAll repairs the store, and checks what every repair does: all then holds together, and another changes nothing.
func repairAll(t *testing.T, dir string) (done Repaired, lines []string) {
	t.Helper()
	done, err := Repair(dir, func(line string) { lines = append(lines, line) })
	if err != nil || done.Left > 0 {
		t.Fatalf("repair: %+v, %v:\n%s", done, err, strings.Join(lines, "\n"))
	}
	checkRepaired(t, dir, lines)
	return done, lines
}

func checkRepaired(t *testing.T, dir string, lines []string) {
	t.Helper()
	if told := verifyAll(t, dir); len(told) > 0 {
		t.Errorf("after the repair: %s\nits lines:\n%s", strings.Join(told, "\n"), strings.Join(lines, "\n"))
	}
	before := tree(t, dir)
	again, err := Repair(dir, func(line string) { t.Error("second repair:", line) })
	if err != nil || again.Wrong > 0 || again.Lost > 0 {
		t.Errorf("second repair: %+v, %v", again, err)
	}
	for path, sum := range tree(t, dir) {
		if before[path] != sum {
			t.Errorf("second repair: %s changed", path)
		}
	}
}

// check opens the store: each session has all its bytes, or says that it has fewer and has those right. It returns which lost something.
func (c *repairCase) check(t *testing.T, dir string) (lost []uint64) {
	t.Helper()
	s := openTest(t, dir)
	seen := 0
	for id, want := range c.kept {
		session, err := s.Session(id)
		if want.deleted {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("session %d is back: %v", id, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("session %d: %v", id, err)
			continue
		}
		seen++
		if session.Note != want.note || session.Pinned != (want.note != "") || session.Host != "example.com" || !strings.HasPrefix(session.Path, "/session-") {
			t.Errorf("session %d: got note %q, pinned %t, %s%s", id, session.Note, session.Pinned, session.Host, session.Path)
		}
		got := session.Sides[Response].Body
		if int(got.Size) < len(want.body) || !got.Complete {
			lost = append(lost, id)
			if got.Complete || !strings.HasPrefix(got.Missing, fmt.Sprintf("captured to byte %d: ", got.Size)) || !session.HasFlag(FlagCut) {
				t.Errorf("session %d: it does not say what it lost: %+v, %v", id, got, session.Flags)
			}
			if got.Size == 0 {
				continue
			}
		}
		if body := readBody(t, s, id, Response); !bytes.Equal(body, want.body[:got.Size]) {
			t.Errorf("session %d: its body differs", id)
		}
	}
	if n := s.Status().Sessions; n != uint64(seen) {
		t.Errorf("%d sessions, want %d", n, seen)
	}
	put(s, noise(1, 2000))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if told := verifyAll(t, dir); len(told) > 0 {
		t.Errorf("after another run: %s", strings.Join(told, "\n"))
	}
	slices.Sort(lost)
	return lost
}

func (c *repairCase) checkSame(t *testing.T, dir string) {
	t.Helper()
	s := openTest(t, dir)
	got, want := takePicture(t, s), c.picture
	comparePictures(t, picture{rows: got.rows, sessions: got.sessions}, picture{rows: want.rows, sessions: want.sessions})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// inIndex changes the index by bbolt's own means.
func inIndex(t *testing.T, dir string, fn func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, indexName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}
