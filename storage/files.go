package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Files is the file layer under a Store: the data directory, and nothing outside it. Names are relative to it, with slashes.
// Dir is the disk; storagetest.Disk is a disk that stalls, fills and fails.
type Files interface {
	// OpenFile opens a file with the os.O_ flags; what it creates has mode 0600. With os.O_APPEND, WriteAt is refused.
	OpenFile(name string, flag int) (File, error)

	// Mkdir makes one directory with mode 0700. One that exists is fs.ErrExist.
	Mkdir(name string) error

	// Rename moves a file to a name that is free; a name that is taken is fs.ErrExist. The caller keeps two renames to one name apart.
	Rename(from, to string) error

	// Remove removes a file, or an empty directory.
	Remove(name string) error

	// ReadDir lists a directory, sorted by name. "." is the data directory.
	ReadDir(name string) ([]fs.DirEntry, error)

	// Stat describes a file.
	Stat(name string) (fs.FileInfo, error)

	// SyncDir makes the names in a directory durable, where the platform has that.
	SyncDir(name string) error

	// Space returns the bytes the file system has left for this user, and the bytes it holds.
	Space() (free, total uint64, err error)

	// Close lets go of the data directory. Open files stay open.
	Close() error
}

// File is an open file of a Files.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Writer // at the file's own position, which begins at 0

	// Sync makes the content and the length durable. After an error nothing is known of what was written since the last good one:
	// the kernel may have dropped it, and the next Sync proves nothing.
	Sync() error

	Truncate(size int64) error
	Size() (int64, error)
	io.Closer
}

// Dir is the data directory on disk, reached through os.Root: a symbolic link cannot lead out of it.
type Dir struct{ root *os.Root }

// OpenDir opens the directory, making it (mode 0700) where it is not there.
func OpenDir(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	return &Dir{root}, nil
}

// OpenFile opens a file.
func (d *Dir) OpenFile(name string, flag int) (File, error) {
	f, err := d.root.OpenFile(filepath.FromSlash(name), flag, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

// Mkdir makes one directory.
func (d *Dir) Mkdir(name string) error {
	return d.root.Mkdir(filepath.FromSlash(name), 0o700)
}

// Rename moves a file to a name that is free. Looking first is enough: one process holds the directory, and in it one goroutine renames.
func (d *Dir) Rename(from, to string) error {
	from, to = filepath.FromSlash(from), filepath.FromSlash(to)
	switch _, err := d.root.Lstat(to); {
	case err == nil:
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return d.root.Rename(from, to)
}

// Remove removes a file, or an empty directory.
func (d *Dir) Remove(name string) error {
	return d.root.Remove(filepath.FromSlash(name))
}

// ReadDir lists a directory.
func (d *Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(d.root.FS(), name)
}

// Stat describes a file.
func (d *Dir) Stat(name string) (fs.FileInfo, error) {
	return d.root.Stat(filepath.FromSlash(name))
}

// SyncDir makes the names in a directory durable.
func (d *Dir) SyncDir(name string) error {
	f, err := d.root.Open(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDir(f)
}

// Space returns the bytes left and held.
func (d *Dir) Space() (free, total uint64, err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	return space(f)
}

// Close lets go of the directory.
func (d *Dir) Close() error { return d.root.Close() }

type diskFile struct{ *os.File }

func (f diskFile) Sync() error { return syncData(f.File) }

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
