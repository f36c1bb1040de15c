//go:build !linux

package storage

import "os"

// syncData is the whole sync; on macOS that is F_FULLFSYNC, which also empties the drive's cache.
func syncData(f *os.File) error { return f.Sync() }
