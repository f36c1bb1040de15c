package migrations

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Version 2 has smaller rows in the index, in a bucket of another name: a program of one version finds no rows in the index of the other, and
// takes it for damaged. Rows of segments have become 12 bytes longer, and those of deletions 8. The log and the chunks are as in version 1; segments of the log that are
// made from now on say 2 in their heads.

// The index, the one that is being made (whatever is there counts for nothing), and the former one while the new one takes its place.
const (
	indexName  = "index.db"
	indexNew   = "index.db.new"
	indexAside = "index.db.version1"
)

var (
	rows1    = []byte("rows")
	rows2    = []byte("rows2")
	segments = []byte("segments")
	graves   = []byte("graves")
)

// errDamaged is an index that cannot be read.
var errDamaged = errors.New("the index is damaged")

// version2 makes the index of version 2 beside that of version 1, whole and synced, and then puts it in its place. An index that is damaged, or gone, is
// left as it is: storage makes it again from the log, as it does with one that is damaged in its own version.
func version2(dir *os.Root, logger *slog.Logger) error {
	return toVersion2(dir, logger, func(string) {})
}

// toVersion2 is version2 for tests too: before each thing it does, it tells which comes.
func toVersion2(dir *os.Root, logger *slog.Logger, next func(what string)) error {
	next("start")
	done, err := settle2(dir, next)
	if err != nil || done {
		return err
	}
	info, err := dir.Stat(indexName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkRoom(dir, uint64(info.Size())); err != nil {
		return err
	}
	logger.Info("the index is brought to version 2 of the stored format: some seconds for each million sessions", "bytes", info.Size())
	if err := remove(dir, indexNew); err != nil {
		return err
	}
	err = makeIndex2(dir, next)
	if errors.Is(err, errDamaged) {
		logger.Error("the index cannot be brought to version 2", "error", err)
		return remove(dir, indexNew)
	}
	if err != nil {
		return errors.Join(err, remove(dir, indexNew))
	}
	for _, name := range [][2]string{{indexName, indexAside}, {indexNew, indexName}} {
		next("move " + name[0])
		if err := move(dir, name[0], name[1]); err != nil {
			return err
		}
		if err := syncDir(dir, "."); err != nil {
			return err
		}
	}
	next("remove the former index")
	if err := remove(dir, indexAside); err != nil {
		return err
	}
	next("end")
	return nil
}

// settle2 makes of what a run left that was ended: an index of version 1, or none, to begin with; or it finds that all is done.
func settle2(dir *os.Root, next func(string)) (done bool, err error) {
	version, err := indexVersion(dir)
	if err != nil {
		return false, err
	}
	_, err = dir.Lstat(indexAside)
	if errors.Is(err, fs.ErrNotExist) {
		return version == 2, nil
	}
	if err != nil {
		return false, err
	}
	switch version {
	case 1: // a program of version 1 has missed its index meanwhile, and made it again
		return false, remove(dir, indexAside)
	case 2:
		next("remove the former index")
		return true, remove(dir, indexAside)
	}
	next("move the former index back")
	if err := remove(dir, indexName); err != nil { // it is damaged, and was made of the other
		return false, err
	}
	if err := move(dir, indexAside, indexName); err != nil {
		return false, err
	}
	return false, syncDir(dir, ".")
}

// indexVersion returns the version of the index, 0 where there is none or it is damaged.
func indexVersion(dir *os.Root) (version int, err error) {
	if _, err := dir.Lstat(indexName); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	old, err := openIndex1(dir)
	if errors.Is(err, errDamaged) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer old.close()
	names, err := old.buckets()
	for _, name := range names {
		switch {
		case bytes.Equal(name, rows1):
			version = 1
		case bytes.Equal(name, rows2):
			version = 2
		}
	}
	if errors.Is(err, errDamaged) {
		return 0, nil
	}
	return version, err
}

// checkRoom tells whether the disk has room for a second index. It is not longer than the first by more than what is being written.
func checkRoom(dir *os.Root, size uint64) error {
	const margin = 1 << 20
	left, err := free(dir)
	if err != nil {
		return fmt.Errorf("look at the room on the disk: %w", err)
	}
	if need := size + margin; left < need {
		return fmt.Errorf("a new index is made beside the old one: that takes %d MB, and the disk has %d MB left: make room, of which "+
			"%s/derived can be emptied, and start again; nothing was changed", need/1e6+1, left/1e6, dir.Name())
	}
	return nil
}

const batch2 = 4 << 20 // bytes copied in one transaction

// makeIndex2 makes the new index from the former one. An error of the former one is errDamaged.
func makeIndex2(dir *os.Root, next func(string)) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	next("make the new index")
	old, err := openIndex1(dir)
	if err != nil {
		return err
	}
	defer old.close()
	fresh, err := bbolt.Open(indexNew, 0o600, &bbolt.Options{
		Timeout: time.Second, OpenFile: dir.OpenFile, NoSync: true, FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return fmt.Errorf("make new index: %w", err)
	}
	err = copyIndex(fresh, old, next)
	if err == nil {
		next("sync the new index")
		err = fresh.Sync()
	}
	if err = errors.Join(err, fresh.Close()); err != nil {
		return err
	}
	return syncDir(dir, ".")
}

func copyIndex(fresh *bbolt.DB, old *index1, next func(string)) error {
	names, err := old.buckets()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, func(name []byte) bool { return bytes.Equal(name, rows1) }) {
		return fmt.Errorf("%w: it has no rows", errDamaged)
	}
	for _, name := range names {
		for from, more := []byte(nil), true; more; {
			next("copy " + string(name))
			var b batch
			if b, from, err = old.read(name, from); err != nil {
				return fmt.Errorf("copy %s: %w", name, err)
			}
			if err := b.write(fresh); err != nil {
				return fmt.Errorf("write new index: %w", err)
			}
			more = from != nil
		}
	}
	return nil
}

// batch is a run of a bucket's entries, as they are in version 2.
type batch struct {
	bucket       []byte
	keys, values [][]byte
}

func (b *batch) write(db *bbolt.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p) // what was just written cannot be read: the disk is at fault
		}
	}()
	return db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(b.bucket)
		if err != nil {
			return err
		}
		bucket.FillPercent = 0.9 // keys come in their order
		for i, k := range b.keys {
			if err := bucket.Put(k, b.values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// index1 is the former index, open for reading.
type index1 struct {
	file *os.File
	db   *bbolt.DB
	tx   *bbolt.Tx
}

func openIndex1(dir *os.Root) (ix *index1, err error) {
	ix = new(index1)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
		if err != nil {
			ix.close()
		}
	}()
	ix.db, err = bbolt.Open(indexName, 0o600, &bbolt.Options{
		ReadOnly: true, Timeout: time.Second,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			ix.file, err = dir.OpenFile(name, flag, mode)
			return ix.file, err
		},
	})
	if errors.Is(err, bbolterrors.ErrTimeout) || errors.Is(err, fs.ErrPermission) {
		return ix, fmt.Errorf("open index: %w", err)
	}
	if err != nil {
		return ix, fmt.Errorf("%w: %w", errDamaged, err)
	}
	ix.tx, err = ix.db.Begin(false)
	return ix, err
}

func (ix *index1) close() {
	if ix.tx != nil {
		_ = ix.tx.Rollback()
	}
	if ix.db != nil {
		_ = ix.db.Close()
	}
	if ix.file != nil {
		_ = ix.file.Close() // where bbolt broke off, it holds a lock
	}
}

// recovered makes errDamaged of what bbolt meets in a damaged file, or the disk does not give.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errDamaged, p)
	}
}

func (ix *index1) buckets() (names [][]byte, err error) {
	defer recovered(&err)
	err = ix.tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if b == nil {
			return fmt.Errorf("%w: %q is no bucket", errDamaged, name)
		}
		names = append(names, bytes.Clone(name))
		return nil
	})
	return names, err
}

// read returns the entries of a bucket after a key, and the last one's key; nil at the end.
func (ix *index1) read(name, after []byte) (b batch, last []byte, err error) {
	defer recovered(&err)
	b.bucket = name
	row := func(v []byte) ([]byte, error) { return bytes.Clone(v), nil }
	switch {
	case bytes.Equal(name, rows1):
		b.bucket, row = rows2, row2
	case bytes.Equal(name, segments):
		row = segment2
	case bytes.Equal(name, graves):
		row = grave2
	}
	c := ix.tx.Bucket(name).Cursor()
	k, v := c.First()
	if after != nil {
		c.Seek(after)
		k, v = c.Next()
	}
	for size := 0; k != nil; k, v = c.Next() {
		if bytes.Compare(k, after) <= 0 || v == nil {
			return b, nil, fmt.Errorf("%w: %x is out of its place", errDamaged, k)
		}
		value, err := row(v)
		if err != nil {
			return b, nil, fmt.Errorf("%w: %x: %w", errDamaged, k, err)
		}
		after = bytes.Clone(k)
		b.keys, b.values = append(b.keys, after), append(b.values, value)
		if size += len(k) + len(value) + 64; size >= batch2 {
			return b, after, nil
		}
	}
	return b, nil, nil
}

// segment2 makes the row of a segment longer by what version 2 counts: a generation and the bytes that were cleaned, none yet.
func segment2(v []byte) ([]byte, error) {
	const size1, more = 25, 12
	if len(v) != size1 {
		return nil, fmt.Errorf("the row of a segment has %d bytes", len(v))
	}
	return append(bytes.Clone(v), make([]byte, more)...), nil
}

// grave2 adds to the first segment that a deletion is needed for the last one. It is not known, so it is the last there can be: those after the deletion do not count.
func grave2(v []byte) ([]byte, error) {
	const size1 = 8
	if len(v) != size1 {
		return nil, fmt.Errorf("the row of a deletion has %d bytes", len(v))
	}
	return binary.BigEndian.AppendUint64(bytes.Clone(v), 1<<64-1), nil
}

// row2 makes a session's row of version 2 from one of version 1. They were, little-endian:
//
//	 0 state, 1 bits (1: pinned), 2 status, 4 flags
//	 8 seven words of 4 bytes
//	36 client port, 38 request bytes, 46 response bytes
//	54 started, 62 duration, 70 first byte
//	78 record's segment, 86 record's slot, 90 first segment
//	98 texts: each a tag (1: path), its length as a uvarint, its bytes
//
// and are:
//
//	 0 state, 1 bits (2: wide), 2 status, 4 flags (3)
//	 7 seven words of 3 bytes
//	28 client port, 30 request bytes (5), 35 response bytes (5)
//	40 started, 48 duration (6), 54 first byte (6)
//	60 record's segment (4), 64 record's slot (3), 67 first segment (4)
//	71 path: its length as a uvarint, its bytes
//	   texts, as before; tag 1 holds the numbers of a wide row
func row2(v []byte) ([]byte, error) {
	const size1, size2, textPath, textWide, wide = 98, 71, 1, 1, 2
	if len(v) < size1 {
		return nil, fmt.Errorf("a row has %d bytes", len(v))
	}
	var path []byte
	texts := make([]byte, 0, 128)
	for t := v[size1:]; len(t) > 0; {
		length, n := binary.Uvarint(t[1:])
		if n <= 0 || length > uint64(len(t)-1-n) {
			return nil, errors.New("a row's text is longer than the row")
		}
		end := 1 + n + int(length)
		if t[0] == textPath {
			path = t[1+n : end]
		} else {
			texts = append(texts, t[:end]...)
		}
		t = t[end:]
	}
	le := binary.LittleEndian
	request, response, duration, first := le.Uint64(v[38:]), le.Uint64(v[46:]), le.Uint64(v[62:]), le.Uint64(v[70:])
	segment, slot, firstSegment := le.Uint64(v[78:]), le.Uint32(v[86:]), le.Uint64(v[90:])

	// Numbers of odd widths are written whole, and the next field over what is too much.
	h := make([]byte, size2, size2+len(path)+len(texts)+64)
	copy(h, v[:4])
	if le.Uint32(v[4:])>>24 != 0 {
		return nil, errors.New("a row has flags that there are not")
	}
	le.PutUint32(h[4:], le.Uint32(v[4:]))
	for i := range 7 {
		word := le.Uint32(v[8+4*i:])
		if word>>24 != 0 {
			return nil, errors.New("a row names a word that there is not")
		}
		le.PutUint32(h[7+3*i:], word)
	}
	copy(h[28:], v[36:38])
	le.PutUint64(h[30:], request)
	le.PutUint64(h[35:], response)
	copy(h[40:], v[54:62])
	le.PutUint64(h[48:], duration)
	le.PutUint64(h[54:], first)
	le.PutUint32(h[60:], uint32(segment))
	le.PutUint32(h[64:], slot)
	le.PutUint32(h[67:], uint32(firstSegment))
	h[1] &^= wide
	h = binary.AppendUvarint(h, uint64(len(path)))
	h = append(h, path...)
	h = append(h, texts...)
	if request>>40|response>>40|duration>>48|first>>48|segment>>32|uint64(slot>>24)|firstSegment>>32 != 0 {
		h[1] |= wide
		h = append(h, textWide, 6*8+4)
		for _, n := range [6]uint64{request, response, duration, first, segment, firstSegment} {
			h = le.AppendUint64(h, n)
		}
		h = le.AppendUint32(h, slot)
	}
	return h, nil
}

// move moves a file to a name that is free.
func move(dir *os.Root, from, to string) error {
	switch _, err := dir.Lstat(to); {
	case err == nil:
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return dir.Rename(from, to)
}

// remove removes a file, where it is there, for good.
func remove(dir *os.Root, name string) error {
	err := dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(dir, ".")
}
