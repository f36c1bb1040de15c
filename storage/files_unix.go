//go:build linux || darwin

package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(dir *os.File) error { return dir.Sync() }

func space(dir *os.File) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return 0, 0, os.NewSyscallError("fstatfs", err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), uint64(st.Blocks) * uint64(st.Bsize), nil
}
