package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const markedPath = "/the-path-of-a-session"

// fillMarked records sessions whose rows fill pages of their own, and keeps a share.
func fillMarked(t *testing.T, s *Store) (ids []uint64) {
	t.Helper()
	for i := range uint64(200) {
		r := s.Begin(Session{Method: "GET", Path: markedPath})
		give(r.Body(Response), noise(i, 100))
		r.Body(Response).Complete()
		r.End(Done, "")
		ids = append(ids, r.ID())
	}
	waitDurable(t, s)
	if err := s.PutShare("share", []byte("its record")); err != nil {
		t.Fatal(err)
	}
	return ids
}

// damageRows changes the kind of the pages that hold rows.
func damageRows(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page, damaged := os.Getpagesize(), 0
	for at := 2 * page; at+page <= len(whole); at += page {
		if bytes.Contains(whole[at:at+page], []byte(markedPath)) {
			damaged++
			if _, err := f.WriteAt([]byte{0x40}, int64(at)+8); err != nil { // its flags
				t.Fatal(err)
			}
		}
	}
	if damaged == 0 {
		t.Fatal("no page holds rows")
	}
}

func checkMarked(t *testing.T, s *Store, ids []uint64) {
	t.Helper()
	for i, id := range ids {
		checkBody(t, s, id, Response, noise(uint64(i), 100))
	}
}

func checkShares(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	all, err := s.Shares()
	got := map[string]string{}
	for id, record := range all {
		got[id] = string(record)
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got shares %v, %v; want %v", got, err, want)
	}
}

var oneShare = map[string]string{"share": "its record"}

// TestDamageThatAReaderMeetsIsMended damages the index under a store that has nothing to write: the first read that meets it has the index
// made again.
func TestDamageThatAReaderMeetsIsMended(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, path string)
		shares map[string]string
		told   string
	}{
		"pages": {damageRows, oneShare, "shares are kept"},
		"cut short": {func(t *testing.T, path string) { // reading the map faults
			if runtime.GOOS == "windows" {
				t.Skip("a mapped file cannot be cut there")
			}
			if err := os.Truncate(path, 2*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		}, nil, "shares are lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			ids := fillMarked(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, logs := openLogged(t, s.dir)
			c.damage(t, s.index.path)
			_, err := s.Session(ids[0])
			if err == nil {
				t.Fatal("the damage does not show")
			}
			for deadline := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(deadline); {
				_, err = s.Session(ids[0])
			}
			s.commit() // the rebuilding is over when this is
			checkMarked(t, s, ids)
			checkShares(t, s, c.shares)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, told := range []string{"the index cannot be read", "the index is damaged: it is set aside and made again", c.told} {
				if n := strings.Count(logs.String(), told); n != 1 {
					t.Errorf("told %d times that %s: %s", n, told, logs)
				}
			}
			if _, err := Verify(s.dir, true, func(p string) { t.Error(p) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFaultThatPassesNeedsNoNewIndex has a read fail that does not fail again.
func TestFaultThatPassesNeedsNoNewIndex(t *testing.T) {
	s, logs := openLogged(t, t.TempDir())
	ids := fillMarked(t, s)
	func() {
		var err error
		defer s.index.survive(&err)
		panic("a fault")
	}()
	s.commit()
	checkMarked(t, s, ids)
	if got := logs.String(); !strings.Contains(got, "what was read is sound") || strings.Contains(got, "set aside") {
		t.Errorf("logged %s", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, s.dir)
	if !s.unclean {
		t.Error("the next start does not look through the index")
	}
}

// TestSharesOutliveADamagedFreelist damages the page that the newer meta page names as the list of free pages, over which bbolt panics as it opens.
func TestSharesOutliveADamagedFreelist(t *testing.T) {
	s := openTest(t, t.TempDir())
	ids := fillMarked(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.index.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, newest, freelist := int64(os.Getpagesize()), uint64(0), uint64(0)
	for n := range int64(2) {
		var meta [64]byte
		if _, err := f.ReadAt(meta[:], n*page+16); err != nil {
			t.Fatal(err)
		}
		if tx := binary.NativeEndian.Uint64(meta[48:]); tx >= newest {
			newest, freelist = tx, binary.NativeEndian.Uint64(meta[32:])
		}
	}
	if _, err := f.WriteAt([]byte("Z"), int64(freelist)*page+8); err != nil { // its flags
		t.Fatal(err)
	}
	s, logs := openLogged(t, s.dir)
	checkMarked(t, s, ids)
	checkShares(t, s, oneShare)
	if !strings.Contains(logs.String(), "shares are kept") {
		t.Errorf("logged %s", logs)
	}
}

// TestSharesOutliveADamagedIndex makes the index again at a start. Where it would be read as it was a transaction earlier, shares are lost: one might
// be back that was revoked.
func TestSharesOutliveADamagedIndex(t *testing.T) {
	s := openTest(t, t.TempDir())
	ids := fillMarked(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, meta := range []int{-1, 0, 1} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "index.db")
		damageRows(t, path)
		want := oneShare
		if meta >= 0 {
			want = nil
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteAt([]byte{0xff}, int64(meta*os.Getpagesize())+16+48) // its transaction
			f.Close()
		}
		t.Run(fmt.Sprint("meta ", meta), func(t *testing.T) {
			s, logs := openLogged(t, dir)
			checkMarked(t, s, ids)
			checkShares(t, s, want)
			if told := strings.Contains(logs.String(), "shares are lost"); told != (want == nil) {
				t.Errorf("logged %s", logs)
			}
		})
	}
}
