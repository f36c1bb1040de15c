package storagetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"millpond/storage"
)

// Files is the suite that each file layer meets. open makes one over an empty directory.
func Files(t *testing.T, open func(t *testing.T) storage.Files) {
	t.Helper()
	run := func(name string, test func(t *testing.T, files storage.Files)) {
		t.Run(name, func(t *testing.T) {
			files := open(t)
			t.Cleanup(func() { files.Close() })
			test(t, files)
		})
	}
	run("writes and reads", writesAndReads)
	run("appends", appends)
	run("truncates", truncates)
	run("never renames over a file", neverRenamesOver)
	run("keeps an open file's content when it is renamed and removed", keepsOpenFile)
	run("lists, makes and removes", listsMakesRemoves)
	run("stays inside", staysInside)
	run("tells its space", tellsSpace)
}

// Make creates a file with the content, or ends the test.
func Make(t *testing.T, files storage.Files, name, content string) {
	t.Helper()
	f, err := files.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, content); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Content returns what the file holds, or ends the test.
func Content(t *testing.T, files storage.Files, name string) string {
	t.Helper()
	f, err := files.OpenFile(name, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return content(t, f)
}

func content(t *testing.T, f storage.File) string {
	t.Helper()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func writesAndReads(t *testing.T, files storage.Files) {
	_, err := files.OpenFile("a", os.O_RDWR)
	want(t, err, fs.ErrNotExist)

	f, err := files.OpenFile("a", os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []string{"mill", "", "pond"} {
		if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", part, n, err)
		}
	}
	if n, err := f.WriteAt([]byte("L"), 2); n != 1 || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "miLlpond" {
		t.Errorf("content is %q", got)
	}
	p := make([]byte, 16)
	n, err := f.ReadAt(p, 4)
	if string(p[:n]) != "pond" || err != io.EOF {
		t.Errorf("ReadAt past the end = %q, %v, want pond, EOF", p[:n], err)
	}

	_, err = files.OpenFile("a", os.O_CREATE|os.O_EXCL|os.O_RDWR)
	want(t, err, fs.ErrExist)
	info, err := files.Stat("a")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 8 {
		t.Errorf("size is %d, want 8", info.Size())
	}
	if got := info.Mode().Perm(); got&0o077 != 0 && filepath.Separator == '/' {
		t.Errorf("mode is %o: others may read what was captured", got)
	}
}

func appends(t *testing.T, files storage.Files) {
	Make(t, files, "log", "one ")
	f, err := files.OpenFile("log", os.O_RDWR|os.O_APPEND)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, "two"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "one two" {
		t.Errorf("content is %q", got)
	}
}

func truncates(t *testing.T, files storage.Files) {
	Make(t, files, "a", "whole torn")
	f, err := files.OpenFile("a", os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(5); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "whole" {
		t.Errorf("content is %q", got)
	}
	if err := f.Truncate(7); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "whole\x00\x00" {
		t.Errorf("content is %q", got)
	}
}

func neverRenamesOver(t *testing.T, files storage.Files) {
	Make(t, files, "a", "first")
	Make(t, files, "b", "second")
	want(t, files.Rename("a", "b"), fs.ErrExist)
	want(t, files.Rename("none", "c"), fs.ErrNotExist)
	if a, b := Content(t, files, "a"), Content(t, files, "b"); a != "first" || b != "second" {
		t.Errorf("contents are %q, %q", a, b)
	}
	if err := files.Rename("a", "c"); err != nil {
		t.Fatal(err)
	}
	if got := Content(t, files, "c"); got != "first" {
		t.Errorf("content is %q", got)
	}
	_, err := files.Stat("a")
	want(t, err, fs.ErrNotExist)
}

func keepsOpenFile(t *testing.T, files storage.Files) {
	Make(t, files, "a", "still here")
	f, err := files.OpenFile("a", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := files.Rename("a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "still here" {
		t.Errorf("content is %q", got)
	}
}

func listsMakesRemoves(t *testing.T, files storage.Files) {
	if err := files.Mkdir("chunks"); err != nil {
		t.Fatal(err)
	}
	want(t, files.Mkdir("chunks"), fs.ErrExist)
	want(t, files.Mkdir("no/parent"), fs.ErrNotExist)
	for _, name := range []string{"chunks/b", "chunks/a", "top"} {
		Make(t, files, name, name)
	}
	for _, dir := range []string{".", "chunks"} {
		if err := files.SyncDir(dir); err != nil {
			t.Errorf("SyncDir(%q): %v", dir, err)
		}
	}
	list := func(dir string) string {
		t.Helper()
		entries, err := files.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names bytes.Buffer
		for _, e := range entries {
			names.WriteString(e.Name() + " ")
		}
		return names.String()
	}
	if got := list("."); got != "chunks top " {
		t.Errorf("the data directory has %q", got)
	}
	if got := list("chunks"); got != "a b " {
		t.Errorf("chunks has %q", got)
	}
	if err := files.Remove("chunks"); err == nil {
		t.Error("a directory that is not empty was removed")
	}
	for _, name := range []string{"chunks/a", "chunks/b", "chunks"} {
		if err := files.Remove(name); err != nil {
			t.Error(err)
		}
	}
	want(t, files.Remove("chunks"), fs.ErrNotExist)
	_, err := files.ReadDir("chunks")
	want(t, err, fs.ErrNotExist)
}

func staysInside(t *testing.T, files storage.Files) {
	for _, name := range []string{"../out", "/etc/hosts", "a/../../out"} {
		if f, err := files.OpenFile(name, os.O_CREATE|os.O_RDWR); err == nil {
			f.Close()
			t.Errorf("opened %s", name)
		}
	}
}

func tellsSpace(t *testing.T, files storage.Files) {
	free, total, err := files.Space()
	if err != nil {
		t.Fatal(err)
	}
	if free == 0 || free > total {
		t.Errorf("free %d of %d", free, total)
	}
}
