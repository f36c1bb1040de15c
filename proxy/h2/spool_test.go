package h2

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

func TestSpoolReads(t *testing.T) {
	for _, n := range []int{0, 1, spoolMemory - 1, spoolMemory, spoolMemory + 1, 3 * spoolMemory} {
		body := bytes.Repeat([]byte("0123456789abcde"), n/15+1)[:n]
		s := newSpool(t.TempDir())
		for rest := body; len(rest) > 0; {
			k := min(len(rest), 10_000)
			if !s.put(rest[:k]) {
				t.Fatalf("%d bytes: not kept", n)
			}
			rest = rest[k:]
		}
		s.end(io.EOF, nil)
		if err := iotest.TestReader(s, body); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// What is read makes room in memory again, and the file is gone when it was read.
func TestSpoolSpillsAndRecovers(t *testing.T) {
	dir := t.TempDir()
	s := newSpool(dir)
	piece := make([]byte, spoolMemory)
	for round := range 3 {
		for range 3 {
			s.put(piece)
		}
		if s.file == nil || len(s.memory) != spoolMemory || s.to-s.from != 2*spoolMemory {
			t.Fatalf("round %d: %d bytes in memory, %d in the file", round, len(s.memory), s.to-s.from)
		}
		if n, err := io.CopyN(io.Discard, s, 3*spoolMemory); err != nil {
			t.Fatal(n, err)
		}
		if s.file != nil || s.memory != nil {
			t.Fatal("read, and still kept")
		}
	}
	s.put(piece)
	s.put(piece[:100])
	if n := s.drop(); n != spoolMemory+100 {
		t.Errorf("dropped %d bytes", n)
	}
	if s.put(piece) {
		t.Error("kept what nobody wants")
	}
	if _, err := s.Read(piece); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after that: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSpoolWithoutADisk(t *testing.T) {
	s := newSpool(filepath.Join(t.TempDir(), "missing"))
	if !s.put(make([]byte, spoolMemory)) || s.put([]byte("x")) {
		t.Error("kept other than what memory holds")
	}
	if n, err := io.Copy(io.Discard, s); n != spoolMemory || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
