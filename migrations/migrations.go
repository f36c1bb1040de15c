// Package migrations knows the versions of the stored format, and brings a data directory to the newest one. Each version is one
// file of this package, named for its number, with the step that leads to it from the version before.
package migrations

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
)

// ErrNewer says that a newer Millpond wrote the data directory. This one would misread it.
var ErrNewer = errors.New("the data directory was written by a newer Millpond")

// ErrNotData says that the directory holds something, but not what Millpond stores.
var ErrNotData = errors.New("not a Millpond data directory")

// ErrOlder says that the data directory is of a former version, which Migrate changes.
var ErrOlder = errors.New("the data directory is of a former version")

// step leads a data directory from the version before to its own. It may be ended at any point, by a power cut too, and is then run again from its start.
type step func(dir *os.Root, logger *slog.Logger) error

// steps are in order of their versions; the first leads from an empty directory to version 1.
var steps = []step{version1, version2}

// formatName is the file that tells the version: one line, "millpond N". Where it is missing, formatOld counts: it was about to be replaced.
const (
	formatName = "format"
	formatNew  = "format.new"
	formatOld  = "format.old"
	formatWord = "millpond "
)

// Migrate brings the data in dir to the newest version, from nothing where the directory is empty. The directory exists, and no
// other process uses it; names in ignore (the lock) do not count as data. A version that is not known is ErrNewer, a directory
// with other things in it ErrNotData: then nothing is changed. logger is told what takes long.
func Migrate(dir string, logger *slog.Logger, ignore ...string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer root.Close()
	return migrate(root, steps, logger, ignore)
}

// Check tells what Migrate would refuse, and changes nothing: for before the directory is locked, which leaves a file in it.
func Check(dir string, ignore ...string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer root.Close()
	_, err = known(root, steps, ignore)
	return err
}

// Current is Check for who reads the data as it is: that there is none is fs.ErrNotExist, and a former version ErrOlder.
func Current(dir string, ignore ...string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return noData(err)
	}
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer root.Close()
	version, err := known(root, steps, ignore)
	if err == nil && version == 0 {
		return noData(&fs.PathError{Op: "open", Path: formatName, Err: fs.ErrNotExist})
	}
	if err == nil && version < len(steps) {
		return fmt.Errorf("%w: its format is %d, this program's is %d, to which its start brings it", ErrOlder, version, len(steps))
	}
	return err
}

func noData(why error) error {
	return fmt.Errorf("there is no Millpond data there (%w): check the path, or name another with --data", why)
}

func migrate(dir *os.Root, steps []step, logger *slog.Logger, ignore []string) error {
	version, err := known(dir, steps, ignore)
	if err != nil {
		return err
	}
	if _, err := dir.Lstat(formatName); err == nil {
		if err := remove(dir, formatOld); err != nil {
			return fmt.Errorf("remove what told the former format: %w", err)
		}
	}
	for ; version < len(steps); version++ {
		if err := steps[version](dir, logger); err != nil {
			return fmt.Errorf("migrate data to format %d: %w", version+1, err)
		}
		if err := write(dir, version+1); err != nil {
			return fmt.Errorf("migrate data to format %d: %w", version+1, err)
		}
	}
	return nil
}

// known returns the version of the data, where it is one to start from.
func known(dir *os.Root, steps []step, ignore []string) (int, error) {
	version, err := read(dir, ignore)
	if err != nil {
		return 0, err
	}
	if version > len(steps) {
		return 0, fmt.Errorf("%w: its format is %d, this one knows %d: use the newer program, or another directory with --data",
			ErrNewer, version, len(steps))
	}
	return version, nil
}

// read returns the version of the data, 0 for an empty directory.
func read(dir *os.Root, ignore []string) (int, error) {
	line, err := readLine(dir, formatName)
	if errors.Is(err, fs.ErrNotExist) {
		line, err = readLine(dir, formatOld)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, empty(dir, ignore)
	}
	if err != nil {
		return 0, fmt.Errorf("read format of data: %w", err)
	}
	number, found := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(formatWord))
	version, err := strconv.Atoi(string(number))
	if !found || err != nil || version < 1 {
		return 0, fmt.Errorf("%w: its %s file says %q, want %q and a number: %s", ErrNotData, formatName, line, formatWord, formatAdvice())
	}
	return version, nil
}

// formatAdvice is what to do where the file that tells the version is lost and the data is not.
func formatAdvice() string {
	return fmt.Sprintf("if this is one, put the file back from a backup, or write the line \"%s%d\" into it if no newer Millpond was run here", formatWord, len(steps))
}

func readLine(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64))
}

// empty tells a new data directory from one that holds something else, such as a home directory that --data names by mistake.
// What version 1 makes, and a format file that was not finished, are from a first start that was broken off.
func empty(dir *os.Root, ignore []string) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return fmt.Errorf("list data directory: %w", err)
	}
	if held := holds(dir); held != "" {
		return fmt.Errorf("%w: it has no %s file, but holds %s: %s", ErrNotData, formatName, held, formatAdvice())
	}
	known := map[string]bool{formatNew: true, "lost+found": true}
	for _, names := range [][]string{directories1, ignore} {
		for _, name := range names {
			known[name] = true
		}
	}
	for _, e := range entries {
		if !known[e.Name()] {
			return fmt.Errorf("%w: it has no %s file, but holds %q: choose an empty directory with --data", ErrNotData, formatName, e.Name())
		}
	}
	return nil
}

// holds returns the name of something that only Millpond writes, and only beside a format file; empty where there is none.
func holds(dir *os.Root) string {
	if info, err := dir.Lstat(indexName); err == nil && info.Mode().IsRegular() {
		return indexName
	}
	entries, _ := fs.ReadDir(dir.FS(), "log")
	for _, e := range entries {
		first, _, _ := strings.Cut(e.Name(), ".") // of one that was rewritten
		if _, err := strconv.ParseUint(first, 10, 64); err == nil && len(first) >= 6 && e.Type().IsRegular() {
			return "log/" + e.Name()
		}
	}
	return ""
}

// write says which version the data now has: whole or not at all, also after a power cut.
func write(dir *os.Root, version int) error {
	f, err := dir.OpenFile(formatNew, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", formatWord, version)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := dir.Lstat(formatName); err == nil {
		if err := remove(dir, formatOld); err != nil {
			return err
		}
		if err := move(dir, formatName, formatOld); err != nil {
			return err
		}
		if err := syncDir(dir, "."); err != nil {
			return err
		}
	}
	if err := move(dir, formatNew, formatName); err != nil {
		return err
	}
	if err := syncDir(dir, "."); err != nil {
		return err
	}
	return remove(dir, formatOld)
}
