//go:build linux || darwin

package storage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of an open file, which closing the file gives back. held says that someone else has it.
func tryLock(f *os.File) (held bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		return false, err
	}
	if errors.Is(failed, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, os.NewSyscallError("flock", failed)
}

// unlock gives a lock back that whoever mapped the file took: the map holds the file open, and closing it does not.
func unlock(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.Flock(int(fd), unix.LOCK_UN) })
	}
}
