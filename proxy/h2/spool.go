package h2

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// spoolMemory is what a spool holds in memory, in bytes.
const spoolMemory = 256 << 10

// spool is a pipe whose writer never waits. It holds up to spoolMemory in memory and the rest in a temporary file; how much that can be
// is for the sender's window to bound.
type spool struct {
	dir string

	mu       sync.Mutex
	more     sync.Cond
	memory   []byte
	file     *os.File // holds what comes after memory, from from to to
	from, to int64
	err      error // what reading comes to after all was read; nil: more may come
	trailers []hpack.HeaderField
	dropped  bool
}

func newSpool(dir string) *spool {
	s := &spool{dir: dir}
	s.more.L = &s.mu
	return s
}

// put appends p. It reports whether p was kept.
func (s *spool) put(p []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped || s.err != nil {
		return false
	}
	defer s.more.Broadcast()
	if s.file == nil && len(s.memory)+len(p) <= spoolMemory {
		s.memory = append(s.memory, p...)
		return true
	}
	if err := s.spill(p); err != nil {
		s.err = fmt.Errorf("keep a body for a modifier: %w", err)
		return false
	}
	return true
}

func (s *spool) spill(p []byte) error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "millpond-*")
		if err != nil {
			return err
		}
		os.Remove(f.Name()) // where a file can be removed while it is open; close removes it elsewhere
		s.file, s.from, s.to = f, 0, 0
	}
	n, err := s.file.WriteAt(p, s.to)
	s.to += int64(n)
	return err
}

// Read waits for some bytes, or the end.
func (s *spool) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		switch {
		case s.dropped:
			return 0, os.ErrClosed
		case len(s.memory) > 0:
			n := copy(p, s.memory)
			if s.memory = s.memory[n:]; len(s.memory) == 0 {
				s.memory = nil
			}
			return n, nil
		case s.from < s.to:
			n, err := s.file.ReadAt(p[:min(int64(len(p)), s.to-s.from)], s.from)
			if s.from += int64(n); s.from == s.to {
				s.closeFile()
			}
			if n > 0 {
				return n, nil
			}
			return 0, fmt.Errorf("read a kept body: %w", err)
		case s.err != nil:
			return 0, s.err
		}
		s.more.Wait()
	}
	return 0, nil
}

// end says that nothing will come. Only the first call counts.
func (s *spool) end(err error, trailers []hpack.HeaderField) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err, s.trailers = err, trailers
	}
	s.more.Broadcast()
}

// drop gives up what was not read, and says how much that was.
func (s *spool) drop() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(s.memory)) + s.to - s.from
	s.dropped, s.memory, s.from, s.to = true, nil, 0, 0
	s.closeFile()
	s.more.Broadcast()
	return n
}

func (s *spool) closeFile() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
		s.file, s.from, s.to = nil, 0, 0
	}
}

func (s *spool) isDropped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *spool) trailersNow() []hpack.HeaderField {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != io.EOF {
		return nil
	}
	return s.trailers
}
