//go:build unix

package storage

import (
	"errors"

	"golang.org/x/sys/unix"
)

// diskFull reports whether a write failed for want of space, or of quota.
func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
