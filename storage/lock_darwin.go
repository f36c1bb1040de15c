package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkKind names the network file system that the directory is on, and is empty for a local one. macOS marks the local ones.
func networkKind(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", os.NewSyscallError("statfs", err)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return unix.ByteSliceToString(st.Fstypename[:]), nil
	}
	return "", nil
}
