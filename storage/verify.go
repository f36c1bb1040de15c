package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
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
// It takes 4 bytes of memory for each record of the log and 40 for each chunk.
func Verify(dir string, full bool, report func(problem string)) (looked Verified, err error) {
	v, err := newVerifier(dir, full, lockToRead, report)
	if err != nil {
		return looked, fmt.Errorf("verify store: %w", err)
	}
	if err := migrations.Current(v.dir, lockName); err != nil {
		v.close()
		return looked, fmt.Errorf("verify store: %w", err)
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
	applied  position          // what the index says it has of the log
	known    map[uint64]uint32 // the generations of segments that it names; nil where it is not sound
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

// chunkCounts holds how often each chunk is named that the index counts: its keys, one after the other as bbolt has them, and what was found of each.
type chunkCounts struct {
	keys    []byte
	found   []chunkRow
	unknown map[string]bool // named, and not in the index
}

func (c *chunkCounts) key(i int) []byte { return c.keys[i*sha256.Size:][:sha256.Size] }

// find returns where the chunk is; -1 where the index does not count it.
func (c *chunkCounts) find(sum []byte) int {
	low, high := 0, len(c.found)
	for low < high {
		middle := (low + high) / 2
		switch bytes.Compare(c.key(middle), sum) {
		case 0:
			return middle
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	return -1
}

// newVerifier takes hold of the directory with lock.
func newVerifier(dir string, full bool, lock func(dir string) (*dirLock, error), report func(string)) (v *verifier, err error) {
	v = &verifier{full: full, report: report}
	if v.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(v.dir); err != nil {
		return nil, err
	}
	if err := migrations.Check(v.dir, lockName); err != nil {
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
	err := readIndex(path, func(ix *index, tx *bbolt.Tx) error {
		v.applied = ix.state.Applied
		readGenerations(tx, known)
		return ix.checkIn(tx)
	})
	if v.known = known; err != nil {
		v.known = nil
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
		return nil
	case gone && v.problems.lossy:
		v.problem("index: it is gone, and the log has lost records, which it alone would tell of")
		return nil
	case gone: // the next start makes it from the log
		return nil
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
	if _, err := os.Stat(path); err != nil {
		return err
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

// rows checks each row and the record it names.
func (v *verifier) rows(tx *bbolt.Tx, ix *index) error {
	words := ix.dict.snapshot()
	return tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
		v.looked.Sessions++
		var row Row
		id := idOf(k)
		if err := decodeRow(&row, id, b, words); err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		at, state, err := rowPlaceOf(b)
		if err != nil {
			v.problem("session %d: %v", id, err)
			return nil
		}
		if ix.open[id] != nil || state == Open {
			if ix.open[id] == nil {
				v.problem("session %d: open, and nothing is known of it", id)
			}
			return nil
		}
		v.name(at.record)
		v.session(tx, row, at)
		return nil
	})
}

func (v *verifier) session(tx *bbolt.Tx, row Row, at rowPlace) {
	id := row.ID
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
	} else if !sameRow(row, rowOf(session, session.Timing.Started)) {
		v.problem("session %d: its row differs from its record", id)
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
		v.body(tx, id, side, body)
	}
}

func (v *verifier) body(tx *bbolt.Tx, id uint64, side Side, body *Body) {
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
		return
	}
	for _, r := range runs {
		switch {
		case r.chunk != nil:
			if err := v.problems.chunks[string(r.chunk)]; err != nil {
				v.tell("session %d: %s from byte %d: chunk %x: %v", id, side.stream(), r.start, r.chunk, err)
				return
			}
		case uint64(r.at.length) != r.length:
			v.problem("session %d: %s: record %d of segment %d has %d bytes of it, want %d",
				id, side.stream(), r.at.Slot, r.at.Segment, r.at.length, r.length)
			return
		}
	}
	if !v.full {
		return
	}
	if err := v.store.checkRuns(runs); err != nil {
		v.problem("session %d: %s: %v", id, side.stream(), err)
		return
	}
	if !body.Complete || body.SHA256 == nil || len(runs) == 1 && bytes.Equal(runs[0].chunk, body.SHA256) {
		return
	}
	got, err := hashBody(&BodyReader{&storedBody{v.store, runs, *body}}, func() error { return nil })
	if err == nil && !bytes.Equal(got, body.SHA256) {
		err = fmt.Errorf("its bytes have the SHA-256 %x, its record says %x", got, body.SHA256)
	}
	if err != nil {
		v.problems.sums[bodyID{id, side}] = true
		v.tell("session %d: %s: %v", id, side.stream(), err)
	}
}

// sameRow reports whether a row is the one that is made of the session's record.
func sameRow(got, want Row) bool {
	got.Durable, want.Durable = false, false
	want.Status = int(uint16(want.Status)) // as it is stored
	same := got.Started.Equal(want.Started) || want.Started.UnixNano() == 0
	got.Started, want.Started = time.Time{}, time.Time{}
	for _, r := range []*Row{&got, &want} {
		r.Flags = slices.Sorted(slices.Values(r.Flags))
		r.Flags = slices.Compact(r.Flags)
	}
	return same && reflect.DeepEqual(got, want)
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

// chunkRows compares the chunks that the index counts to what names them.
func (v *verifier) chunkRows(tx *bbolt.Tx) error {
	i := 0
	return tx.Bucket(bucketChunks).ForEach(func(k, b []byte) error {
		var row chunkRow
		row.decode(b)
		if found := v.chunks.found[i]; found != row {
			v.problem("chunk %x: %d bytes named %d times, counted as %d bytes, %d times", k, found.length, found.refs, row.length, row.refs)
		}
		i++
		return nil
	})
}

// chunkFiles looks at the file of each chunk that the index counts and, after a clean end, for files that nothing names: what a crash left over, the next
// start removes.
func (v *verifier) chunkFiles(tx *bbolt.Tx, clean bool) error {
	err := tx.Bucket(bucketChunks).ForEach(func(k, b []byte) error {
		var row chunkRow
		row.decode(b)
		if err := v.chunk(k, row); err != nil {
			v.problems.chunks[string(k)] = err
			v.tell("chunk %x: %v", k, err)
		}
		return nil
	})
	if err != nil || !clean {
		return err
	}
	return v.orphans(tx, func(name string) error {
		v.tell("%s: nothing names it", name)
		return nil
	})
}

// orphans calls fn with the names of the files that nothing names.
func (v *verifier) orphans(tx *bbolt.Tx, fn func(name string) error) error {
	var state indexState
	if b := tx.Bucket(bucketMeta).Get(keyState); b != nil {
		if err := decoder.Unmarshal(b, &state); err != nil {
			return err
		}
	}
	for _, dir := range []string{"chunks", "incoming", "log"} {
		err := fs.WalkDir(dirFS{v.files}, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			switch dir {
			case "chunks":
				if sum, err := hex.DecodeString(d.Name()); err == nil && tx.Bucket(bucketChunks).Get(sum) != nil && name == chunkName(sum) {
					return nil
				}
			case "log":
				number, generation, ok := parseSegment(d.Name())
				var row segmentRow
				stored := tx.Bucket(bucketSegments).Get(idKey(number))
				row.decode(stored)
				if ok && (stored == nil && number >= state.Applied.Segment || stored != nil && row.generation == generation) && name == generationName(number, generation) {
					return nil
				}
			}
			return fn(name)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// chunk returns what is wrong with a chunk's file.
func (v *verifier) chunk(sum []byte, row chunkRow) error {
	f, err := v.files.OpenFile(chunkName(sum), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	v.looked.Chunks++
	v.looked.Bytes += uint64(row.length)
	size, err := f.Size()
	if err != nil {
		return err
	}
	wrong := size != int64(row.length)
	if v.full {
		got, err := hashFile(f)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, sum) {
			return fmt.Errorf("%d bytes long, want %d; its content's hash is %x", size, row.length, got)
		}
		if wrong {
			v.problem("chunk %x: it has %d bytes, counted as %d", sum, size, row.length) // it is as it was named
		}
		return nil
	}
	if wrong {
		return fmt.Errorf("%d bytes long, want %d", size, row.length)
	}
	return nil
}

// hashFile returns the SHA-256 of a file's content.
func hashFile(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// dirFS lets fs.WalkDir walk a Files.
type dirFS struct{ files Files }

func (d dirFS) Open(string) (fs.File, error)               { return nil, fs.ErrInvalid }
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) { return d.files.ReadDir(name) }
func (d dirFS) Stat(name string) (fs.FileInfo, error)      { return d.files.Stat(name) }
