package migrations

import (
	"os"

	"golang.org/x/sys/windows"
)

// free returns the bytes that the directory's file system has left for this user.
func free(dir *os.Root) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir.Name())
	if err != nil {
		return 0, err
	}
	var left, total, all uint64
	if err := windows.GetDiskFreeSpaceEx(path, &left, &total, &all); err != nil {
		return 0, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return left, nil
}
