package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrNoDisk is why no disk of a test's own can be had here: it takes root, loop devices and ext4.
var ErrNoDisk = errors.New("a disk of its own cannot be mounted here")

// Disk is an ext4 file system in a file, which can be filled, and whose power can be cut.
type Disk struct {
	At string // where it is mounted

	image string
}

// NewDisk makes a disk of size bytes in dir, which is to be empty, and mounts it. Where that cannot be done the error is ErrNoDisk.
func NewDisk(dir string, size int64) (*Disk, error) {
	d := &Disk{At: filepath.Join(dir, "mounted"), image: filepath.Join(dir, "disk")}
	if err := errors.Join(os.MkdirAll(d.At, 0o700), os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, size)); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w %s", ErrNoDisk, err, out)
	}
	return d, d.Mount()
}

// Mount mounts the disk, after Unmount.
func (d *Disk) Mount() error { return Mount(d.At, "-o", "loop", d.image) }

// Unmount unmounts the disk. It may not be mounted.
func (d *Disk) Unmount() error { return Unmount(d.At) }

// Mount mounts a file system at a directory, with mount's arguments. Where that cannot be done, as without root, the error is ErrNoDisk.
func Mount(at string, args ...string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: that needs root", ErrNoDisk)
	}
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: mount: %w %s", ErrNoDisk, err, out)
	}
	return nil
}

// Unmount unmounts what is mounted at the directory, if anything is. Whoever still reads from it is given 5 s.
func Unmount(at string) error {
	var out []byte
	for range 50 {
		if exec.Command("mountpoint", "-q", at).Run() != nil {
			return nil
		}
		var err error
		if out, err = exec.Command("umount", at).CombinedOutput(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond) // that it is no longer busy has no event
	}
	return fmt.Errorf("unmount %s: %s", at, out)
}
