package storage

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fill records three sessions with small bodies, closes the store, and returns its directory and the log's only segment.
func fill(t *testing.T) (dir, segment string) {
	t.Helper()
	dir = t.TempDir()
	s := openTest(t, dir)
	for i := range uint64(3) {
		r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/", i)})
		give(r.Body(Response), noise(i, 300))
		r.Body(Response).Complete()
		r.End(Done, "")
		waitDurable(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, segmentName(1))
}

// frames returns where each record of the segment begins.
func frames(t *testing.T, segment string) (starts []uint64, kinds []recordKind) {
	t.Helper()
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	r := segmentReader{segment: 1, r: bytes.NewReader(b), end: uint64(len(b))}
	for r.offset < r.end {
		starts = append(starts, r.offset)
		rec, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, rec.kind)
	}
	return starts, kinds
}

// lastEnded returns the last record that ends a session.
func lastEnded(starts []uint64, kinds []recordKind) (from, to uint64) {
	for i := len(kinds) - 1; ; i-- {
		if kinds[i] == recordEnded {
			return starts[i], starts[i+1]
		}
	}
}

// TestTornTail cuts the log at every byte of its last session's record: a rebuilt index has the two before, and nothing is called damage.
func TestTornTail(t *testing.T) {
	dir, segment := fill(t)
	whole, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	from, to := lastEnded(frames(t, segment))
	step := uint64(1)
	if testing.Short() {
		step = 13
	}
	for cut := from; cut < to; cut += step {
		if err := os.WriteFile(segment, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		spans, err := segmentSpans(mustDir(t, dir), nil)
		if err != nil || len(spans) != 1 {
			t.Fatalf("got segments %v, %v", spans, err)
		}
		r := segmentReader{segment: 1, r: bytes.NewReader(whole[:cut]), end: cut}
		for err == nil {
			err = r.skip()
		}
		if r.offset != from {
			t.Fatalf("cut at %d: records end at %d, want %d", cut, r.offset, from)
		}
	}
	for _, cut := range []uint64{from, from + 1, from + frameSize, to - 1} {
		if err := os.WriteFile(segment, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
			t.Fatal(err)
		}
		var logs bytes.Buffer
		s, err := OpenStore(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint64(4) {
			if _, err := s.Row(id); (err == nil) != (id == 1 || id == 2) {
				t.Errorf("cut at %d: session %d: %v", cut, id, err)
			}
		}
		if strings.Contains(logs.String(), "damaged") {
			t.Errorf("cut at %d: called damage: %s", cut, logs.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, segmentName(2))); err != nil {
			t.Fatal(err)
		}
	}
}

func mustDir(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestDamageInTheMiddle changes a byte of the second session's record: the sessions around it are found, and the damage is told.
func TestDamageInTheMiddle(t *testing.T) {
	for _, at := range []uint64{2, 40} { // in the frame, in the payload
		dir, segment := fill(t)
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		starts, kinds := frames(t, segment)
		ended := 0
		for i, kind := range kinds {
			if kind == recordEnded {
				if ended++; ended == 2 {
					b[starts[i]+at] ^= 1
				}
			}
		}
		if err := os.WriteFile(segment, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var problems []string
		if _, err := Verify(dir, true, func(p string) { problems = append(problems, p) }); err != nil {
			t.Fatal(err)
		}
		if len(problems) == 0 || !strings.Contains(problems[0], "log segment 1: damaged from byte") {
			t.Errorf("got problems %q", problems)
		}
		if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
			t.Fatal(err)
		}
		var logs bytes.Buffer
		s, err := OpenStore(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for id := uint64(1); id <= 3; id++ {
			if _, err := s.Row(id); (err == nil) != (id != 2) {
				t.Errorf("session %d: %v", id, err)
			}
		}
		if !strings.Contains(logs.String(), "the log is damaged") {
			t.Errorf("the damage is not told: %s", logs.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedIndex sets a damaged index aside and makes another.
func TestDamagedIndex(t *testing.T) {
	dir, _ := fill(t)
	path := filepath.Join(dir, "index.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = byte(i * 7)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir)
	for id := uint64(1); id <= 3; id++ {
		if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id-1, 300)) {
			t.Errorf("body of session %d differs", id)
		}
	}
	if _, err := os.Stat(path + ".damaged-1"); err != nil {
		t.Error(err)
	}
}
