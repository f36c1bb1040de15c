package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// ErrLocked says that another process holds the data directory. The error around it names the holder.
var ErrLocked = errors.New("the data directory is in use")

// ErrNetworkDir says that the data directory is on a network file system. Its locks may not hold and its memory maps may not follow
// its writes, so two machines could write one index.
var ErrNetworkDir = errors.New("the data directory is on a network file system")

const lockName = "lock"

// dirLock is this process's hold on a data directory. The kernel lets go of it when the process ends, however it ends: a lock
// file that lies there after a SIGKILL holds nobody up.
type dirLock struct {
	f *os.File // nil where none was needed
}

// lockDir takes hold of the directory, which exists, and writes into its lock file who did.
func lockDir(dir string) (*dirLock, error) {
	kind, err := networkKind(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the data directory's file system: %w", err)
	}
	if kind != "" {
		return nil, fmt.Errorf("%w (%s at %s): choose a directory on a local disk with --data", ErrNetworkDir, kind, dir)
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of data directory: %w", err)
	}
	l, err := lockFile(f, dir)
	if err != nil {
		return nil, err
	}
	if err := l.tell(""); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// lockToRead is lockDir for a command that changes nothing. On a read-only file system, such as a snapshot or a backup on a disk of its own, the lock that is there serves
// as it is, and where there is none nobody can hold the directory.
func lockToRead(dir string) (*dirLock, error) {
	l, err := lockDir(dir)
	if !errors.Is(err, syscall.EROFS) {
		return l, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	defer root.Close()
	f, err := root.Open(lockName)
	if errors.Is(err, fs.ErrNotExist) {
		return &dirLock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open lock of data directory: %w", err)
	}
	return lockFile(f, dir)
}

// lockFile takes the lock of an open lock file, which it closes where it cannot.
func lockFile(f *os.File, dir string) (*dirLock, error) {
	held, err := tryLock(f)
	switch {
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("lock data directory: %w", err)
	case held:
		who := holder(f)
		f.Close()
		return nil, fmt.Errorf("%w: %s is held by %s", ErrLocked, dir, who)
	}
	return &dirLock{f}, nil
}

// Hold takes hold of the data directory, making it where there is none, for a command that changes what lies beside the store. An error wraps ErrLocked
// where another process has it.
func Hold(dir string) (release func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	l, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// ServedAt says where the dashboard answers, so that a second process on the same data can say it too.
func (s *Store) ServedAt(dashboard string) error { return s.lock.tell(dashboard) }

// tell writes who holds the directory, and where its dashboard answers once that is known, for a second process to show.
func (l *dirLock) tell(dashboard string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	who := fmt.Sprintf("process %d on %s", os.Getpid(), host)
	if dashboard != "" {
		who += ", dashboard " + dashboard
	}
	if _, err := l.f.WriteAt([]byte(who+"\n"), 0); err != nil {
		return fmt.Errorf("write lock of data directory: %w", err)
	}
	if err := l.f.Truncate(int64(len(who) + 1)); err != nil {
		return fmt.Errorf("write lock of data directory: %w", err)
	}
	return nil
}

// release lets go of the directory. The lock file stays: to remove it would let two processes hold two files of one name.
func (l *dirLock) release() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// holder reads who wrote the lock file.
func holder(f *os.File) string {
	line, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<10))
	if who := strings.TrimSpace(string(line)); err == nil && who != "" {
		return who
	}
	return "another process"
}
