package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"millpond/migrations"
)

// Verified counts what Verify looked at.
type Verified struct {
	Sessions, Segments, Chunks uint64
	Bytes                      uint64 // of segments and chunks
}

// Verify looks whether the store in dir, which no process may have open, holds together: the log's structure, the index and its
// counts, and that everything it names is there with its length. full also reads every byte: the checksum of each record
// and the hash of each chunk. It changes nothing. Each thing that is wrong is reported in words for people; the error says
// why it could not go on, and what was looked at by then.
func Verify(dir string, full bool, report func(problem string)) (looked Verified, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	if _, err := os.Stat(dir); err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	if err := migrations.Current(dir, lockName); err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	files, err := OpenDir(dir)
	if err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	defer files.Close()
	lock, err := lockDir(dir)
	if err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	defer lock.release()
	v := &verifier{files: files, full: full, report: report, refs: make(map[slotID]uint32), chunks: make(map[string]chunkRow)}
	v.store = &Store{files: files, handles: newHandles(files), log: &log{files: files}}
	defer v.store.handles.close()
	v.generations = indexGenerations(filepath.Join(dir, "index.db"))
	if err := v.log(); err != nil {
		return v.looked, fmt.Errorf("verify log: %w", err)
	}
	if err := v.openIndex(filepath.Join(dir, "index.db")); err != nil {
		return v.looked, fmt.Errorf("verify index: %w", err)
	}
	return v.looked, nil
}

type verifier struct {
	files  Files
	store  *Store // to read records with
	full   bool
	report func(string)

	looked      Verified
	generations map[uint64]uint32 // of each segment, as the index knows it

	ends   map[uint64]uint64   // how far each segment's records are whole
	refs   map[slotID]uint32   // what names each slot
	chunks map[string]chunkRow // what names each chunk
}

func (v *verifier) problem(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

// log walks the records of all segments.
func (v *verifier) log() error {
	v.ends = make(map[uint64]uint64)
	spans, err := segmentSpans(v.files, v.generations)
	if err != nil {
		return err
	}
	for _, span := range spans {
		end, err := v.segment(span)
		if err != nil {
			return err
		}
		v.ends[span.number] = end
		v.looked.Segments++
		v.looked.Bytes += span.end
	}
	return nil
}

func (v *verifier) segment(span segmentSpan) (end uint64, err error) {
	f, err := v.files.OpenFile(span.file(), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if span.damage != nil {
		v.problem("log segment %d: %v", span.number, span.damage)
	}
	r := segmentReader{segment: span.number, generation: span.generation, r: f, end: span.end}
	for {
		if v.full {
			_, err = r.next()
		} else {
			err = r.skip()
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			return r.offset, nil
		case err != errTorn:
			v.problem("log segment %d, byte %d: %v", span.number, r.offset, err)
		}
		bad := r.offset
		if !r.resync() {
			if !span.last { // else it is a torn tail, which the next start cuts
				v.problem("log segment %d: damaged from byte %d to its end, %d", span.number, bad, span.end)
			}
			return bad, nil
		}
		v.problem("log segment %d: damaged from byte %d to byte %d", span.number, bad, r.offset)
	}
}

// indexGenerations returns the generations of segments that an index knows which nobody has open, as far as it can be read.
func indexGenerations(path string) map[uint64]uint32 {
	known := make(map[uint64]uint32)
	_ = func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer recoverDamage(&err)
		if _, err := os.Stat(path); err != nil {
			return err
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			if tx.Bucket(bucketSegments) != nil {
				readGenerations(tx, known)
			}
			return nil
		})
	}()
	return known
}

// openIndex checks the index, where there is one: the next start makes a missing one from the log.
func (v *verifier) openIndex(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverDamage(&err)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		v.problem("index: %v", err)
		return nil
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		sound := true
		for err := range tx.Check() {
			v.problem("index: %v", err)
			sound = false
		}
		if !sound {
			return nil // the next start makes it anew
		}
		return v.index(tx)
	})
}

func (v *verifier) index(tx *bbolt.Tx) error {
	for _, name := range bucketsOfLog {
		if tx.Bucket(name) == nil {
			v.problem("index: no bucket %s", name)
			return nil
		}
	}
	var state indexState
	if b := tx.Bucket(bucketMeta).Get(keyState); b != nil {
		if err := decoder.Unmarshal(b, &state); err != nil {
			return err
		}
	}
	if end, ok := v.ends[state.Applied.Segment]; state.Applied.Segment != 0 && (!ok || end < state.Applied.Offset) {
		v.problem("log segment %d: ends at byte %d, the index knows %d", state.Applied.Segment, end, state.Applied.Offset)
	}
	open, err := loadOpen(tx.Bucket(bucketOpen))
	if err != nil {
		v.problem("index: %v", err)
	}
	v.countOpen(open)
	if err := v.rows(tx, state.Rows, open); err != nil {
		return err
	}
	if err := tx.Bucket(bucketGraves).ForEach(func(k, _ []byte) error {
		v.refs[slotOfGrave(k)]++
		return nil
	}); err != nil {
		return err
	}
	if err := v.segmentRows(tx); err != nil {
		return err
	}
	return v.chunkRows(tx, state.Clean)
}

func (v *verifier) countOpen(open map[uint64]*openSession) {
	for _, o := range open {
		v.refs[o.begun]++
		v.refs[o.doomed]++
		for _, b := range o.bodies {
			for _, e := range b.extents {
				v.refs[e.Record]++
				v.extent(e.Extent)
			}
			for _, m := range b.marks {
				v.refs[m.Record]++
			}
		}
	}
}

func (v *verifier) extent(e Extent) {
	if len(e.Chunk) == 0 {
		v.refs[slotID{e.Segment, e.Slot}]++
		return
	}
	row := v.chunks[string(e.Chunk)]
	v.chunks[string(e.Chunk)] = chunkRow{uint32(e.Length), row.refs + 1}
}

// rows checks each row and the record it names.
func (v *verifier) rows(tx *bbolt.Tx, want uint64, open map[uint64]*openSession) error {
	count := uint64(0)
	words := new(dictionary)
	if err := words.load(tx.Bucket(bucketWords)); err != nil {
		return err
	}
	err := tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
		count++
		v.looked.Sessions++
		var row Row
		id := idOf(k)
		if err := decodeRow(&row, id, b, words.snapshot()); err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		at, state, err := rowPlaceOf(b)
		if err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		if open[id] != nil || state == Open {
			if open[id] == nil {
				v.problem("session %d: open, and nothing is known of it", id)
			}
			return nil
		}
		v.refs[at.record]++
		v.session(tx, id, at)
		return nil
	})
	if count != want {
		v.problem("index: %d rows, counted as %d", count, want)
	}
	return err
}

func (v *verifier) session(tx *bbolt.Tx, id uint64, at rowPlace) {
	p, err := findSlot(tx, at.record)
	if err != nil {
		v.problem("session %d: %v", id, err)
		return
	}
	session, err := v.store.readSession(p)
	if err != nil {
		v.problem("session %d: %v", id, err)
		return
	}
	if session.ID != id {
		v.problem("session %d: its record is that of session %d", id, session.ID)
	}
	if e := session.Certificates; e != nil {
		v.extent(*e)
		if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil {
			v.problem("session %d: certificates: %v", id, err)
		} else if uint64(at.length) != e.Length {
			v.problem("session %d: certificates: record %d of segment %d has %d bytes of them, want %d", id, e.Slot, e.Segment, at.length, e.Length)
		}
	}
	for side, body := range session.streams() {
		sum := uint64(0)
		for _, e := range body.Extents {
			sum += e.Length
			v.extent(e)
		}
		if sum != body.Size {
			v.problem("session %d: %s of %d bytes, its extents have %d", id, side.stream(), body.Size, sum)
		}
		runs, err := storedRuns(tx, body.Extents)
		if err != nil {
			v.problem("session %d: %s: %v", id, side.stream(), err)
			continue
		}
		for _, r := range runs {
			if r.chunk == nil && uint64(r.at.length) != r.length {
				v.problem("session %d: %s: record %d of segment %d has %d bytes of it, want %d",
					id, side.stream(), r.at.Slot, r.at.Segment, r.at.length, r.length)
			}
		}
	}
}

// segmentRows compares what the index counts of each segment to what names it.
func (v *verifier) segmentRows(tx *bbolt.Tx) error {
	return tx.Bucket(bucketSegments).ForEach(func(k, b []byte) error {
		number := idOf(k)
		var row segmentRow
		row.decode(b)
		if end, ok := v.ends[number]; !ok {
			v.problem("log segment %d: it is gone", number)
		} else if end < row.size {
			v.problem("log segment %d: ends at byte %d, the index knows %d", number, end, row.size)
		}
		live, slots := countSlots(tx, number, func(n uint32, s slot) {
			if want := v.refs[slotID{number, n}]; s.refs != want {
				v.problem("log segment %d, record %d: named %d times, counted as %d", number, n, want, s.refs)
			}
		})
		if slots != row.slots || live != row.live {
			v.problem("log segment %d: %d bytes in %d records are named, counted as %d in %d", number, live, slots, row.live, row.slots)
		}
		return nil
	})
}

// chunkRows compares the chunks the index counts to what names them, and to the files.
func (v *verifier) chunkRows(tx *bbolt.Tx, clean bool) error {
	known := make(map[string]bool)
	err := tx.Bucket(bucketChunks).ForEach(func(k, b []byte) error {
		var row chunkRow
		row.decode(b)
		known[string(k)] = true
		if want := v.chunks[string(k)]; want != row {
			v.problem("chunk %x: %d bytes named %d times, counted as %d bytes, %d times", k, want.length, want.refs, row.length, row.refs)
		}
		v.chunk(k, row)
		return nil
	})
	for sum := range v.chunks {
		if !known[sum] {
			v.problem("chunk %x: named, and not counted", sum)
		}
	}
	if err != nil || !clean { // what a crash left over, the next start removes
		return err
	}
	return fs.WalkDir(dirFS{v.files}, "chunks", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if sum, err := hex.DecodeString(d.Name()); err != nil || !known[string(sum)] {
			v.problem("%s: nothing names it", name)
		}
		return nil
	})
}

func (v *verifier) chunk(sum []byte, row chunkRow) {
	f, err := v.files.OpenFile(chunkName(sum), os.O_RDONLY)
	if err != nil {
		v.problem("chunk %x: %v", sum, err)
		return
	}
	defer f.Close()
	v.looked.Chunks++
	v.looked.Bytes += uint64(row.length)
	if size, err := f.Size(); err != nil || size != int64(row.length) {
		v.problem("chunk %x: %d bytes long, want %d (%v)", sum, size, row.length, err)
		return
	}
	if !v.full {
		return
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, int64(row.length))); err != nil {
		v.problem("chunk %x: %v", sum, err)
	} else if got := h.Sum(nil); string(got) != string(sum) {
		v.problem("chunk %x: its content's hash is %x", sum, got)
	}
}

// dirFS lets fs.WalkDir walk a Files.
type dirFS struct{ files Files }

func (d dirFS) Open(string) (fs.File, error)               { return nil, fs.ErrInvalid }
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) { return d.files.ReadDir(name) }
func (d dirFS) Stat(name string) (fs.FileInfo, error)      { return d.files.Stat(name) }
