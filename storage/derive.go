package storage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Derive returns another representation of a body from the derived cache, making it in the background where it is not there.
// The name says which (side and representation, "response.decoded"). The reader grows while it is made, and Err says how the making ended.
// make writes to w only, which refuses bytes beyond limit with ErrDerivedLimit, and ends when ctx does: the session was deleted, the store is closing, or
// nobody has read for a while. How it ended is kept with what it made, so a body that is damaged is not read again and again; but an error of the disk
// is not. An unknown id is fs.ErrNotExist.
func (s *Store) Derive(id uint64, name string, limit int64, make func(ctx context.Context, w io.Writer) error) (*DerivedReader, error) {
	if !s.has(id) {
		return nil, fmt.Errorf("derive %s of session %d: %w", name, id, fs.ErrNotExist)
	}
	r, err := s.derived.open(derivedKey{id, name}, limit, make)
	if err != nil {
		return nil, fmt.Errorf("derive %s of session %d: %w", name, id, err)
	}
	return r, nil
}

// DerivedReader is a BodyReader over a derived file.
type DerivedReader struct {
	BodyReader
	file *derivedFile
}

// Err returns nil while the representation is being made or when it was made whole, else why it ends where it does.
func (r *DerivedReader) Err() error {
	r.file.of.mu.Lock()
	defer r.file.of.mu.Unlock()
	return r.file.err
}

// derivedSource reads a derived file for one reader.
type derivedSource struct {
	*derivedFile

	opening sync.Mutex
	open    File
	closed  bool
}

func (r *derivedSource) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read body at %d: %w", off, fs.ErrInvalid)
	}
	left := r.Size() - off
	if left <= 0 {
		return 0, io.EOF
	}
	file, err := r.openFile()
	if err != nil {
		return 0, err
	}
	part := p[:min(int64(len(p)), left)]
	n, err := file.ReadAt(part, off)
	switch {
	case n == len(p):
		return n, nil
	case n < len(part) && err == io.EOF:
		return n, io.ErrUnexpectedEOF
	case n < len(part):
		return n, err
	}
	return n, io.EOF
}

func (r *derivedSource) openFile() (_ File, err error) {
	r.opening.Lock()
	defer r.opening.Unlock()
	if r.closed {
		return nil, fs.ErrClosed
	}
	if r.open == nil {
		r.open, err = r.of.files.OpenFile(r.path, os.O_RDONLY)
	}
	return r.open, err
}

func (r *derivedSource) Close() error {
	r.opening.Lock()
	defer r.opening.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var err error
	if r.open != nil {
		err = r.open.Close()
	}
	r.left()
	return err
}

// left notes that a reader is gone.
func (f *derivedFile) left() {
	d := f.of
	d.mu.Lock()
	f.readers--
	var gone []*derivedFile
	switch {
	case f.readers > 0:
	case !f.done:
		f.idle = time.AfterFunc(derivedIdle, f.abandon)
	case f.place == nil:
		gone = []*derivedFile{f}
	default:
		gone = d.evict(derivedCount, d.limit)
	}
	d.mu.Unlock()
	d.remove(gone)
}

// abandon ends the making of a file that nobody reads.
func (f *derivedFile) abandon() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.readers == 0 && !f.done {
		f.of.forget(f) // who comes now must not wait for a file that ends here
		f.end()
	}
}

func (f *derivedFile) Size() int64 {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return f.size
}

func (f *derivedFile) Complete() bool {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return f.done && f.err == nil
}

func (f *derivedFile) Final() bool {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return f.done
}

func (f *derivedFile) Grown() <-chan struct{} {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.done {
		return closedChannel
	}
	if f.grown == nil {
		f.grown = make(chan struct{})
	}
	return f.grown
}

// derivedWriter writes a derived file.
type derivedWriter struct {
	f    *derivedFile
	ctx  context.Context
	file File
	size int64
	next int64 // the size at which to look at the space again
	err  error // of a write: nothing more is taken
	disk bool  // err is the disk's
}

func (w *derivedWriter) Write(p []byte) (n int, err error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err == nil && w.size >= w.next {
		w.err = w.room()
	}
	if w.err != nil {
		return 0, w.err
	}
	fits := p[:min(int64(len(p)), w.f.limit-w.size)]
	if len(fits) > 0 {
		n, w.err = w.write(fits)
		w.disk = w.err != nil
	}
	if w.err == nil && len(fits) < len(p) {
		w.err = fmt.Errorf("%w: over %d bytes", ErrDerivedLimit, w.f.limit)
	}
	return n, w.err
}

func (w *derivedWriter) write(p []byte) (n int, err error) {
	if w.file == nil {
		if w.file, err = w.f.of.files.OpenFile(w.f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY); err != nil {
			return 0, err
		}
	}
	n, err = w.file.WriteAt(p, w.size)
	w.size += int64(n)

	d := w.f.of
	d.mu.Lock()
	w.f.size = w.size
	if !w.f.removed {
		d.total += int64(n)
	}
	if w.f.grown != nil {
		close(w.f.grown)
		w.f.grown = nil
	}
	gone := d.evict(derivedCount, d.limit)
	d.mu.Unlock()
	d.remove(gone)
	return n, err
}

// room looks whether the disk has space for copies, and makes some where it has not.
func (w *derivedWriter) room() error {
	d := w.f.of
	for dropped := false; ; dropped = true {
		free, total, err := d.files.Space()
		if err != nil {
			w.disk = true
			return fmt.Errorf("look at the disk's space: %w", err)
		}
		reserve := min(derivedReserve, total/20)
		if free >= reserve {
			w.next = w.size + spaceStep
			return nil
		}
		if dropped {
			w.disk = true
			return fmt.Errorf("%w: it has %d MB left, and copies are made only while it has %d", ErrDiskLow, free>>20, reserve>>20)
		}
		d.dropIdle()
	}
}
