package storagetest

import (
	"io/fs"
	"os"
	"syscall"

	"millpond/storage"
)

// OpenFile opens a file under the faults.
func (d *Disk) OpenFile(name string, flag int) (f storage.File, err error) {
	open := func() error {
		f, err = d.Files.OpenFile(name, flag)
		return err
	}
	if flag&os.O_CREATE != 0 {
		err = d.do(Create, "open", name, open)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	return &file{f, d, name}, nil
}

// Mkdir makes a directory under the faults.
func (d *Disk) Mkdir(name string) error {
	return d.do(Create, "mkdir", name, func() error { return d.Files.Mkdir(name) })
}

// Rename moves a file under the faults.
func (d *Disk) Rename(from, to string) error {
	return d.do(Rename, "rename", from, func() error { return d.Files.Rename(from, to) })
}

// Remove removes a file under the faults.
func (d *Disk) Remove(name string) error {
	return d.do(Remove, "remove", name, func() error { return d.Files.Remove(name) })
}

// SyncDir syncs a directory under the faults.
func (d *Disk) SyncDir(name string) error {
	return d.do(Sync, "sync", name, func() error { return d.Files.SyncDir(name) })
}

// Space returns what SetSpace said, what Fill left, or what the disk has.
func (d *Disk) Space() (free, total uint64, err error) {
	d.mu.Lock()
	said, left := d.space, d.left
	d.mu.Unlock()
	if said != nil {
		return said[0], said[1], nil
	}
	free, total, err = d.Files.Space()
	if left >= 0 {
		free = min(free, uint64(left))
	}
	return free, total, err
}

// file is an open file of a Disk.
type file struct {
	storage.File
	disk *Disk
	name string
}

func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if err := f.disk.before(Read); err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
	}
	n, err = f.File.ReadAt(p, off)
	f.disk.after(Read, err)
	return n, err
}

func (f *file) Write(p []byte) (int, error) { return f.write(p, f.File.Write) }

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

// write writes what fits, as a full disk does.
func (f *file) write(p []byte, to func([]byte) (int, error)) (n int, err error) {
	err = f.disk.do(Write, "write", f.name, func() (err error) {
		fits := f.disk.room(len(p))
		if fits > 0 || len(p) == 0 {
			n, err = to(p[:fits])
		}
		if err == nil && fits < len(p) {
			err = &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
		}
		return err
	})
	return n, err
}

func (f *file) Truncate(size int64) error {
	return f.disk.do(Write, "truncate", f.name, func() error { return f.File.Truncate(size) })
}

func (f *file) Sync() error {
	return f.disk.do(Sync, "sync", f.name, f.File.Sync)
}
