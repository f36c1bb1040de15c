package storage

import (
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// letPages takes the pages of the index out of this process's memory map. They are read-only and shared, so nothing is lost: what is read again comes from the page
// cache. The transaction keeps the map where it is.
func letPages(tx *bbolt.Tx) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED) // a hint: a failure costs resident size
}
