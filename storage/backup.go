package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/bbolt"

	"millpond/migrations"
)

// BackupTo says where a backup goes, and what it takes.
type BackupTo struct {
	Dir       string      // does not exist, or is empty; it becomes a data directory
	WithoutCA bool        // leaves out the certificate authority and its key
	Copy      bool        // links nothing, so that the two share no block of the disk
	Authority sync.Locker // held while the authority is copied. Nil: nobody replaces it meanwhile

	Progress func(BackupProgress) // nil: nobody asks. The first call is before anything is copied
	Lacks    func(problem string) // is told what is gone or damaged, in words for people, and so is in the backup. Nil: nobody asks
	Files    Files                // of Dir, for tests. Nil: the disk
}

// BackupProgress tells how far a backup is. Sizes are in bytes.
type BackupProgress struct {
	Sessions uint64 `json:"sessions"`
	ToCopy   uint64 `json:"toCopy"`
	Copied   uint64 `json:"copied"`
	ToLink   uint64 `json:"toLink"` // of files that need no room, because Dir is on the data directory's file system
	Linked   uint64 `json:"linked"`
}

// ErrBackup is a backup that cannot be made as asked. The error around it says what to do.
var ErrBackup = errors.New("no backup was made")

// backups lets one backup run at a time, and the store's end break it off.
type backups struct {
	running sync.Mutex
	stop    chan struct{}
}

// Backup copies the store, which goes on, into a directory that is a data directory then: every session that was durable when Backup was called, settings,
// shares, the certificate authority. Segments of the log and chunks, which never change, become further names of the same files where the file system has
// that. That what the index names is there with its length is looked at; that the index is sound is not. Until it returns, what is deleted keeps its room on
// the disk; where that becomes full, the backup is broken off. What it had made is removed after an error.
func (s *Store) Backup(ctx context.Context, to BackupTo) (BackupProgress, error) {
	if !s.backups.running.TryLock() {
		return BackupProgress{}, fmt.Errorf("%w: another backup runs, or Millpond is stopping: try again later", ErrBackup)
	}
	defer s.backups.running.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.backups.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	b, err := newBackup(ctx, s.files, s.dir, to)
	if err != nil {
		return BackupProgress{}, err
	}
	b.full = func() bool { return s.hold.any() && s.room.isFull() }
	b.settings, b.marked = &s.setting, true
	s.hold.begin()
	defer s.endHold()
	return b.run(func() error { return s.planBackup(b) })
}

// BackupStopped is Backup of a data directory that no process has open: its files as they are, also those of a former version. One that is held is ErrLocked. That
// the index is sound, and that what it names is there with its length, is looked at, but for a former version; the backup is made in any case.
func BackupStopped(ctx context.Context, data string, to BackupTo) (BackupProgress, error) {
	fail := func(err error) (BackupProgress, error) {
		return BackupProgress{}, fmt.Errorf("back up %s: %w", data, err)
	}
	dir, err := filepath.Abs(data)
	if err != nil {
		return fail(err)
	}
	former := migrations.Current(dir, lockName)
	if former != nil && !errors.Is(former, migrations.ErrOlder) {
		return fail(former)
	}
	if _, err := os.Stat(filepath.Join(dir, "format")); err != nil {
		return fail(fmt.Errorf("%w: a start that brought it to another version was broken off: start Millpond there once, then try again", err))
	}
	files, err := OpenDir(dir)
	if err != nil {
		return fail(err)
	}
	defer files.Close()
	lock, err := lockToRead(dir)
	if err != nil {
		return fail(err)
	}
	defer lock.release()
	b, err := newBackup(ctx, files, dir, to)
	if err != nil {
		return BackupProgress{}, err
	}
	return b.run(func() error {
		if err := b.planStopped(); err != nil || former != nil || to.Lacks == nil {
			return err
		}
		return b.checkNamed()
	})
}

// planBackup finds out what the index speaks of now, and keeps a read transaction for its copy, which is all that must be of one moment: of the log it is the
// records up to the position that the index has reached, and of the incoming files what its marks speak of.
func (s *Store) planBackup(b *backup) (err error) {
	_ = s.commit() // so that what ended by now is in it; where the disk fails, what is durable is there all the same
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverDamage(&err)
	s.committing.Lock()
	tx, err := s.index.begin()
	incoming := s.incomings.all()
	for _, in := range s.chunksToName {
		incoming[in.number] = in
	}
	s.committing.Unlock()
	if err != nil {
		return err
	}
	b.index, b.indexSize, b.done = tx.WriteTo, uint64(tx.Size()), tx.Rollback

	var state indexState
	if v := tx.Bucket(bucketMeta).Get(keyState); v != nil {
		if err := decoder.Unmarshal(v, &state); err != nil {
			return fmt.Errorf("read index state: %w", err)
		}
	}
	b.progress.Sessions = state.Rows
	err = tx.Bucket(bucketSegments).ForEach(func(k, v []byte) error {
		var row segmentRow
		row.decode(v)
		f := backupFile{name: generationName(idOf(k), row.generation), fixed: row.sealed, length: row.size}
		if idOf(k) == state.Applied.Segment {
			f.fixed, f.length = false, state.Applied.Offset
		}
		b.add(f)
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket(bucketChunks).ForEach(func(k, v []byte) error {
		var row chunkRow
		row.decode(v)
		b.add(backupFile{name: chunkName(k), fixed: true, length: uint64(row.length)})
		return nil
	})
	if err != nil {
		return err
	}
	open, err := loadOpen(tx.Bucket(bucketOpen))
	if err != nil {
		return err
	}
	for number, length := range markedFiles(open) {
		if in := incoming[number]; in != nil {
			b.add(backupFile{name: incomingName(number), length: length, open: func() (File, error) { return s.openIncoming(in) }})
		}
	}
	return nil
}

// markedFiles returns how far the marks of open sessions speak of each incoming file.
func markedFiles(open map[uint64]*openSession) map[uint64]uint64 {
	lengths := make(map[uint64]uint64)
	for _, o := range open {
		for _, body := range o.bodies {
			for _, m := range body.marks {
				lengths[m.Mark.Incoming] = max(lengths[m.Mark.Incoming], m.Mark.Length)
			}
		}
	}
	return lengths
}

// openIncoming opens a file that may become a chunk just now.
func (s *Store) openIncoming(in *incoming) (File, error) {
	for try := 0; ; try++ {
		in.rec.mu.Lock()
		name := incomingName(in.number)
		if in.chunk != nil {
			name = chunkName(in.chunk)
		}
		in.rec.mu.Unlock()
		if f, err := s.files.OpenFile(name, os.O_RDONLY); try > 0 || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
}

// begin starts a read transaction that outlasts the call. While it lasts, the index's file grows by all that is written.
func (ix *index) begin() (*bbolt.Tx, error) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if ix.db == nil {
		return nil, fs.ErrClosed
	}
	return ix.db.Begin(false)
}

// planStopped lists the files of a store that no process has open. What may be written again, or cut by a repair, is not linked: the newest segment.
func (b *backup) planStopped() error {
	newest, err := newestSegment(b.from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{"log", "chunks", "incoming"} {
		err := fs.WalkDir(dirFS{b.from}, dir, func(name string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() || strings.HasSuffix(name, unfinished) {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			fixed := dir == "chunks" || dir == "log" && !strings.HasPrefix(name, segmentName(newest))
			b.add(backupFile{name: name, fixed: fixed, length: uint64(info.Size())})
			return nil
		})
		if err != nil {
			return err
		}
	}
	entries, err := b.from.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries { // several where a compaction or a migration was broken off: whoever opens the backup ends it
		if e.Name() != backupMark && !strings.HasPrefix(e.Name(), indexName) || strings.HasPrefix(e.Name(), indexName+".damaged") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		b.add(backupFile{name: e.Name(), length: uint64(info.Size())})
	}
	b.progress.Sessions = countRows(filepath.Join(b.fromDir, presentIndex(b.from)))
	return nil
}

// checkNamed tells of what the index names whether it is among the files, as long as it is to be.
func (b *backup) checkNamed() error {
	lengths := make(map[string]uint64, len(b.list))
	log := false
	for _, f := range b.list {
		lengths[f.name] = f.length
		log = log || strings.HasPrefix(f.name, "log/")
	}
	look := func(name string, want uint64) {
		if got, ok := lengths[name]; !ok {
			b.to.Lacks(name + ": it is gone")
		} else if got < want {
			b.to.Lacks(fmt.Sprintf("%s: %d bytes long, want %d", name, got, want))
		}
	}
	err := readIndex(filepath.Join(b.fromDir, presentIndex(b.from)), func(ix *index, tx *bbolt.Tx) error {
		if err := ix.checkIn(tx); err != nil {
			return err
		}
		applied := ix.state.Applied
		if applied.Segment != 0 && tx.Bucket(bucketSegments).Get(idKey(applied.Segment)) == nil {
			look(segmentName(applied.Segment), applied.Offset)
		}
		if err := tx.Bucket(bucketSegments).ForEach(func(k, v []byte) error {
			var row segmentRow
			row.decode(v)
			want := row.size
			if idOf(k) == applied.Segment {
				want = max(want, applied.Offset)
			}
			look(generationName(idOf(k), row.generation), want)
			return nil
		}); err != nil {
			return err
		}
		return tx.Bucket(bucketChunks).ForEach(func(k, v []byte) error {
			var row chunkRow
			row.decode(v)
			look(chunkName(k), uint64(row.length))
			return nil
		})
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) && !log: // nothing was captured yet
	case errors.Is(err, fs.ErrNotExist):
		b.to.Lacks("index.db: it is gone; a start makes it again from the log, without shares")
	case err != nil:
		b.to.Lacks(fmt.Sprintf("index.db: %v", err))
	}
	return nil
}

// countRows reads how many sessions an index that nobody has open counts; 0 where it cannot be read.
func countRows(name string) uint64 {
	var state indexState
	_ = viewClosed(name, func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketMeta); b != nil {
			return decoder.Unmarshal(b.Get(keyState), &state)
		}
		return nil
	})
	return state.Rows
}

// all returns the incoming files of which the committer does not know yet, by number.
func (l *incomings) all() map[uint64]*incoming {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[uint64]*incoming, len(l.open)+len(l.full))
	for in := range l.open {
		all[in.number] = in
	}
	for _, in := range l.full {
		all[in.number] = in
	}
	return all
}

// newBackup looks at the target and makes the directory that the backup is made in.
func newBackup(ctx context.Context, from Files, fromDir string, to BackupTo) (*backup, error) {
	b := &backup{ctx: ctx, from: from, fromDir: fromDir, to: to, files: to.Files, report: to.Progress}
	dir, err := filepath.Abs(to.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the backup's directory: %w", err)
	}
	b.dir = dir
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w: choose another directory", ErrBackup, err)
	}
	b.made = err != nil
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "lost+found" }) // a file system of its own
	for _, e := range entries {
		if e.Name() == backupPart {
			return nil, fmt.Errorf("%w: %s holds a backup that was not finished: remove %s, or choose another directory", ErrBackup, dir, filepath.Join(dir, backupPart))
		}
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("%w: %s is not empty: choose a directory that is empty, or not there yet", ErrBackup, dir)
	}
	inside, err := isInside(dir, fromDir)
	if err != nil {
		return nil, fmt.Errorf("find the backup's directory: %w", err)
	}
	if inside {
		return nil, fmt.Errorf("%w: %s is inside the data directory: choose a directory outside of it, best on another disk", ErrBackup, dir)
	}
	if b.files == nil {
		if b.files, err = OpenDir(dir); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBackup, err)
		}
	}
	if err := b.files.Mkdir(backupPart); err != nil {
		b.clear()
		return nil, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return b, nil
}

// isInside reports whether a directory, which may not exist, is another one or below it.
func isInside(dir, other string) (bool, error) {
	outer, err := os.Stat(other)
	if err != nil {
		return false, err
	}
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			dir = real
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return false, err
		}
		dir = filepath.Dir(dir)
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false, err
		}
		if os.SameFile(info, outer) {
			return true, nil
		}
		if filepath.Dir(dir) == dir {
			return false, nil
		}
		dir = filepath.Dir(dir)
	}
}

func inPart(name string) string { return path.Join(backupPart, name) }
