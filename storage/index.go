package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// fillPercent is how full bbolt leaves a page that it splits. Keys count up, so a full page is never written again.
// It is not stored: each transaction sets it.
const fillPercent = 0.9

// The index's buckets. All but settings (see Store.Setting) and shares are made from the log, and can be made again.
var (
	bucketMeta     = []byte("meta")
	bucketRows     = []byte("rows2")    // id → hot row; the name changes with what a row is: see migrations
	bucketSegments = []byte("segments") // number → segmentRow
	bucketSlots    = []byte("slots")    // segment and page → slotPage
	bucketChunks   = []byte("chunks")   // SHA-256 → chunkRow
	bucketOpen     = []byte("open")     // id and entry → what is on disk of a session that is open
	bucketWords    = []byte("words")    // number → word of the dictionary
	bucketGraves   = []byte("graves")   // slot of a deletion → grave
	bucketSettings = []byte("settings")
	bucketShares   = []byte("shares")

	bucketsOfLog = [][]byte{bucketMeta, bucketRows, bucketSegments, bucketSlots, bucketChunks, bucketOpen, bucketWords, bucketGraves}
	keyState     = []byte("state")
)

// indexState is what the index knows of the log as a whole.
type indexState struct {
	Applied  position `cbor:"1,keyasint"` // every record before it is in the index
	Reserved uint64   `cbor:"2,keyasint"`
	Cutoff   uint64   `cbor:"3,keyasint"`
	LastID   uint64   `cbor:"4,keyasint"` // the newest id seen
	Incoming uint64   `cbor:"5,keyasint"` // the newest number of an incoming file seen
	Rows     uint64   `cbor:"6,keyasint"`
	Clean    bool     `cbor:"7,keyasint"` // closed in order: nothing is left over in the directories
}

// index is the bbolt database over the log, and what is held of it in memory.
type index struct {
	path string

	mu    sync.RWMutex // held for reading while db is used, for writing while it is replaced
	db    *bbolt.DB
	dict  dictionary
	state indexState              // of the last commit; under mu
	sizes filesSize               // as of the last commit; under mu
	open  map[uint64]*openSession // by the one goroutine that applies

	read atomic.Uint64 // bytes of rows, by scans

	damaged atomic.Bool // a transaction met damage
	partial atomic.Bool // it is being made again, and lacks some of the log
	met     func(error) // is told once, when it did; nil while the store is opened
}

// errIndexDamaged is an index that cannot be used, and is to be made again.
var errIndexDamaged = errors.New("index is damaged")

const indexName = "index.db"

// openIndex opens the index, or makes an empty one.
func openIndex(dir string) (*index, error) { return openIndexAt(dir, indexName) }

func openIndexAt(dir, name string) (*index, error) {
	ix := &index{path: filepath.Join(dir, name)}
	if _, err := os.Stat(ix.path); errors.Is(err, fs.ErrNotExist) {
		if err := ix.create(dir); err != nil {
			return nil, err
		}
	}
	if err := ix.connect(); err != nil {
		return nil, err
	}
	return ix, nil
}

// create makes an empty database beside its name and moves it there whole: bbolt's own first write is not atomic against a power cut.
func (ix *index) create(dir string) error {
	fresh := ix.path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make index: %w", err)
	}
	db, err := bbolt.Open(fresh, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("make index: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range append([][]byte{bucketSettings, bucketShares}, bucketsOfLog...) {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("make index: %w", err)
	}
	if err := os.Rename(fresh, ix.path); err != nil {
		return fmt.Errorf("make index: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make index: %w", err)
	}
	defer d.Close()
	if err := syncDir(d); err != nil {
		return fmt.Errorf("sync data directory: %w", err)
	}
	return nil
}

// mmapSize is what is mapped from the start: until the file outgrows it, no reader makes the writer wait.
func mmapSize() int {
	if strconv.IntSize == 64 && runtime.GOOS != "windows" { // Windows makes the file as long as the map
		return 1 << 30
	}
	return 0
}

// growBy is by how much the file of a database of this size grows at a time, in bytes. bbolt's own 16 MiB would be many times the sessions of a day; each growth costs
// a sync.
func growBy(size int64) int { return int(min(max(size/8, 256<<10), 16<<20)) }

func (ix *index) connect() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var file *os.File
	defer func() {
		if err != nil && file != nil {
			unlock(file) // where bbolt panicked, it holds the file's lock
			_ = file.Close()
		}
	}()
	defer recoverDamage(&err)
	db, err := bbolt.Open(ix.path, 0o600, &bbolt.Options{
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
		Timeout:         time.Second,
		InitialMmapSize: mmapSize(),
		FreelistType:    bbolt.FreelistMapType,
	})
	if errors.Is(err, bbolterrors.ErrTimeout) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("open index: %w", err)
	}
	if err != nil {
		return fmt.Errorf("open index: %w (%w)", err, errIndexDamaged)
	}
	ix.db = db
	if err := ix.load(); err != nil {
		db.Close()
		return fmt.Errorf("%w (%w)", err, errIndexDamaged)
	}
	return nil
}

// load reads what is held in memory.
func (ix *index) load() (err error) {
	defer recoverDamage(&err)
	return ix.db.View(func(tx *bbolt.Tx) (err error) {
		for _, name := range append([][]byte{bucketSettings, bucketShares}, bucketsOfLog...) {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("read index: no bucket %s", name)
			}
		}
		ix.state = indexState{}
		if v := tx.Bucket(bucketMeta).Get(keyState); v != nil {
			if err := decoder.Unmarshal(v, &ix.state); err != nil {
				return fmt.Errorf("read index state: %w", err)
			}
		}
		if err := ix.dict.load(tx.Bucket(bucketWords)); err != nil {
			return fmt.Errorf("read words: %w", err)
		}
		if ix.sizes, err = loadFilesSize(tx); err != nil {
			return err
		}
		ix.open, err = loadOpen(tx.Bucket(bucketOpen))
		return err
	})
}

// recoverDamage turns a panic of bbolt over a damaged file, or a read fault in its memory map, into an error.
// The goroutine must have set debug.SetPanicOnFault for the latter.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read index: %v: %w", p, errIndexDamaged)
	}
}

// survive is recoverDamage for a transaction.
func (ix *index) survive(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read index: %v: %w", p, errIndexDamaged)
		if !ix.damaged.Swap(true) && ix.met != nil {
			ix.met(*err)
		}
	}
}

// view runs fn in a read transaction. fn must be quick, and must not wait.
func (ix *index) view(fn func(tx *bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer ix.survive(&err)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if ix.db == nil {
		return fs.ErrClosed
	}
	return ix.db.View(fn)
}

// update runs fn in a write transaction. After an error its outcome is unknown: see reopen.
func (ix *index) update(fn func(tx *bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer ix.survive(&err)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if ix.db == nil {
		return fs.ErrClosed
	}
	return ix.db.Update(fn)
}

// reopen opens the database anew and reads what it says. A failed Update may have committed all the same.
func (ix *index) reopen() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.let()
	return ix.connect()
}

// renew puts an empty database in the place of a damaged one, which setAside moves away.
func (ix *index) renew(dir string, setAside func() error) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.let()
	if err := setAside(); err != nil {
		return err
	}
	if err := ix.create(dir); err != nil {
		return err
	}
	return ix.connect()
}

// drop closes a damaged database.
func (ix *index) drop() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.let()
}

// let closes the database. A panic inside bbolt may have left its locks held for good, so this waits for no longer than a moment.
// ix.mu is held.
func (ix *index) let() {
	db := ix.db
	if db == nil {
		return
	}
	ix.db = nil
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// generations returns the generation of each segment that the index knows.
func (ix *index) generations() (map[uint64]uint32, error) {
	all := make(map[uint64]uint32)
	err := ix.view(func(tx *bbolt.Tx) error {
		readGenerations(tx, all)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read segments: %w", err)
	}
	return all, nil
}

func readGenerations(tx *bbolt.Tx, into map[uint64]uint32) {
	c := tx.Bucket(bucketSegments).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		var row segmentRow
		row.decode(v)
		into[idOf(k)] = row.generation
	}
}

// snapshot returns the state of the last commit.
func (ix *index) snapshot() indexState {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.state
}

func (ix *index) close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.db == nil {
		return nil
	}
	err := ix.db.Close()
	ix.db = nil
	return err
}

func idKey(id uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, id)
}

func idOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) }
