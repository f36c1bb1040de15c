package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

const (
	// backupPart is the directory, in that of the backup, where it is made. What is in it moves up at the end, the format file last: without that one no
	// Millpond takes the directory for data.
	backupPart = "millpond.part"

	// backupMark is a file in a backup of a store that was in use, until it is opened: what was open is interrupted then, and not because Millpond ended.
	backupMark = "backup"

	// backupSlack is room in bytes for directories and what grows meanwhile.
	backupSlack = 1 << 20
)

// backup is one that is being made.
type backup struct {
	ctx     context.Context
	from    Files
	fromDir string
	to      BackupTo
	dir     string // of the backup
	files   Files  // of dir
	made    bool   // dir was not there

	index     func(io.Writer) (int64, error) // writes the copy of the index; nil: its files are in list
	indexSize uint64
	done      func() error // lets go of what index reads; nil: nothing
	list      []backupFile // beside settings and the authority
	settings  sync.Locker  // held while settings are copied; nil: nobody changes them
	marked    bool         // it gets a backupMark
	full      func() bool  // the data directory's disk is full, and the backup keeps room from it; nil: it never is

	links    bool // files that never change are linked
	progress BackupProgress
	report   func(BackupProgress)
	reported time.Time
	dirs     []string // made, in order
	known    map[string]bool
	top      map[string]bool // names in dir that are the backup's
}

// backupFile is a file to copy.
type backupFile struct {
	name   string
	length uint64 // of it, in bytes
	fixed  bool   // it never changes, and is length bytes long: it may be linked
	open   func() (File, error)
}

func (b *backup) add(f backupFile) { b.list = append(b.list, f) }

// run makes the backup of what plan finds.
func (b *backup) run(plan func() error) (_ BackupProgress, err error) {
	finished := false
	defer func() {
		if b.done != nil {
			_ = b.done()
		}
		if !finished {
			b.clear()
		} else if b.to.Files == nil {
			b.files.Close()
		}
	}()
	err = b.make(plan)
	if err == nil {
		err = b.finish()
	}
	if err != nil {
		if b.ctx.Err() != nil {
			err = b.ctx.Err()
		} else if diskFull(err) {
			free, _, _ := b.files.Space()
			err = fmt.Errorf("the disk of the backup is full (%d MB are free): make room, or choose another disk: %w", free>>20, err)
		}
		return b.progress, fmt.Errorf("back up to %s: %w", b.dir, err)
	}
	finished = true
	b.tell(true)
	return b.progress, nil
}

func (b *backup) make(plan func() error) error {
	b.known, b.top = map[string]bool{".": true}, make(map[string]bool)
	for _, dir := range []string{"log", "chunks", "incoming"} {
		if err := b.mkdir(dir); err != nil {
			return err
		}
	}
	if err := plan(); err != nil {
		return err
	}
	b.links = !b.to.Copy && b.canLink()
	if err := b.checkRoom(); err != nil {
		return err
	}
	b.tell(true)
	if b.index != nil {
		if err := b.write("index.db", func(w io.Writer) error { _, err := b.index(w); return err }); err != nil {
			return err
		}
	}
	if b.done != nil {
		err := b.done()
		b.done = nil
		if err != nil {
			return err
		}
	}
	for _, links := range []bool{true, false} { // first what takes no time
		for _, f := range b.list {
			if links != (b.links && f.fixed) {
				continue
			}
			if err := b.put(f); err != nil {
				return err
			}
		}
	}
	if err := b.tree(settingsDir, b.settings); err != nil {
		return err
	}
	if !b.to.WithoutCA {
		if err := b.tree("ca", b.to.Authority); err != nil {
			return err
		}
	}
	if b.marked {
		if err := b.write(backupMark, func(w io.Writer) error { _, err := io.WriteString(w, "made while Millpond ran\n"); return err }); err != nil {
			return err
		}
	}
	return b.copyFile(backupFile{name: "format", length: 64})
}

// canLink finds out whether a file of the data directory can have a second name in the backup.
func (b *backup) canLink() bool {
	err := b.link("format", "link")
	if err != nil {
		return false
	}
	return b.files.Remove(inPart("link")) == nil
}

func (b *backup) link(from, to string) error {
	return os.Link(filepath.Join(b.fromDir, filepath.FromSlash(from)), filepath.Join(b.dir, backupPart, filepath.FromSlash(to)))
}

// checkRoom compares what is to be copied to what the disk has.
func (b *backup) checkRoom() error {
	b.progress.ToCopy = b.indexSize
	for _, f := range b.list {
		if b.links && f.fixed {
			b.progress.ToLink += f.length
		} else {
			b.progress.ToCopy += f.length
		}
	}
	for _, dir := range []string{settingsDir, "ca", "format"} {
		_ = fs.WalkDir(dirFS{b.from}, dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if info, err := d.Info(); err == nil {
				b.progress.ToCopy += uint64(info.Size())
			}
			return nil
		})
	}
	need := b.progress.ToCopy + backupSlack
	free, total, err := b.files.Space()
	if err != nil {
		return nil // it is tried
	}
	if b.links {
		need += min(headroom, total/16) // what capture needs of the same disk
	}
	if free < need {
		return fmt.Errorf("%w: %d MB are needed in %s, and %d MB are free: make room, or choose another disk", ErrBackup, need>>20+1, b.dir, free>>20)
	}
	return nil
}

// mkdir makes a directory of the backup and those above it.
func (b *backup) mkdir(name string) error {
	if b.known[name] {
		return nil
	}
	if err := b.mkdir(path.Dir(name)); err != nil {
		return err
	}
	if err := b.files.Mkdir(inPart(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	b.known[name], b.top[name] = true, true
	b.dirs = append(b.dirs, name)
	return nil
}

// put links or copies a file.
func (b *backup) put(f backupFile) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if err := b.mkdir(path.Dir(f.name)); err != nil {
		return err
	}
	if f.open == nil && b.to.Lacks != nil {
		info, err := b.from.Stat(f.name)
		if errors.Is(err, fs.ErrNotExist) {
			b.to.Lacks(f.name + ": it is gone")
			return nil
		}
		if err == nil && uint64(info.Size()) < f.length {
			b.to.Lacks(fmt.Sprintf("%s: %d bytes long, want %d", f.name, info.Size(), f.length))
		}
	}
	if b.links && f.fixed {
		err := b.link(f.name, f.name)
		if err == nil {
			b.progress.Linked += f.length
			b.tell(false)
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		b.progress.ToLink, b.progress.ToCopy = b.progress.ToLink-f.length, b.progress.ToCopy+f.length // it has too many names, as some file systems count
	}
	err := b.copyFile(f)
	if f.open != nil && errors.Is(err, fs.ErrNotExist) {
		return nil // its body was given up
	}
	return err
}

// copyFile copies the first length bytes of a file, or what there is of them: that a file is shorter is told by who reads it.
func (b *backup) copyFile(f backupFile) error {
	open := f.open
	if open == nil {
		open = func() (File, error) { return b.from.OpenFile(f.name, os.O_RDONLY) }
	}
	from, err := open()
	if err != nil {
		return err
	}
	defer from.Close()
	return b.write(f.name, func(w io.Writer) error {
		buf := NewLargeBuffer()
		defer buf.Free()
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.NewSectionReader(from, 0, int64(f.length))}, buf.B)
		return err
	})
}

// write makes a file of the backup, durable on return but for its name.
func (b *backup) write(name string, fill func(io.Writer) error) error {
	b.top[name] = true
	f, err := b.files.OpenFile(inPart(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	w := &backupWriter{b: b, f: f}
	err = fill(w)
	if w.err != nil {
		err = w.err // bbolt's own error does not lead to it
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// backupWriter counts what is copied, and ends when it is to.
type backupWriter struct {
	b   *backup
	f   File
	err error
}

func (w *backupWriter) Write(p []byte) (n int, err error) {
	defer func() { w.err = err }()
	if err := w.b.ctx.Err(); err != nil {
		return 0, err
	}
	if w.b.full != nil && w.b.full() {
		return 0, errors.New("the data directory's disk is full, and what is deleted there comes free when the backup ends: it was broken off")
	}
	n, err = w.f.Write(p)
	w.b.progress.Copied += uint64(n)
	w.b.tell(false)
	return n, err
}

// tree copies a directory of small files, where there is one.
func (b *backup) tree(dir string, lock sync.Locker) error {
	if lock != nil {
		lock.Lock()
		defer lock.Unlock()
	}
	err := fs.WalkDir(dirFS{b.from}, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return b.put(backupFile{name: name, length: uint64(info.Size())})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finish makes the names durable and moves everything to its place.
func (b *backup) finish() error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	for _, dir := range append(b.dirs, ".") {
		if err := b.files.SyncDir(inPart(dir)); err != nil {
			return err
		}
	}
	entries, err := b.files.ReadDir(backupPart)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "format" {
			continue
		}
		if err := b.files.Rename(inPart(e.Name()), e.Name()); err != nil {
			return err
		}
	}
	if err := b.files.SyncDir("."); err != nil {
		return err
	}
	if err := b.files.Rename(inPart("format"), "format"); err != nil {
		return err
	}
	_ = b.files.Remove(backupPart) // it is whole now, and an empty directory does not matter
	if err := b.files.SyncDir("."); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(b.dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	return syncDir(parent)
}

// clear removes what was made, and lets go of the directory. All of it is the backup's own: the directory was empty.
func (b *backup) clear() {
	if b.to.Files == nil {
		b.files.Close()
	}
	_ = os.Remove(filepath.Join(b.dir, "format")) // first: without it, it is no data
	for name := range b.top {
		_ = os.RemoveAll(filepath.Join(b.dir, filepath.FromSlash(name)))
	}
	_ = os.RemoveAll(filepath.Join(b.dir, backupPart))
	if b.made {
		_ = os.Remove(b.dir)
	}
}

// tell reports progress, not more often than somebody reads it.
func (b *backup) tell(now bool) {
	if b.report == nil || !now && time.Since(b.reported) < time.Second/2 {
		return
	}
	b.reported = time.Now()
	b.report(b.progress)
}
