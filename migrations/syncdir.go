//go:build !windows

package migrations

import "os"

// syncDir makes the names in a directory durable.
func syncDir(dir *os.Root, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
