package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkKinds are the file systems that another machine, or another kernel, may write at the same time. FUSE is not among them: it is
// as often a local disk, and its number does not tell.
var networkKinds = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "SMB",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.V9FS_MAGIC:       "9P",
	0x0bd00bd0:            "Lustre", // LL_SUPER_MAGIC, which is not in the kernel's own tree
}

// networkKind names the network file system that the directory is on, and is empty for a local one.
func networkKind(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", os.NewSyscallError("statfs", err)
	}
	return networkKinds[uint32(st.Type)], nil
}
