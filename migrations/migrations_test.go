package migrations

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// look returns the directory's names, and its format file's content.
func look(t *testing.T, dir string) (names, format string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names += e.Name() + " "
	}
	line, err := os.ReadFile(filepath.Join(dir, formatName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names, string(line)
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

var discard = slog.New(slog.DiscardHandler)

const made = "ca chunks derived format incoming lock log "

func TestMigrateMakesAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "lock", "")
	if err := Check(dir, "lock"); err != nil {
		t.Error(err)
	}
	if names, _ := look(t, dir); names != "lock " {
		t.Errorf("Check left %q", names)
	}
	for run := range 2 { // the second changes nothing
		if err := Migrate(dir, discard, "lock"); err != nil {
			t.Fatal(err)
		}
		if names, format := look(t, dir); names != made || format != "millpond 2\n" {
			t.Errorf("run %d: made %q with format %q", run, names, format)
		}
	}
	if chunks, err := os.ReadDir(filepath.Join(dir, "chunks")); len(chunks) != 256 || chunks[171].Name() != "ab" || err != nil {
		t.Errorf("chunks has %d directories, %v", len(chunks), err)
	}
}

func TestMigrateFinishesABrokenFirstStart(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "lock", "")
	put(t, dir, formatNew, "mill")
	for _, name := range []string{"log", "chunks", "chunks/00"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Migrate(dir, discard, "lock"); err != nil {
		t.Fatal(err)
	}
	if names, format := look(t, dir); names != made || format != "millpond 2\n" {
		t.Errorf("made %q with format %q", names, format)
	}
}

func TestMigrateRefusesAndChangesNothing(t *testing.T) {
	tests := []struct {
		name, file, content string
		want                error
		says                string
	}{
		{"a newer format", formatName, "millpond 3\n", ErrNewer, "its format is 3, this one knows 2: use the newer program"},
		{"a much newer format", formatName, "millpond 1000000\n", ErrNewer, "1000000"},
		{"a format file of another program", formatName, "leveldb 1\n", ErrNotData, "leveldb"},
		{"format 0", formatName, "millpond 0\n", ErrNotData, "millpond 0"},
		{"an empty format file", formatName, "", ErrNotData, `""`},
		{"a long format file", formatName, "millpond " + strings.Repeat("1", 1<<20), ErrNotData, "1111"},
		{"somebody's home", "letters.txt", "dear", ErrNotData, `holds "letters.txt": choose an empty directory with --data`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, test.file, test.content)
			if err := Check(dir); !errors.Is(err, test.want) {
				t.Errorf("Check: %v, want %v", err, test.want)
			}
			err := Migrate(dir, discard)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error is %v, want %v that says %s", err, test.want, test.says)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			names, _ := look(t, dir)
			content, _ := os.ReadFile(filepath.Join(dir, test.file))
			if names != test.file+" " || string(content) != test.content {
				t.Errorf("left %q with %q", names, content)
			}
		})
	}
}

func TestMigrateRunsTheStepsThatAreMissing(t *testing.T) {
	dir := t.TempDir()
	if err := Migrate(dir, discard); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the power went")
	var ran []string
	fail := true
	steps := []step{
		version1,
		version2,
		func(*os.Root, *slog.Logger) error { ran = append(ran, "3"); return nil },
		func(*os.Root, *slog.Logger) error {
			ran = append(ran, "4")
			if fail {
				return broken
			}
			return nil
		},
	}
	root := openRoot(t, dir)
	if err := migrate(root, steps, discard, nil); !errors.Is(err, broken) || !strings.Contains(err.Error(), "to format 4") {
		t.Errorf("error is %v", err)
	}
	if _, format := look(t, dir); format != "millpond 3\n" {
		t.Errorf("after the broken step the format is %q", format)
	}
	fail = false
	if err := migrate(root, steps, discard, nil); err != nil {
		t.Fatal(err)
	}
	if _, format := look(t, dir); format != "millpond 4\n" {
		t.Errorf("the format is %q", format)
	}
	if got := strings.Join(ran, " "); got != "3 4 4" {
		t.Errorf("ran steps %s, want 3 4 4", got)
	}
	if err := Migrate(dir, discard); !errors.Is(err, ErrNewer) {
		t.Errorf("the program that knows only 2 says %v", err)
	}
}

// TestMissingFormatOfData: where the log or the index is there, the format file was lost, and what to write into it is said.
func TestMissingFormatOfData(t *testing.T) {
	for _, name := range []string{"index.db", "log/000017", "log/000017.1"} {
		dir := t.TempDir()
		if err := Migrate(dir, discard); err != nil {
			t.Fatal(err)
		}
		put(t, dir, name, "data")
		if err := os.Remove(filepath.Join(dir, formatName)); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{Check(dir), Migrate(dir, discard), Current(dir)} {
			if want := fmt.Sprintf("it has no format file, but holds %s: if this is one, put the file back from a backup, or write the line \"millpond 2\" into it", name); !errors.Is(err, ErrNotData) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		put(t, dir, formatName, "millpond 2\n")
		if err := Migrate(dir, discard); err != nil {
			t.Errorf("%s: after it was written: %v", name, err)
		}
	}
}

// TestFormatFileIsReplacedWhole: ended anywhere while the format file is replaced, the directory has its former version or its new one.
func TestFormatFileIsReplacedWhole(t *testing.T) {
	for _, test := range []struct {
		format, old, fresh string
		want               string
	}{
		{"millpond 1\n", "", "mill", "millpond 1\n"},
		{"", "millpond 1\n", "millpond 2\n", "millpond 1\n"},
		{"millpond 2\n", "millpond 1\n", "", "millpond 2\n"},
	} {
		dir := t.TempDir()
		for name, content := range map[string]string{formatName: test.format, formatOld: test.old, formatNew: test.fresh} {
			if content != "" {
				put(t, dir, name, content)
			}
		}
		root := openRoot(t, dir)
		if version, err := read(root, nil); err != nil || fmt.Sprintf("millpond %d\n", version) != test.want {
			t.Errorf("%+v: the version is %d, %v", test, version, err)
		}
		if err := Current(dir); errors.Is(err, ErrOlder) != (test.want == "millpond 1\n") {
			t.Errorf("%+v: Current says %v", test, err)
		}
		nothing := func(*os.Root, *slog.Logger) error { return nil }
		if err := migrate(root, []step{nothing, nothing}, discard, nil); err != nil {
			t.Fatal(err)
		}
		if names, format := look(t, dir); names != "format " || format != "millpond 2\n" {
			t.Errorf("%+v: became %s with %q", test, names, format)
		}
	}
}
