package storage

import (
	"os"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// handleLimit is how many files stay open for reading while nobody reads them.
const handleLimit = 64

// handles keeps recently read files open.
type handles struct {
	files Files

	mu   sync.Mutex
	idle *simplelru.LRU[string, *handle] // closes what falls out
	used map[string]*handle
}

// handle is a file that is open for reading.
type handle struct {
	name    string
	file    File
	readers int
	gone    bool // closed when the last reader is done
}

func newHandles(files Files) *handles {
	h := &handles{files: files, used: make(map[string]*handle)}
	h.idle, _ = simplelru.NewLRU(handleLimit, func(_ string, old *handle) { // the size is a constant above 0
		if old.readers == 0 {
			old.file.Close()
		}
	})
	return h
}

// open returns a handle that the caller gives back with done.
func (h *handles) open(name string) (*handle, error) {
	h.mu.Lock()
	if f := h.reuse(name); f != nil {
		h.mu.Unlock()
		return f, nil
	}
	h.mu.Unlock()
	file, err := h.files.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.reuse(name); f != nil { // another opened it meanwhile
		file.Close()
		return f, nil
	}
	f := &handle{name: name, file: file, readers: 1}
	h.used[name] = f
	return f, nil
}

func (h *handles) reuse(name string) *handle {
	f := h.used[name]
	if f == nil {
		idle, ok := h.idle.Peek(name)
		if !ok {
			return nil
		}
		f = idle
		f.readers++ // before Remove, which would close it
		h.idle.Remove(name)
		h.used[name] = f
		return f
	}
	f.readers++
	return f
}

func (h *handles) done(f *handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.readers--; f.readers > 0 {
		return
	}
	if h.used[f.name] == f {
		delete(h.used, f.name)
	}
	if f.gone {
		f.file.Close()
		return
	}
	h.idle.Add(f.name, f)
}

// drop forgets a file that is removed, so that its space comes back.
func (h *handles) drop(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.used[name]; f != nil {
		f.gone = true
		delete(h.used, name)
	}
	h.idle.Remove(name)
}

func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle.Purge()
	for _, f := range h.used {
		f.gone = true
	}
}
