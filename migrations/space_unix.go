//go:build linux || darwin

package migrations

import (
	"os"

	"golang.org/x/sys/unix"
)

// free returns the bytes that the directory's file system has left for this user.
func free(dir *os.Root) (uint64, error) {
	f, err := dir.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
