package migrations

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// directories1 are the directories of version 1: log segments, chunks by the first two digits of their name, incoming files,
// derived bodies, and the certificate authority. The index lies beside them.
var directories1 = []string{"log", "chunks", "incoming", "derived", "ca"}

// version1 makes the directories of the first format.
func version1(dir *os.Root, _ *slog.Logger) error {
	for _, name := range directories1 {
		if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for i := range 256 {
		if err := dir.Mkdir(fmt.Sprintf("chunks/%02x", i), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return errors.Join(syncDir(dir, "chunks"), syncDir(dir, "."))
}
