//go:build !linux

package harness

// CutPower is for Linux alone.
func (d *Disk) CutPower() error { return ErrNoDisk }
