package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"millpond/migrations"
)

// damagedDir holds what Repair took out of the way. Nothing reads it: it may be removed.
const damagedDir = "damaged"

// repairedIndex is the index that Repair makes, until it takes the place of the damaged one. A repair that was broken off leaves it, and the next begins it anew.
const repairedIndex = indexName + ".repaired"

// damagedRecord is why a body of a session whose record is gone is missing.
const damagedRecord = "the record was damaged on disk"

// repairBatch is how many records one commit of a repair takes.
const repairBatch = 1000

// Repaired counts what Repair did.
type Repaired struct {
	Verified
	Wrong int // things that were wrong
	Lost  int // sessions that lost something
	Left  int // things that are still wrong

	MayMiss bool // the log lost records, and no sound index told which: deletions, pins and notes may be lost, and nothing marks where
}

// Repair verifies the store in dir as Verify does, with every byte, and mends what is wrong. An index is made again from the log; what of the log is damaged is
// copied aside and becomes a hole; a damaged chunk is moved aside; a session that lost something gets a new record that says so. Nothing but what is whole and
// that nothing names is removed. It can be broken off at any moment and run again. Each thing that is wrong, is done or is lost is reported in a line for people.
func Repair(dir string, report func(line string)) (done Repaired, err error) {
	v, err := newVerifier(dir, true, lockDir, report)
	if err != nil {
		return done, fmt.Errorf("repair store: %w", err)
	}
	defer v.close()
	return v.repair()
}

func (v *verifier) repair() (done Repaired, err error) {
	if err := settleIndex(v.files); err != nil {
		return done, fmt.Errorf("repair store: %w", err)
	}
	if err := migrations.Migrate(v.dir, slog.New(reportHandler(v.report)), lockName); err != nil {
		return done, fmt.Errorf("repair store: %w", err)
	}
	err = v.verify()
	done.Verified, done.Wrong = v.looked, v.problems.count
	if err != nil || done.Wrong == 0 {
		return done, err
	}
	r := &repair{verifier: v, lost: make(map[uint64]bool)}
	err = r.run()
	done.Lost, done.MayMiss = len(r.lost), r.mayMiss
	if err != nil {
		return done, fmt.Errorf("repair store: %w", err)
	}
	v.begin()
	v.full = false
	err = v.verify()
	done.Left = v.problems.count
	return done, err
}

type repair struct {
	*verifier
	old    string          // the index that is replaced; empty where it is kept
	rows   map[uint64]Row  // what it tells of sessions whose newest record is lost
	lost   map[uint64]bool // sessions
	queued int             // records since the last commit

	mayMiss bool // nothing knows what the records told that the log lost
}

func (r *repair) say(format string, args ...any) { r.report(fmt.Sprintf(format, args...)) }

func (r *repair) run() error {
	gone, err := r.goneDirs()
	if err != nil {
		return err
	}
	for _, dir := range gone {
		if err := r.files.Mkdir(dir); err != nil {
			return err
		}
		r.say("%s: the directory is made again", dir)
	}
	if err := r.files.SyncDir("."); err != nil {
		return err
	}
	if err := r.dropStale(); err != nil {
		return err
	}
	if err := r.mendLog(); err != nil {
		return err
	}
	for _, sum := range slices.Sorted(maps.Keys(r.problems.chunks)) {
		if err := r.mendChunk([]byte(sum)); err != nil {
			return err
		}
	}
	if err := r.open(); err != nil {
		return err
	}
	defer func() {
		r.store.log.close()
		r.store.handles.close()
		r.store.index.close()
	}()
	leftover, err := r.store.catchUp()
	if err != nil {
		return err
	}
	if err := r.readOld(); err != nil {
		return err
	}
	if err := r.store.recoverOpen(leftover); err != nil {
		return err
	}
	if err := r.sessions(); err != nil {
		return err
	}
	if err := r.sweep(); err != nil {
		return err
	}
	return r.replaceIndex()
}

// open makes the store that the records of the repair go through. Where the index is to be made again, that is an empty one beside it.
func (r *repair) open() (err error) {
	s := &Store{
		dir: r.dir, files: r.files, handles: newHandles(r.files), logger: slog.New(reportHandler(r.report)),
		recent: newRecent(), live: live{byID: make(map[uint64]*Recording)},
	}
	s.log = s.newLog()
	r.store = s
	name := indexName
	if r.problems.index {
		name = repairedIndex
		if _, err := r.files.Stat(indexName); err == nil {
			r.old = filepath.Join(r.dir, indexName)
		}
		if err := r.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if s.index, err = openIndexAt(r.dir, name); err != nil {
		return err
	}
	return s.index.setClean(false)
}

// reportHandler reports what is logged, without time and level.
func reportHandler(report func(string)) slog.Handler {
	return slog.NewTextHandler(lines(report), &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
}

// lines reports what is logged, a line each.
type lines func(string)

func (report lines) Write(p []byte) (int, error) {
	report(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// dropStale moves segments aside that a sound index has let go of: in an index that is made again they would bring deleted sessions back.
func (r *repair) dropStale() error {
	var names []string
	if r.known == nil {
		return nil
	}
	err := readIndex(filepath.Join(r.dir, indexName), func(ix *index, tx *bbolt.Tx) error {
		return r.orphans(tx, func(name string) error {
			if strings.HasPrefix(name, "log/") {
				names = append(names, name)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return r.clear(names)
}

// mendLog puts a hole over each damaged run of the log: a record that nothing reads. Offsets and numbers of the others stay.
func (r *repair) mendLog() error {
	runs := slices.Clone(r.problems.log)
	for i, span := range r.spans { // one that is too short becomes as long again as it was
		size := r.sizeOf(i)
		if size <= span.end {
			continue
		}
		run := damagedRun{span.number, r.ends[span.number], size}
		runs = slices.DeleteFunc(runs, func(x damagedRun) bool { return x.segment == run.segment && x.from >= run.from })
		runs = append(runs, run)
	}
	if n := len(r.spans); n > 0 { // what the index had of the newest one is no torn tail
		span := r.spans[n-1]
		if end := r.ends[span.number]; r.applied.Segment == span.number && end < r.applied.Offset && end+frameSize <= span.size {
			runs = append(runs, damagedRun{span.number, end, span.size})
		}
	}
	for _, run := range runs {
		if err := r.dig(run); err != nil {
			return fmt.Errorf("mend log segment %d: %w", run.segment, err)
		}
	}
	return nil
}

// sizeOf returns how long a segment's file is to be: a rewritten one says it itself, of another the next one does. It is 0 where nothing tells.
func (r *repair) sizeOf(i int) uint64 {
	span := r.spans[i]
	if span.generation > 0 {
		head, _, err := readSegmentHead(r.files, span)
		if err != nil {
			return 0
		}
		return head.Size
	}
	if i+1 == len(r.spans) {
		return 0
	}
	head, _, err := readSegmentHead(r.files, r.spans[i+1])
	if err != nil || head.Prev != span.number || head.PrevEnd == unknownEnd {
		return 0
	}
	return head.PrevEnd
}

// disown puts a copy in the place of a segment's file, which a backup may have under another name: what is written to it then is not written to the backup.
func (r *repair) disown(name string) error {
	from, err := r.files.OpenFile(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	size, err := from.Size()
	if err != nil {
		return err
	}
	fresh := name + unfinished
	if err := r.files.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := r.files.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, size))
	if err == nil {
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, r.files.Remove(fresh))
	}
	from.Close()
	path := func(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }
	if err := os.Rename(path(fresh), path(name)); err != nil { // the one place where a file takes another's name: both are the same bytes
		return err
	}
	return r.files.SyncDir("log")
}

// dig copies a damaged run aside and puts a hole in its place.
func (r *repair) dig(run damagedRun) error {
	const most = payloadMax / 2
	i := slices.IndexFunc(r.spans, func(s segmentSpan) bool { return s.number == run.segment })
	if err := r.disown(r.spans[i].file()); err != nil {
		return err
	}
	f, err := r.files.OpenFile(r.spans[i].file(), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // dropStale moved it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	aside := ""
	if run.from < uint64(size) {
		if aside, err = r.free(fmt.Sprintf("log-%06d-%d-%d", run.segment, run.from, run.to)); err != nil {
			return err
		}
		if err := r.copyRun(f, run, aside); err != nil {
			return err
		}
	}
	if run.to > uint64(size) {
		if err := f.Truncate(int64(run.to)); err != nil {
			return err
		}
	}
	for from := run.from; from < run.to; {
		n := min(run.to-from, most)
		if rest := run.to - from - n; rest > 0 && rest < frameSize {
			n -= frameSize
		}
		if n < frameSize {
			return fmt.Errorf("there is no room for a record in %d bytes", n)
		}
		payload := make([]byte, n-frameSize)
		if _, err := f.ReadAt(payload, int64(from+frameSize)); err != nil && !errors.Is(err, io.EOF) {
			clear(payload) // it cannot be read: it may be so when it was written over
			if _, err := f.WriteAt(payload, int64(from+frameSize)); err != nil {
				return err
			}
		}
		var head [frameSize]byte
		frame{kind: recordHole, length: uint32(len(payload)), crc: crc32.Checksum(payload, castagnoli)}.put(head[:], run.segment)
		if _, err := f.WriteAt(head[:], int64(from)); err != nil {
			return err
		}
		from += n
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if aside == "" {
		aside = "nothing, as they are gone"
	}
	r.say("log segment %d: bytes %d to %d are a hole now; what was there is kept in %s", run.segment, run.from, run.to, aside)
	return nil
}

// copyRun copies what can be read of the run to a file of its own.
func (r *repair) copyRun(from File, run damagedRun, name string) error {
	to, err := r.files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer to.Close()
	buf := make([]byte, 64<<10)
	for at := run.from; at < run.to; {
		n, err := from.ReadAt(buf[:min(uint64(len(buf)), run.to-at)], int64(at))
		if _, err := to.WriteAt(buf[:n], int64(at-run.from)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // a sector that cannot be read: go on behind it
			n = max(n, 4096)
		}
		at += uint64(n)
	}
	if err := to.Sync(); err != nil {
		return err
	}
	return r.files.SyncDir(damagedDir)
}

// free returns a name in damagedDir that no file has.
func (r *repair) free(name string) (string, error) {
	if err := r.files.Mkdir(damagedDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := r.files.SyncDir("."); err != nil {
		return "", err
	}
	full := damagedDir + "/" + name
	for n := 2; ; n++ {
		if _, err := r.files.Stat(full); errors.Is(err, fs.ErrNotExist) {
			return full, nil
		} else if err != nil {
			return "", err
		}
		full = damagedDir + "/" + name + "-" + strconv.Itoa(n)
	}
}

// moveAside moves a file to damagedDir. One that is not there is no error, and no name.
func (r *repair) moveAside(name string) (aside string, err error) {
	if _, err := r.files.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	base := strings.TrimPrefix(name, "chunks/")
	base = base[strings.LastIndexByte(base, '/')+1:]
	if !strings.HasPrefix(name, "chunks/") {
		base = strings.ReplaceAll(name, "/", "-")
	}
	if aside, err = r.free(base); err != nil {
		return "", err
	}
	if err := r.files.Rename(name, aside); err != nil {
		return "", err
	}
	return aside, r.files.SyncDir(damagedDir)
}

// mendChunk moves a damaged chunk aside, and puts an incoming file of the same content in its place, where there is one.
func (r *repair) mendChunk(sum []byte) error {
	aside, err := r.moveAside(chunkName(sum))
	if err != nil {
		return fmt.Errorf("move chunk %x aside: %w", sum, err)
	}
	if aside != "" {
		r.say("chunk %x: it is kept in %s", sum, aside)
	}
	entries, err := r.files.ReadDir("incoming")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "incoming/" + e.Name()
		f, err := r.files.OpenFile(name, os.O_RDWR)
		if err != nil {
			continue
		}
		got, err := hashFile(f)
		if err == nil && bytes.Equal(got, sum) {
			err = f.Sync()
		}
		f.Close()
		if err != nil || !bytes.Equal(got, sum) {
			continue
		}
		if err := (&Store{files: r.files}).rename(name, chunkName(sum)); err != nil {
			return err
		}
		delete(r.problems.chunks, string(sum))
		r.say("chunk %x: %s is the same content, and has taken its place", sum, name)
		return r.files.SyncDir("chunks/" + hex.EncodeToString(sum[:1]))
	}
	return nil
}

// commit takes what was appended into the index, and moves aside what nothing names any more: it may be all that is left of a body.
func (r *repair) commit() error {
	s := r.store
	if err := s.log.flush(); err != nil {
		return err
	}
	end := s.log.end()
	if err := s.log.sync(); err != nil {
		return err
	}
	gone, err := s.index.apply(s.log.take(end), end, s.readSession, nil)
	if err != nil {
		return err
	}
	r.queued = 0
	for _, sum := range gone.chunks {
		s.handles.drop(chunkName([]byte(sum)))
		aside, err := r.moveAside(chunkName([]byte(sum)))
		if err != nil {
			return err
		}
		if aside != "" {
			r.say("chunk %x: no body goes on into it any more; it is kept in %s", sum, aside)
		}
	}
	return nil
}

func (r *repair) append(rec *record, v any) error {
	r.store.appendValue(rec, v)
	if r.queued++; r.queued < repairBatch {
		return nil
	}
	return r.commit()
}

// readOld asks the index that is replaced, where the log lost records, what it knows of their sessions. These get a record of what their rows tell, with which
// they count as open: what else the log has of them is then found as it is after a crash. Sessions that a lost record had deleted are deleted again.
func (r *repair) readOld() error {
	r.rows = make(map[uint64]Row)
	known := make(map[uint64]bool)
	last, sound := uint64(0), r.known != nil
	if r.old != "" {
		err := readIndex(r.old, func(ix *index, tx *bbolt.Tx) error {
			last = ix.state.LastID
			return r.readRows(ix, tx, known)
		})
		if err != nil && r.problems.lossy {
			r.say("index: not all can be read that it knows of the sessions whose records were damaged: %v", err)
		}
	}
	if !r.problems.lossy {
		clear(r.rows) // an index that lies
		return nil
	}
	if r.mayMiss = !sound; r.mayMiss {
		r.say("index: %s", mayBeMissing)
	}
	for id := range r.store.index.open {
		if _, ok := r.rows[id]; !ok && r.store.index.open[id].begun.Segment == 0 && !(sound && !known[id] && id <= last) {
			r.rows[id] = Row{ID: id} // bytes of bodies are all that is left
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.rows)) {
		row := r.rows[id]
		session := sessionOfRow(&row)
		r.lost[id] = true
		r.say("session %d (%s): %s; kept is what the list and the rest of the log had of it", id, describe(session), damagedRecord)
		if o := r.store.index.open[id]; o != nil && o.begun.Segment != 0 || o == nil && r.hasRow(id) {
			continue // the log has an older record of it
		}
		if err := r.append(&record{kind: recordBegun, session: session}, session); err != nil {
			return err
		}
	}
	if err := r.commit(); err != nil {
		return err
	}
	if !sound {
		return nil
	}
	return r.deleteAgain(known, last)
}

// readRows reads the rows whose records the log does not have, and notes which sessions there are. It is lossy too that a whole segment is gone.
func (r *repair) readRows(ix *index, tx *bbolt.Tx, known map[uint64]bool) error {
	if err := tx.Bucket(bucketSegments).ForEach(func(k, _ []byte) error {
		if _, ok := r.ends[idOf(k)]; !ok {
			r.problems.lossy = true
		}
		return nil
	}); err != nil {
		return err
	}
	if at, ok := r.ends[ix.state.Applied.Segment]; !ok || at < ix.state.Applied.Offset {
		r.problems.lossy = true
	}
	words := ix.dict.snapshot()
	return tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
		if len(k) != 8 {
			return nil
		}
		id := idOf(k)
		known[id] = true
		var row Row
		at, _, err := rowPlaceOf(b)
		if err == nil && !r.store.hasSlot(at.record) && !r.isDeleted(id) && decodeRow(&row, id, b, words) == nil {
			r.rows[id] = row
		}
		return nil
	})
}

func (r *repair) isDeleted(id uint64) bool {
	return slices.ContainsFunc(r.problems.deletions, func(d deletion) bool {
		return slices.Contains(d.IDs, id) || d.Through != 0 && d.From <= id && id <= d.Through
	})
}

func (r *repair) hasRow(id uint64) (found bool) {
	_ = r.store.index.view(func(tx *bbolt.Tx) error {
		found = tx.Bucket(bucketRows).Get(idKey(id)) != nil
		return nil
	})
	return found
}

// deleteAgain deletes the sessions that a sound index does not know of, although it had taken in their records: a record that is lost had deleted them.
func (r *repair) deleteAgain(known map[uint64]bool, last uint64) error {
	var back []uint64
	err := r.store.index.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketRows).ForEach(func(k, b []byte) error {
			id := idOf(k)
			if known[id] || id > last {
				return nil
			}
			at, _, err := rowPlaceOf(b)
			if err != nil {
				return err
			}
			p, err := findSlot(tx, at.record)
			if err == nil && p.end().before(r.applied) {
				back = append(back, id)
			}
			return nil
		})
	})
	if err != nil || len(back) == 0 {
		return err
	}
	for step := range slices.Chunk(back, deleteStep) {
		for _, kind := range []recordKind{recordDoomed, recordDeleted} { // those that count as open are dropped at their end
			rec := &record{kind: kind, gone: deletion{IDs: step}}
			if kind == recordDeleted {
				rec.gone.IDs = slices.DeleteFunc(slices.Clone(step), func(id uint64) bool { return r.store.index.open[id] != nil })
			}
			if len(rec.gone.IDs) == 0 {
				continue
			}
			if err := r.append(rec, rec.gone); err != nil {
				return err
			}
		}
		if err := r.commit(); err != nil {
			return err
		}
	}
	for _, id := range back {
		r.say("session %d: that it was deleted was damaged; it is deleted again", id)
	}
	return nil
}

// sessions gives each session that lost something a record that says what.
func (r *repair) sessions() error {
	for next := uint64(0); ; {
		var batch []uint64
		if err := r.store.index.view(func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucketRows).Cursor()
			for k, _ := c.Seek(idKey(next)); k != nil && len(batch) < repairBatch; k, _ = c.Next() {
				batch = append(batch, idOf(k))
			}
			return nil
		}); err != nil {
			return err
		}
		if len(batch) == 0 {
			return r.commit()
		}
		for _, id := range batch {
			if err := r.session(id); err != nil {
				return err
			}
		}
		next = batch[len(batch)-1] + 1
	}
}

func (r *repair) session(id uint64) error {
	var session Session
	var lost []string
	changed := false
	err := r.store.stored(id, func(tx *bbolt.Tx, stored *Session) error {
		session = *stored
		if row, ok := r.rows[id]; ok {
			changed = fromRow(&session, row)
		}
		for side, body := range session.streams() {
			if changed && !body.Complete && body.Missing != "" {
				lost = append(lost, fmt.Sprintf("its %s is %s", side.stream(), body.Missing))
			}
		}
		lost = append(lost, r.losses(tx, &session)...)
		return nil
	})
	if err != nil {
		r.say("session %d: %v", id, err) // it is told again when all is verified
		return nil
	}
	for _, what := range lost {
		r.lost[id] = true
		r.say("session %d (%s): %s", id, describe(&session), what)
	}
	if !changed && len(lost) == 0 {
		return nil
	}
	return r.append(&record{kind: recordEnded, session: &session}, &session)
}

// describe names a session for people. What was captured may hold anything.
func describe(s *Session) string {
	const most = 200
	text := s.Method + " " + s.Host + s.Path
	if len(text) > most {
		text = text[:most] + "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// losses puts into the session what it lost, and says it in words.
func (r *repair) losses(tx *bbolt.Tx, s *Session) (lost []string) {
	if e := s.Certificates; e != nil {
		if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil || uint64(at.length) != e.Length {
			s.Certificates = nil
			lost = append(lost, "its upstream's certificates are lost: their record was damaged on disk")
		}
	}
	for side, body := range s.streams() {
		why := r.bodyLoss(tx, bodyID{s.ID, side}, body)
		if why == "" {
			continue
		}
		s.SetFlag(FlagCut)
		lost = append(lost, fmt.Sprintf("its %s is %s", side.stream(), body.Missing))
	}
	return lost
}

// fromRow puts what the row tells into a session whose newest record is lost, and reports whether that changes it.
func fromRow(s *Session, row Row) (changed bool) {
	before := *s
	s.Pinned, s.Note, s.Color = row.Pinned, row.Note, row.Color
	if s.State == Interrupted && s.Error != damagedRecord {
		s.Error = damagedRecord
		if row.State != Open {
			s.State, s.Status, s.ContentType, s.Protocol, s.Upstream = row.State, row.Status, row.ContentType, row.Protocol, row.Upstream
			s.Timing.Ended = s.Timing.Started.Add(row.Duration)
		}
		if row.Error != "" {
			s.Error = row.Error
		}
		for side, passed := range [2]uint64{row.RequestBytes, row.ResponseBytes} {
			b := &s.Sides[side].Body
			if b.Passed = max(b.Passed, passed); !b.Complete && b.Passed > 0 {
				b.Missing = fmt.Sprintf("captured to byte %d: %s", b.Size, damagedRecord)
				s.SetFlag(FlagCut)
			}
		}
	}
	return s.State != before.State || s.Error != before.Error || s.Pinned != before.Pinned || s.Note != before.Note || s.Color != before.Color
}

// bodyLoss cuts a body at the first run that is damaged, and says why.
func (r *repair) bodyLoss(tx *bbolt.Tx, id bodyID, body *Body) (why string) {
	size := uint64(0)
	for i, e := range body.Extents {
		if why = r.runLoss(tx, e); why != "" {
			body.Extents = slices.Clip(body.Extents[:i])
			body.Size = size
			break
		}
		size += e.Length
	}
	if why == "" && r.problems.sums[id] {
		why = "the bytes are not those of which its SHA-256 was made"
	}
	if why == "" && size != body.Size {
		why, body.Size = "its record was wrong", size
	}
	if why != "" {
		body.SHA256, body.Complete = nil, false
		body.Passed = max(body.Passed, body.Size)
		body.Missing = fmt.Sprintf("captured to byte %d: %s", body.Size, why)
	}
	return why
}

func (r *repair) runLoss(tx *bbolt.Tx, e Extent) string {
	if len(e.Chunk) > 0 {
		if _, bad := r.problems.chunks[string(e.Chunk)]; !bad {
			if info, err := r.files.Stat(chunkName(e.Chunk)); err == nil && uint64(info.Size()) == e.Length {
				return ""
			}
		}
		return "a chunk of it was damaged on disk"
	}
	if at, err := findSlot(tx, slotID{e.Segment, e.Slot}); err != nil || uint64(at.length) != e.Length+pieceHeadSize {
		return "a piece of it was damaged on disk"
	}
	return ""
}

// sweep takes away the files that nothing names: what is whole is removed, unless the record that named it may be what is lost. Else it is moved aside.
func (r *repair) sweep() error {
	gone, err := r.store.index.sweep(r.store.recent.mayRemove)
	if err != nil {
		return err
	}
	r.store.unlink(gone)
	for _, name := range gone.segments {
		r.say("%s: nothing of it is named; it is removed", name)
	}
	var names []string
	if err := r.store.index.view(func(tx *bbolt.Tx) error {
		return r.orphans(tx, func(name string) error {
			names = append(names, name)
			return nil
		})
	}); err != nil {
		return err
	}
	segments, err := r.files.ReadDir("log")
	if err != nil {
		return err
	}
	applied := r.store.index.snapshot().Applied.Segment
	for _, e := range segments { // beyond the last segment that holds anything
		if number, _, ok := parseSegment(e.Name()); ok && number > applied {
			names = append(names, "log/"+e.Name())
		}
	}
	return r.clear(names)
}

// clear takes away files that nothing names.
func (r *repair) clear(names []string) error {
	for _, name := range names {
		if !r.problems.lossy && r.isWhole(name) {
			if err := r.files.Remove(name); err != nil {
				return err
			}
			r.say("%s: nothing names it; it is removed", name)
			continue
		}
		aside, err := r.moveAside(name)
		if err != nil {
			return err
		}
		r.say("%s: nothing names it; it is kept in %s", name, aside)
	}
	return nil
}

// isWhole reports whether a file is what its name says: a chunk of that hash, or an incoming file, which no mark of an open session speaks of any more.
func (r *repair) isWhole(name string) bool {
	switch dir, base, _ := strings.Cut(name, "/"); dir {
	case "chunks":
		f, err := r.files.OpenFile(name, os.O_RDONLY)
		if err != nil {
			return false
		}
		defer f.Close()
		got, err := hashFile(f)
		return err == nil && name == chunkName(got)
	case "incoming":
		_, err := strconv.ParseUint(base, 10, 64)
		return err == nil
	}
	return false
}

// replaceIndex closes the index, and where it is a new one, sets the old one aside and gives the new one its name.
func (r *repair) replaceIndex() error {
	s := r.store
	if !r.problems.index {
		return s.index.close()
	}
	if r.old != "" {
		s.salvage(r.old)
	}
	if err := s.index.close(); err != nil {
		return err
	}
	aside := ""
	if r.old != "" {
		for n := 1; ; n++ {
			aside = r.old + ".damaged-" + strconv.Itoa(n)
			if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		if err := os.Link(r.old, aside); err != nil { // a file system without links: for a moment there is no index
			if err := os.Rename(r.old, aside); err != nil {
				return err
			}
		}
	}
	if err := os.Rename(filepath.Join(r.dir, repairedIndex), filepath.Join(r.dir, indexName)); err != nil {
		return err
	}
	if err := r.files.SyncDir("."); err != nil {
		return err
	}
	if aside == "" {
		r.say("index: it is made from the log")
	} else {
		r.say("index: it is made again from the log; the old one is kept as %s", filepath.Base(aside))
	}
	return nil
}
