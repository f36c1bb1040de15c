package storage

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"time"
)

const (
	// derivedTotal is how many bytes the derived files may have together. The one used last stays even where it alone has more: a viewer
	// that asks for range after range of it would else have it made each time.
	derivedTotal = 1 << 30

	// derivedCount bounds the derived files by number: what could not be made has no bytes, and is remembered too.
	derivedCount = 1000

	// derivedIdle is how long a file is made on while nobody reads it. A viewer opens it anew for each range.
	derivedIdle = 30 * time.Second

	// derivedReserve is how much space is left to captures: nothing is derived on a disk with less, or with less than a twentieth where that is smaller.
	derivedReserve = 1 << 30

	// spaceStep is after how many bytes the space is looked at again.
	spaceStep = 256 << 10
)

// Errors of deriving, which DerivedReader.Err returns.
var (
	// ErrDerivedLimit says that the representation is larger than its limit. What is within is there.
	ErrDerivedLimit = errors.New("the representation is too large to be kept")

	// ErrDiskLow says that the disk has too little space left to be spent on copies of what it holds.
	ErrDiskLow = errors.New("the disk is nearly full")

	errDerivedBusy = errors.New("too many representations are being made")
)

// derived is the cache of representations of bodies: files in derived/, made once, read while they are made, and dropped when others need the space.
// It begins empty: whether a file of a former process is whole would cost a sync for each to know.
type derived struct {
	files Files
	limit int64 // bytes
	ctx   context.Context
	end   context.CancelFunc
	works sync.WaitGroup

	mu     sync.Mutex
	byKey  map[derivedKey]*derivedFile
	use    list.List // of *derivedFile, the one used last in front
	total  int64     // bytes on disk
	number uint64    // names files, so that a new one never meets an old one of its key
}

type derivedKey struct {
	id   uint64
	name string
}

// derivedFile is one representation.
type derivedFile struct {
	of    *derived
	key   derivedKey
	path  string
	limit int64
	end   context.CancelFunc

	// under of.mu
	size    int64
	done    bool
	err     error
	grown   chan struct{}
	readers int
	idle    *time.Timer   // ends the making when nobody reads
	place   *list.Element // nil once it is not to be found any more; its readers read on
	removed bool          // its file is
}

// newDerived empties the directory, making it where it is not there.
func newDerived(files Files, limit int64) (*derived, error) {
	if err := files.Mkdir(derivedDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory of derived bodies: %w", err)
	}
	entries, err := files.ReadDir(derivedDir)
	if err != nil {
		return nil, fmt.Errorf("list derived bodies: %w", err)
	}
	for _, e := range entries {
		if err := files.Remove(path.Join(derivedDir, e.Name())); err != nil {
			return nil, fmt.Errorf("remove derived body: %w", err)
		}
	}
	d := &derived{files: files, limit: limit, byKey: make(map[derivedKey]*derivedFile)}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d, nil
}

const derivedDir = "derived"

// open returns a reader of the representation, which it begins to make where it is not there.
func (d *derived) open(key derivedKey, limit int64, make func(context.Context, io.Writer) error) (*DerivedReader, error) {
	d.mu.Lock()
	f := d.byKey[key]
	if f == nil {
		if len(d.byKey) >= derivedCount {
			defer d.remove(d.evict(derivedCount-1, d.limit))
		}
		if err := d.ctx.Err(); err != nil || len(d.byKey) >= derivedCount {
			d.mu.Unlock()
			return nil, errors.Join(err, errDerivedBusy)
		}
		d.number++
		f = &derivedFile{of: d, key: key, limit: limit, path: fmt.Sprintf("%s/%d", derivedDir, d.number)}
		f.place = d.use.PushFront(f)
		d.byKey[key] = f
		ctx, end := context.WithCancel(d.ctx)
		f.end = end
		d.works.Go(func() { f.run(ctx, make) })
	}
	f.readers++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	d.use.MoveToFront(f.place)
	d.mu.Unlock()
	return &DerivedReader{BodyReader: BodyReader{&derivedSource{derivedFile: f}}, file: f}, nil
}

// run makes the representation.
func (f *derivedFile) run(ctx context.Context, make func(context.Context, io.Writer) error) {
	defer f.end()
	w := &derivedWriter{f: f, ctx: ctx}
	err := w.room()
	if err == nil {
		err = make(ctx, w)
	}
	if w.err != nil {
		err = w.err
	}
	if w.file != nil {
		if closeErr := w.file.Close(); err == nil {
			err = closeErr
		}
	}

	d := f.of
	d.mu.Lock()
	f.done, f.err = true, err
	if f.grown != nil {
		close(f.grown)
		f.grown = nil
	}
	if err != nil && (w.disk || errors.Is(err, context.Canceled)) {
		d.forget(f) // the next one to ask may have more luck
	}
	gone := d.evict(derivedCount, d.limit)
	if f.place == nil && f.readers == 0 {
		gone = append(gone, f)
	}
	d.mu.Unlock()
	d.remove(gone)
}

// forget makes the file be found no more. d.mu is held.
func (d *derived) forget(f *derivedFile) {
	if f.place != nil {
		d.use.Remove(f.place)
		f.place = nil
		delete(d.byKey, f.key)
	}
}

// evict forgets files that nobody reads or makes, those not used for longest first, until there are at most count with bytes in all, and returns
// them for removal. It spares the one used last. d.mu is held.
func (d *derived) evict(count int, bytes int64) (gone []*derivedFile) {
	total := d.total
	for at := d.use.Back(); at != nil && at != d.use.Front() && (len(d.byKey) > count || total > bytes); {
		f := at.Value.(*derivedFile)
		at = at.Prev()
		if f.done && f.readers == 0 {
			d.forget(f)
			total -= f.size
			gone = append(gone, f)
		}
	}
	return gone
}

// remove removes the files from the disk.
func (d *derived) remove(gone []*derivedFile) {
	for _, f := range gone {
		d.mu.Lock()
		again := f.removed
		f.removed = true
		if !again {
			d.total -= f.size
		}
		d.mu.Unlock()
		if !again {
			_ = d.files.Remove(f.path) // there is no file where nothing was written; one that stays goes at the next start
		}
	}
}

// drop drops all representations of the sessions, also those that are read: the sessions were deleted.
func (d *derived) drop(ids ...uint64) {
	var gone []*derivedFile
	d.mu.Lock()
	if len(d.byKey) > 0 {
		deleted := make(map[uint64]bool, len(ids))
		for _, id := range ids {
			deleted[id] = true
		}
		for key, f := range d.byKey {
			if deleted[key.id] {
				gone = append(gone, f)
			}
		}
	}
	for _, f := range gone {
		d.forget(f)
		f.end()
	}
	d.mu.Unlock()
	d.remove(gone)
}

// dropIdle makes room: it drops all that nobody reads or makes.
func (d *derived) dropIdle() {
	d.mu.Lock()
	gone := d.evict(0, 0)
	d.mu.Unlock()
	d.remove(gone)
}

// close ends the making of files and waits until that is over.
func (d *derived) close() {
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	d.works.Wait()
}
