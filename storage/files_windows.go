package storage

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: NTFS keeps names in its journal, and a directory handle cannot be flushed without rights of an administrator.
func syncDir(*os.File) error { return nil }

func space(dir *os.File) (free, total uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir.Name())
	if err != nil {
		return 0, 0, err
	}
	var all uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, &total, &all); err != nil {
		return 0, 0, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return free, total, nil
}
