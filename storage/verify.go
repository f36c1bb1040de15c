package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"millpond/migrations"
)

// Verified counts what Verify looked at.
type Verified struct {
	Sessions, Segments, Chunks uint64
	Bytes                      uint64 // of segments and chunks
}

// Verify looks whether the store in dir, which no process may have open, holds together: the log's structure, the index, its
// rows and its counts, and that everything it names is there with its length. full also reads every byte: the checksum of each record,
// the hash of each chunk, and that of each complete body that has one. It changes nothing. Each thing that is wrong is reported in words
// for people; the error says why it could not go on, and what was looked at by then.
//
// It takes 4 bytes of memory for each record of the log and 40 for each chunk; without a sound index, full takes some 100 for each chunk that a session names.
func Verify(dir string, full bool, report func(problem string)) (looked Verified, err error) {
	v, err := newVerifier(dir, full, lockToRead, report)
	if err != nil {
		return looked, fmt.Errorf("verify %s: %w", dir, err)
	}
	if err := migrations.Current(v.dir, lockName); err != nil {
		v.close()
		return looked, fmt.Errorf("verify %s: %w", dir, err)
	}
	defer v.close()
	err = v.verify()
	return v.looked, err
}

type verifier struct {
	dir    string
	files  Files
	lock   *dirLock
	store  *Store // to read records with
	full   bool
	report func(string)

	looked   Verified
	applied  position            // what the index says it has of the log
	known    map[uint64]uint32   // the generations of segments that it names; nil where it is not sound
	stale    bool                // it is sound, and the log is not the one that it was made from: what it alone knows may have been deleted
	named    map[uint64][]string // by session, the chunks that the log has it name; nil where the index tells
	spans    []segmentSpan
	ends     map[uint64]uint64   // how far each segment's records are whole
	refs     map[uint64][]uint32 // by segment and slot, how often it is named
	chunks   chunkCounts
	problems findings
}

// findings is what Repair goes by.
type findings struct {
	count     int
	log       []damagedRun     // in order; where every record was read
	lossy     bool             // the log lost records, now or before a repair
	index     bool             // it is to be made again
	chunks    map[string]error // by SHA-256: what is wrong with the file
	sums      map[bodyID]bool  // bodies whose bytes do not have their SHA-256
	deletions []deletion       // that the log has beyond what the index says it has
}

type bodyID struct {
	session uint64
	side    Side
}

// damagedRun is a run of a segment that holds no whole record.
type damagedRun struct{ segment, from, to uint64 }

// newVerifier takes hold of the directory with lock.
func newVerifier(dir string, full bool, lock func(dir string) (*dirLock, error), report func(string)) (v *verifier, err error) {
	v = &verifier{full: full, report: report}
	if v.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := migrations.Current(v.dir, lockName); err != nil && !errors.Is(err, migrations.ErrOlder) { // before a lock is left in what is no data directory
		return nil, err
	}
	if v.files, err = OpenDir(v.dir); err != nil {
		return nil, err
	}
	if v.lock, err = lock(v.dir); err != nil {
		v.files.Close()
		return nil, err
	}
	v.begin()
	return v, nil
}

// begin forgets what was found.
func (v *verifier) begin() {
	if v.store != nil {
		v.store.handles.close()
	}
	v.store = &Store{files: v.files, handles: newHandles(v.files), log: &log{files: v.files}}
	v.looked = Verified{}
	v.ends, v.refs = make(map[uint64]uint64), make(map[uint64][]uint32)
	v.chunks = chunkCounts{unknown: make(map[string]bool)}
	v.problems = findings{chunks: make(map[string]error), sums: make(map[bodyID]bool)}
}

func (v *verifier) close() {
	v.store.handles.close()
	v.lock.release()
	v.files.Close()
}

func (v *verifier) verify() error {
	path := filepath.Join(v.dir, presentIndex(v.files))
	known := make(map[uint64]uint32)
	clean := false
	err := readIndex(path, func(ix *index, tx *bbolt.Tx) error {
		v.applied, clean = ix.state.Applied, ix.state.Clean
		readGenerations(tx, known)
		return ix.checkIn(tx)
	})
	v.known, v.stale, v.named = known, false, nil
	if err == nil {
		if err = v.misfit(clean); err != nil {
			v.stale, v.applied = true, position{}
		}
	}
	if err != nil {
		v.known, v.named = nil, make(map[uint64][]string)
	}
	gone, failed := v.goneDirs()
	if failed != nil {
		return failed
	}
	for _, dir := range gone {
		v.tell("%s: the directory is gone", dir)
	}
	if slices.Contains(gone, "log") {
		v.problems.lossy, v.spans = true, nil
	} else if err := v.log(); err != nil {
		return fmt.Errorf("verify log: %w", err)
	}
	switch gone := errors.Is(err, fs.ErrNotExist); {
	case v.known == nil && !gone:
		v.problem("index: %v", err)
		return v.looseChunks()
	case gone && v.problems.lossy:
		v.problem("index: it is gone, and the log has lost records, which it alone would tell of")
		return v.looseChunks()
	case gone && len(v.spans) > 0:
		v.problem("index: it is gone; the next start makes it again from the log, without the shares")
		return v.looseChunks()
	case gone: // nothing was captured yet
		return v.looseChunks()
	}
	if err := readIndex(path, v.index); err != nil {
		return fmt.Errorf("verify index: %w", err)
	}
	return nil
}

// goneDirs returns the directories that are to be there and are not.
func (v *verifier) goneDirs() (gone []string, err error) {
	for _, dir := range []string{"log", "chunks", "incoming"} {
		if _, err := v.files.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, dir)
		} else if err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// problem reports what a new index mends.
func (v *verifier) problem(format string, args ...any) {
	v.problems.index = true
	v.tell(format, args...)
}

func (v *verifier) tell(format string, args ...any) {
	v.problems.count++
	v.report(fmt.Sprintf(format, args...))
}

// log walks the records of all segments.
func (v *verifier) log() (err error) {
	if v.spans, err = segmentSpans(v.files, v.known); err != nil {
		return err
	}
	for _, span := range v.spans {
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
		v.problems.lossy = true
	}
	damaged := func(from, to uint64) {
		v.problems.log = append(v.problems.log, damagedRun{span.number, from, to})
		v.problems.lossy = true
	}
	r := segmentReader{segment: span.number, generation: span.generation, r: f, end: span.end}
	for {
		var rec *record
		if v.full {
			rec, err = r.next()
		} else {
			err = r.skip()
		}
		switch {
		case err == nil:
			if rec != nil && v.named != nil {
				v.nameChunks(rec)
			}
			if rec != nil && rec.kind == recordDeleted && v.applied.before(rec.at.end()) {
				v.problems.deletions = append(v.problems.deletions, rec.gone)
			}
			v.problems.lossy = v.problems.lossy || rec != nil && rec.kind == recordHole
			continue
		case errors.Is(err, io.EOF):
			return r.offset, nil
		case !errors.Is(err, errTorn):
			v.problem("log segment %d, byte %d: %v", span.number, r.offset, err)
		}
		bad := r.offset
		if !r.resync() {
			if !span.last { // else it is a torn tail, which the next start cuts
				v.problem("log segment %d: damaged from byte %d to its end, %d", span.number, bad, span.end)
				damaged(bad, span.end)
			}
			return bad, nil
		}
		v.problem("log segment %d: damaged from byte %d to byte %d", span.number, bad, r.offset)
		damaged(bad, r.offset)
	}
}

// readIndex runs fn with the index in path, opened for reading, and what is in memory of it. Damage is an error, and fn has not run where that shows
// in what is read into memory.
func readIndex(path string, fn func(*index, *bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverDamage(&err)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errors.New("it is empty") // bbolt would begin to write to it
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, FreelistType: bbolt.FreelistMapType, Timeout: time.Second})
	if err != nil {
		return err
	}
	ix := &index{path: path, db: db}
	defer ix.drop()
	if err := ix.load(); err != nil {
		return err
	}
	return ix.view(func(tx *bbolt.Tx) error { return fn(ix, tx) })
}

func (v *verifier) index(ix *index, tx *bbolt.Tx) error {
	state := ix.state
	if end, ok := v.ends[state.Applied.Segment]; state.Applied.Segment != 0 && (!ok || end < state.Applied.Offset) {
		v.problem("log segment %d: ends at byte %d, the index knows %d", state.Applied.Segment, end, state.Applied.Offset)
	}
	if err := tx.Bucket(bucketChunks).ForEach(func(k, _ []byte) error {
		v.chunks.keys = append(v.chunks.keys, k...)
		v.chunks.found = append(v.chunks.found, chunkRow{})
		return nil
	}); err != nil {
		return err
	}
	slots := make(map[uint64]int)
	if err := tx.Bucket(bucketSlots).ForEach(func(k, b []byte) error {
		slots[idOf(k)] = int(pageOf(k)*slotsPerPage) + len(b)/slotSize
		return nil
	}); err != nil {
		return err
	}
	for segment, n := range slots {
		v.refs[segment] = make([]uint32, n)
	}
	if err := v.chunkFiles(tx, state.Clean); err != nil {
		return err
	}
	v.countOpen(ix.open)
	if err := v.rows(tx, ix); err != nil {
		return err
	}
	if err := tx.Bucket(bucketGraves).ForEach(func(k, _ []byte) error {
		v.name(slotOfGrave(k))
		return nil
	}); err != nil {
		return err
	}
	if err := v.segmentRows(tx); err != nil {
		return err
	}
	return v.chunkRows(tx)
}

func (v *verifier) countOpen(open map[uint64]*openSession) {
	for _, o := range open {
		v.name(o.begun)
		v.name(o.doomed)
		for _, b := range o.bodies {
			for _, e := range b.extents {
				v.name(e.Record)
				v.extent(e.Extent)
			}
			for _, m := range b.marks {
				v.name(m.Record)
			}
		}
	}
}

// name counts a name for a slot. What names one that is not there is found where it is looked up.
func (v *verifier) name(id slotID) {
	if refs := v.refs[id.Segment]; int(id.Slot) < len(refs) {
		refs[id.Slot]++
	}
}

func (v *verifier) extent(e Extent) {
	if len(e.Chunk) == 0 {
		v.name(slotID{e.Segment, e.Slot})
		return
	}
	i := v.chunks.find(e.Chunk)
	if i < 0 {
		if !v.chunks.unknown[string(e.Chunk)] {
			v.chunks.unknown[string(e.Chunk)] = true
			v.problem("chunk %x: named, and not counted", e.Chunk)
		}
		return
	}
	v.chunks.found[i] = chunkRow{uint32(e.Length), v.chunks.found[i].refs + 1}
}

// segmentRows compares what the index counts of each segment to what names it, and, where every byte is read, where it says that records are to where they are.
func (v *verifier) segmentRows(tx *bbolt.Tx) error {
	return tx.Bucket(bucketSegments).ForEach(func(k, b []byte) error {
		number := idOf(k)
		var row segmentRow
		row.decode(b)
		end, ok := v.ends[number]
		if !ok {
			v.problem("log segment %d: it is gone", number)
		} else if end < row.size {
			v.problem("log segment %d: ends at byte %d, the index knows %d", number, end, row.size)
		}
		refs := v.refs[number]
		live, slots := countSlots(tx, number, func(n uint32, s slot) {
			want := uint32(0)
			if int(n) < len(refs) {
				want = refs[n]
			}
			if ok && s.refs != want {
				v.problem("log segment %d, record %d: named %d times, counted as %d", number, n, want, s.refs)
			}
			if ok && v.full && s.refs > 0 {
				v.frame(place{slotID{number, n}, uint64(s.offset), s.length, row.generation})
			}
		})
		if slots != row.slots || live != row.live {
			v.problem("log segment %d: %d bytes in %d records are named, counted as %d in %d", number, live, slots, row.live, row.slots)
		}
		return nil
	})
}

// frame checks that a record begins where the index says.
func (v *verifier) frame(at place) {
	var head [frameSize]byte
	err := error(errTorn)
	if at.offset >= frameSize {
		_, err = v.store.readFile(generationName(at.Segment, at.generation), head[:], at.offset-frameSize)
	}
	if f, ok := parseFrame(head[:], at.Segment); err != nil || !ok || f.slot != at.Slot || f.length != at.length {
		v.problem("log segment %d: record %d is not where the index says", at.Segment, at.Slot)
	}
}
