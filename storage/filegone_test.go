package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesThatAreGone: where a file of the log or a chunk is gone, its sessions are not taken for deleted ones, and the start tells of the segment.
func TestFilesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	smallSegments(s)
	ids := fillLog(t, s, 1) // its record is in the segment of its body
	fillLog(t, s, 60)
	large := largeSession(t, s)
	session, err := s.Session(large)
	if err != nil {
		t.Fatal(err)
	}
	waitDigests(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.Remove(filepath.Join(dir, segmentName(1))),
		os.Remove(filepath.Join(dir, filepath.FromSlash(chunkName(session.Sides[Response].Body.Extents[0].Chunk)))),
	); err != nil {
		t.Fatal(err)
	}
	s, logs := openLogged(t, dir)
	if !strings.Contains(logs.String(), "segments are gone: millpond verify --repair") || !strings.Contains(logs.String(), segmentName(1)) {
		t.Errorf("the start says %s", logs)
	}
	told := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrFileGone) || !strings.Contains(err.Error(), "millpond verify --repair") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Row(ids[0]); err != nil {
		t.Errorf("row: %v", err)
	}
	_, err = s.Session(ids[0])
	told("session", err)
	_, err = s.Body(ids[0], Response)
	told("body in the log", err)
	told("note", s.Annotate(ids[0], func(s *Session) { s.Note = "a note" }))
	b, err := s.Body(large, Response)
	if err == nil {
		_, err = io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
		b.Close()
	}
	told("body in chunks", err)

	if b, err = s.Body(large, Response); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n, err := s.Delete(t.Context(), []uint64{ids[0], large}); n != 2 || err != nil {
		t.Fatalf("deleted %d, %v", n, err)
	}
	if _, err := s.Session(ids[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleted session: %v", err)
	}
	if _, err := b.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("body of a session that was deleted meanwhile: %v", err)
	}
}
