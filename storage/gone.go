package storage

import (
	"errors"
	"io/fs"
	"os"
)

// errDirGone is why nothing is kept where somebody removed the data directory, or put another in its place. Files that are open still take all that is written,
// in vain.
var errDirGone = errors.New("the data directory was removed or replaced: nothing is kept until Millpond is restarted")

// gone reports whether the data directory is still the one that was opened, by its format file, which stays as it is while a store is open. Once it is not, that
// stands: to go on in one that was put back would write into what somebody restored.
func (s *Store) gone() error {
	if s.format == nil {
		return nil
	}
	if !s.dirGone.Load() {
		info, err := s.files.Stat("format")
		if err == nil && os.SameFile(info, s.format) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		s.dirGone.Store(true)
	}
	return errDirGone
}
