package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

// frozenDir is where the fixtures of a version are.
const frozenDir = "../migrations/testdata/version1"

// thaw unpacks a fixture into a new directory, and returns what the program that wrote it told of it.
func thaw(t *testing.T, name string) (dir string, told harness.Told) {
	t.Helper()
	f, err := os.Open(filepath.Join(frozenDir, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for archive := tar.NewReader(zipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(head.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(frozenDir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	return dir, told
}

// A data directory of version 1 is shown by this program as the program that wrote it showed it: every session, body, message and note.
func TestMigratedDirectoryReadsAsBefore(t *testing.T) {
	for _, name := range []string{"whole", "unclean"} {
		t.Run(name, func(t *testing.T) {
			dir, want := thaw(t, name)
			for range 2 { // the second start finds it done
				p := harness.Start(t, dir)
				checkTold(t, p, want)
				stop(t, p)
				if format, err := os.ReadFile(filepath.Join(dir, "format")); string(format) != "millpond 2\n" {
					t.Errorf("the format is %q, %v", format, err)
				}
				checkVerified(t, dir)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.*")); len(left) != 1 {
				t.Errorf("there are %v, want an index alone", left)
			}
		})
	}
}

// checkTold compares what the program tells to what another one told. It may tell more of a session.
func checkTold(t *testing.T, p *harness.Program, want harness.Told) {
	t.Helper()
	got, err := p.Tell()
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Sessions) == 0 || len(got.Sessions) != len(want.Sessions) {
		t.Fatalf("there are %d sessions, want %d", len(got.Sessions), len(want.Sessions))
	}
	for i, s := range want.Sessions {
		holds(t, string(s.Row), plain(t, got.Sessions[i]), plain(t, s))
	}
}

// plain is a value as JSON has it.
func plain(t *testing.T, v any) (plain any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// holds reports each value of want that got does not have.
func holds(t *testing.T, at string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		fields, _ := got.(map[string]any)
		for name, v := range want {
			holds(t, at+" "+name, fields[name], v)
		}
	case []any:
		items, _ := got.([]any)
		if len(items) != len(want) {
			t.Errorf("%.200s: %d items, want %d", at, len(items), len(want))
			return
		}
		for i, v := range want {
			holds(t, at+" item", items[i], v)
		}
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", strings.TrimSpace(at), got, want)
		}
	}
}
