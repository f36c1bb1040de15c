package storage

import (
	"errors"
	"fmt"
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
		return done, fmt.Errorf("repair %s: %w", dir, err)
	}
	defer v.close()
	return v.repair()
}

func (v *verifier) repair() (done Repaired, err error) {
	if err := settleIndex(v.files); err != nil {
		return done, fmt.Errorf("repair %s: %w", v.dir, err)
	}
	if err := migrations.Migrate(v.dir, slog.New(reportHandler(v.report)), lockName); err != nil {
		return done, fmt.Errorf("repair %s: %w", v.dir, err)
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
		return done, fmt.Errorf("repair %s: %w", v.dir, err)
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
	if r.old != "" && !r.stale {
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
