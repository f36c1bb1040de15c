package harness

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CutPower ends the file system as a power cut does: nothing more reaches its device, and its journal is not written out. What is read
// and written from then on fails, until it is mounted anew. See ioctl_xfs_goingdown(2), which ext4 has too.
func (d *Disk) CutPower() error {
	const (
		fsIocShutdown = 0x8004587d // _IOR('X', 125, __u32)
		noLogFlush    = 2
	)
	f, err := os.Open(d.At)
	if err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), fsIocShutdown, noLogFlush); err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	return nil
}
