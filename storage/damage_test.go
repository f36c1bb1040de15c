package storage

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	return Killed(t, dir), sessions + 1
}

// TestDamagedPageOfTheIndexStopsNoStart changes the kind of each page of the index: the store opens all the same. A page that no start
// would read shows too.
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
			for id := uint64(1); id <= sessions; id++ {
				if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id-1, 300)) {
					t.Fatalf("page %d damaged: body of session %d differs", at/page, id)
				}
			}
			put(s, noise(1, 1000))
			if err := s.Close(); err != nil {
				t.Errorf("page %d damaged: %v", at/page, err)
			}
			os.RemoveAll(copied)
		}
	}
}

// TestDamagedValuesOfTheIndexAreFound puts garbage into each page's values in turn, where its structure stays whole: no start keeps an index that
// verify finds wrong.
func TestDamagedValuesOfTheIndexAreFound(t *testing.T) {
	dir, sessions := fillMany(t, true)
	whole, err := os.ReadFile(filepath.Join(dir, "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for at := 0; ; {
		// A slot page's values begin so, as the segment's head comes after its frame; other bytes that are so are damaged besides.
		i := bytes.Index(whole[at:], []byte{frameSize, 0, 0, 0})
		if i < 0 {
			break
		}
		at += i + 64
		damaged++
		b := bytes.Clone(whole)
		copy(b[at:], bytes.Repeat([]byte{0xa5}, 64))
		copied := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "index.db"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, copied)
		for id := uint64(1); id <= sessions; id++ {
			if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id-1, 300)) {
				t.Fatalf("damaged at %d: body of session %d differs", at, id)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := Verify(copied, true, func(p string) { t.Errorf("damaged at %d: %s", at, p) }); err != nil {
			t.Error(err)
		}
		os.RemoveAll(copied)
	}
	if damaged == 0 {
		t.Error("no value was found")
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
	if _, err := Verify(s.dir, true, func(string) { told++ }); err != nil || told == 0 {
		t.Errorf("%d problems told, %v", told, err)
	}
}

// fillSegments records sessions over some segments of the log, closes the store, and returns where it lies and which sessions it has.
func fillSegments(t *testing.T) (dir string, ids []uint64) {
	t.Helper()
	dir = t.TempDir()
	s := openTest(t, dir)
	s.log.limit = 8 << 10
	for i := uint64(0); i < 40 || s.log.end().Offset < 4<<10; i++ { // the newest segment holds something, too
		ids = append(ids, put(s, noise(i, 1000)).ID())
		waitDurable(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, ids
}

// openLogged opens the store and returns what it logs.
func openLogged(t *testing.T, dir string) (*Store, *bytes.Buffer) {
	t.Helper()
	logs := new(bytes.Buffer)
	s, err := OpenStore(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, logs
}

// checkDamage looks for damage in the store: it is told, sessions are whole or say that they are not, new ones are kept, and all can be deleted.
func checkDamage(t *testing.T, dir string, ids []uint64, least int) {
	t.Helper()
	told := 0
	if _, err := Verify(dir, false, func(string) { told++ }); err != nil || told == 0 {
		t.Errorf("verify: %d problems told, %v", told, err)
	}
	s, logs := openLogged(t, dir)
	whole := 0
	for i, id := range ids {
		b, err := s.Body(id, Response)
		if err != nil {
			continue
		}
		got := make([]byte, 1000)
		if n, err := b.ReadAt(got, 0); n == len(got) {
			whole++
			if !bytes.Equal(got, noise(uint64(i), 1000)) {
				t.Errorf("session %d: its body differs", id)
			}
		} else if err == nil || err == io.EOF {
			t.Errorf("session %d: read %d bytes, %v", id, n, err)
		}
		b.Close()
	}
	if whole < least || whole == len(ids) {
		t.Errorf("%d of %d sessions are whole, want at least %d and not all", whole, len(ids), least)
	}
	if !strings.Contains(logs.String(), "the log is damaged") {
		t.Errorf("it is not told: %s", logs)
	}
	r := put(s, noise(99, 1000))
	waitDurable(t, s)
	checkBody(t, s, r.ID(), Response, noise(99, 1000))
	if _, err := s.DeleteThrough(t.Context(), r.ID()); err != nil {
		t.Error(err)
	}
	if n := s.Status().Sessions; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamagedSegmentInTheMiddleStopsNothing empties a segment, or changes its first byte, with and without an index that knows it.
func TestDamagedSegmentInTheMiddleStopsNothing(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"head": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[0] ^= 1
			return os.WriteFile(path, b, 0o600)
		},
		"half": func(path string) error { return os.Truncate(path, 4<<10) },
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " indexed ", indexed), func(t *testing.T) {
				dir, ids := fillSegments(t)
				if err := damage(filepath.Join(dir, segmentName(3))); err != nil {
					t.Fatal(err)
				}
				if !indexed {
					if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
						t.Fatal(err)
					}
				}
				if name == "head" {
					whole := ids[:len(ids)-1] // no session is in the head
					s, logs := openLogged(t, dir)
					for i := range whole {
						checkBody(t, s, ids[i], Response, noise(uint64(i), 1000))
					}
					if !strings.Contains(logs.String(), "the log is damaged") {
						t.Errorf("it is not told: %s", logs)
					}
					return
				}
				checkDamage(t, dir, ids, 20)
			})
		}
	}
}

// TestNewestSegmentCutShortIsTold cuts the newest segment below what the index has of it.
func TestNewestSegmentCutShortIsTold(t *testing.T) {
	for _, size := range []int64{0, 2000} {
		dir, ids := fillSegments(t)
		segments, err := filepath.Glob(filepath.Join(dir, "log", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(segments[len(segments)-1], size); err != nil {
			t.Fatal(err)
		}
		checkDamage(t, dir, ids, 20)
	}
}

// TestDamagedRecordOfAnOpenSessionStopsNoStart changes what the log tells of a session that was open when the process was killed.
func TestDamagedRecordOfAnOpenSessionStopsNoStart(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := s.Begin(Session{Method: "GET", Host: "example.com", Path: "/path-of-the-session"})
	r.Body(Response).Write(noise(1, 1000))
	for s.index.snapshot().Rows == 0 {
		s.commit()
	}
	killed := Killed(t, dir)
	segment := filepath.Join(killed, segmentName(1))
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte("/path-of-the-session"), []byte("/Path-Of-The-Session"))
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	after, logs := openLogged(t, killed)
	session, err := after.Session(r.ID())
	if err != nil || session.State != Interrupted || session.Path != "/path-of-the-session" {
		t.Errorf("got state %s, path %q, %v", session.State, session.Path, err)
	}
	if !strings.Contains(logs.String(), "damaged") {
		t.Errorf("it is not told: %s", logs)
	}
}

// TestIndexDamagedWhileRunningIsMadeAgain changes the kind of every page in use under a running store: the next commit meets that, and makes the index again.
func TestIndexDamagedWhileRunningIsMadeAgain(t *testing.T) {
	s, logs := openLogged(t, t.TempDir())
	var ids []uint64
	for i := range uint64(100) {
		ids = append(ids, put(s, noise(i, 1000)).ID())
	}
	waitDurable(t, s)
	open := s.Begin(Session{Method: "GET"})
	open.Body(Response).Write(noise(200, 5<<20))

	s.committing.Lock()
	f, err := os.OpenFile(s.index.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	for at := 2 * page; at < info.Size(); at += page {
		if _, err := f.WriteAt([]byte{0x40}, at+8); err != nil { // its flags
			t.Fatal(err)
		}
	}
	f.Close()
	s.committing.Unlock()

	ids = append(ids, put(s, noise(100, 1000)).ID())
	waitDurable(t, s)
	for i, id := range ids {
		checkBody(t, s, id, Response, noise(uint64(i), 1000))
	}
	open.End(Done, "")
	waitDurable(t, s)
	checkBody(t, s, open.ID(), Response, noise(200, 5<<20))
	if p := s.Status().Problem; p != "" {
		t.Errorf("problem %q", p)
	}
	if n := strings.Count(logs.String(), "the index is damaged"); n != 1 {
		t.Errorf("told %d times: %s", n, logs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(s.dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

// TestVerifyTellsOfWhatNoStoreOpens: a directory that is refused for its format is not one in which nothing is wrong.
func TestVerifyTellsOfWhatNoStoreOpens(t *testing.T) {
	dir, _ := fillSegments(t)
	format := filepath.Join(dir, "format")
	for name, damage := range map[string]func() error{
		"missing": func() error { return os.Remove(format) },
		"newer":   func() error { return os.WriteFile(format, []byte("millpond 999\n"), 0o600) },
		"other":   func() error { return os.WriteFile(format, []byte("999\n"), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(Config{Dir: dir})
		if err == nil {
			s.Close()
			t.Fatalf("format %s: the store opens", name)
		}
		if _, err := Verify(dir, false, func(p string) { t.Error(p) }); err == nil {
			t.Errorf("format %s: verify finds nothing wrong", name)
		}
	}
}
