package storage

import "sync"

// hold keeps files where they are while a backup needs them: what would be removed meanwhile is removed at its end, or by the next start.
type hold struct {
	mu    sync.Mutex
	on    bool
	names map[string]bool
}

func (h *hold) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = true
	if h.names == nil {
		h.names = make(map[string]bool)
	}
}

// take reports whether the file is to stay for now.
func (h *hold) take(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on {
		h.names[name] = true
	}
	return h.on
}

// keep reports whether a file that was to go is still there: it stays, because it is named again.
func (h *hold) keep(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.names[name]
	delete(h.names, name)
	return held
}

// any reports whether files stay that would be gone without a backup.
func (h *hold) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.names) > 0
}

// end lets removals be again, and returns up to n files that are due.
func (h *hold) end(n int) (due []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = false
	for name := range h.names {
		if len(due) == n {
			break
		}
		due = append(due, name)
		delete(h.names, name)
	}
	return due
}

// endHold removes what a backup kept from being removed: in steps, because commits wait for it.
func (s *Store) endHold() {
	for {
		s.committing.Lock()
		due := s.hold.end(500)
		for _, name := range due {
			s.removeFile(name)
		}
		s.committing.Unlock()
		if len(due) == 0 {
			return
		}
	}
}
