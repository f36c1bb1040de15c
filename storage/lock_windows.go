package storage

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// tryLock takes the lock of an open file, which closing the file gives back. held says that someone else has it.
// A lock here keeps others from reading what it covers, so it covers one byte far beyond the end: the holder's name stays readable.
func tryLock(f *os.File) (held bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		beyond := &windows.Overlapped{OffsetHigh: 1}
		failed = windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, beyond)
	})
	if err != nil {
		return false, err
	}
	if errors.Is(failed, windows.ERROR_LOCK_VIOLATION) || errors.Is(failed, windows.ERROR_IO_PENDING) {
		return true, nil
	}
	return false, os.NewSyscallError("LockFileEx", failed)
}

// unlock does nothing: closing the file gives the lock back.
func unlock(*os.File) {}

// networkKind names the network file system that the directory is on, and is empty for a local one. Windows knows mapped drives and UNC paths.
func networkKind(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	volume, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return "", err
	}
	if windows.GetDriveType(volume) == windows.DRIVE_REMOTE {
		return "a network drive", nil
	}
	return "", nil
}
