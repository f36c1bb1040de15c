package migrations

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// frozen1 puts the index that a program of version 1 wrote, with so many rows more, into a new directory.
func frozen1(t *testing.T, more int) (dir string) {
	t.Helper()
	f, err := os.Open("testdata/version1/whole.tar.gz")
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
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if head.Name == indexName || head.Name == formatName {
			put(t, dir, head.Name, string(content))
		}
	}
	change1(t, dir, func(tx *bbolt.Tx) error {
		rows := tx.Bucket(rows1)
		c := rows.Cursor()
		k, row := c.Last()
		row = bytes.Clone(row)
		for id := binary.BigEndian.Uint64(k) + 1; more > 0; id, more = id+1, more-1 {
			binary.LittleEndian.PutUint64(row[38:], id) // its request's bytes
			if err := rows.Put(binary.BigEndian.AppendUint64(nil, id), row); err != nil {
				return err
			}
			row = bytes.Clone(row)
		}
		return nil
	})
	return dir
}

// change1 changes the index of the directory.
func change1(t *testing.T, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, indexName), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
}

// contents are all entries of an index, by bucket and key.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := make(map[string]string)
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			all[string(name)] = "a bucket"
			return b.ForEach(func(k, v []byte) error {
				all[string(name)+" "+string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func checkContents(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	got := contents(t, filepath.Join(dir, indexName))
	if len(got) != len(want) {
		t.Errorf("%s: the index has %d entries, want %d", what, len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("%s: %q is %x, want %x", what, k, got[k], v)
		}
	}
	if names, _ := look(t, dir); names != "format index.db " {
		t.Errorf("%s: there are %s", what, names)
	}
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func upgrade(t *testing.T, dir string) {
	t.Helper()
	if err := version2(openRoot(t, dir), discard); err != nil {
		t.Fatal(err)
	}
}

// TestVersion2KeepsWhatThereIs: each entry of each bucket, transcoded or as it was.
func TestVersion2KeepsWhatThereIs(t *testing.T) {
	dir := frozen1(t, 1000)
	before := contents(t, filepath.Join(dir, indexName))
	upgrade(t, dir)
	want := make(map[string]string)
	kinds := make(map[string]int)
	for k, v := range before {
		bucket, key, entry := strings.Cut(k, " ")
		kinds[bucket]++
		var b []byte
		var err error
		switch {
		case !entry:
			b = []byte(v)
		case bucket == "rows":
			b, err = row2([]byte(v))
		case bucket == "segments":
			b = append([]byte(v), make([]byte, 12)...)
		case bucket == "graves":
			b = append([]byte(v), "\xff\xff\xff\xff\xff\xff\xff\xff"...)
		default:
			b = []byte(v)
		}
		if err != nil {
			t.Fatal(err)
		}
		if bucket == "rows" {
			bucket = "rows2"
		}
		if entry {
			bucket += " " + key
		}
		want[bucket] = string(b)
	}
	for _, bucket := range []string{"meta", "rows", "segments", "slots", "chunks", "words", "graves", "shares"} {
		if kinds[bucket] < 2 {
			t.Errorf("the fixture has nothing in %s", bucket)
		}
	}
	checkContents(t, "brought up", dir, want)
	upgrade(t, dir)
	checkContents(t, "brought up twice", dir, want)
}

// TestVersion2StartsOverOrFindsItDone: ended before anything that it does, with what it was writing whole or torn.
func TestVersion2StartsOverOrFindsItDone(t *testing.T) {
	dir := frozen1(t, 40_000)
	reference := copied(t, dir)
	upgrade(t, reference)
	want := contents(t, filepath.Join(reference, indexName))
	moments := make(map[string]string) // to what the directory was then
	copies := 0
	next := func(what string) {
		if copies++; moments[what] == "" || strings.HasPrefix(what, "copy rows") {
			moments[fmt.Sprint(copies, ": ", what)] = copied(t, dir)
		}
	}
	if err := toVersion2(openRoot(t, dir), discard, next); err != nil {
		t.Fatal(err)
	}
	checkContents(t, "not ended", dir, want)
	rows := 0
	for what, at := range moments {
		if strings.Contains(what, "copy rows") {
			rows++
		}
		torn := copied(t, at)
		if fresh := filepath.Join(torn, indexNew); len(moments) > 0 {
			if whole, err := os.ReadFile(fresh); err == nil {
				put(t, torn, indexNew, string(whole[:len(whole)/3]))
			}
		}
		upgrade(t, at)
		checkContents(t, "ended before "+what, at, want)
		if !strings.Contains(what, "move "+indexNew) { // by then it is synced
			upgrade(t, torn)
			checkContents(t, "torn before "+what, torn, want)
		}
	}
	for _, what := range []string{"start", "make the new index", "sync the new index", "move index.db", "move index.db.new", "remove the former index", "end"} {
		found := false
		for moment := range moments {
			found = found || strings.HasSuffix(moment, ": "+what)
		}
		if !found {
			t.Errorf("nothing was ended before: %s", what)
		}
	}
	if rows < 2 {
		t.Errorf("rows were copied in %d batches, want some", rows)
	}
}

// TestVersion2KnowsWhatAFormerProgramDidMeanwhile: it was run between the two moves, and made its index again. Or the new index was damaged before all was done.
func TestVersion2KnowsWhatAFormerProgramDidMeanwhile(t *testing.T) {
	again := frozen1(t, 10)
	reference := copied(t, again)
	upgrade(t, reference)
	want := contents(t, filepath.Join(reference, indexName))

	older, err := os.ReadFile(filepath.Join(frozen1(t, 5), indexName))
	if err != nil {
		t.Fatal(err)
	}
	put(t, again, indexAside, string(older))
	upgrade(t, again)
	checkContents(t, "made again meanwhile", again, want)

	damaged := frozen1(t, 10)
	if err := os.Rename(filepath.Join(damaged, indexName), filepath.Join(damaged, indexAside)); err != nil {
		t.Fatal(err)
	}
	put(t, damaged, indexName, strings.Repeat("damaged ", 10_000))
	upgrade(t, damaged)
	checkContents(t, "the new one was damaged", damaged, want)
}

// TestVersion2LeavesADamagedIndexAsItIs: storage makes it again.
func TestVersion2LeavesADamagedIndexAsItIs(t *testing.T) {
	page := os.Getpagesize()
	row := func(change func(row []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			change1(t, dir, func(tx *bbolt.Tx) error {
				k, v := tx.Bucket(rows1).Cursor().Last()
				return tx.Bucket(rows1).Put(bytes.Clone(k), change(bytes.Clone(v)))
			})
		}
	}
	file := func(change func(b []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, indexName))
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, indexName, string(change(b)))
		}
	}
	tests := map[string]func(t *testing.T, dir string){
		"no database":     file(func([]byte) []byte { return bytes.Repeat([]byte("x"), 100_000) }),
		"an empty file":   file(func([]byte) []byte { return nil }),
		"half a file":     file(func(b []byte) []byte { return b[:6*page] }),
		"zeros in pages":  file(func(b []byte) []byte { clear(b[4*page : 60*page]); return b }),
		"a short row":     row(func(v []byte) []byte { return v[:97] }),
		"a torn text":     row(func(v []byte) []byte { return v[:len(v)-1] }),
		"unknown flags":   row(func(v []byte) []byte { v[7] = 1; return v }),
		"an unknown word": row(func(v []byte) []byte { v[15] = 1; return v }),
		"a bucket's value": func(t *testing.T, dir string) {
			change1(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(segments).Put([]byte("12345678"), []byte("short")) })
		},
		"a bucket in rows": func(t *testing.T, dir string) {
			change1(t, dir, func(tx *bbolt.Tx) error { _, err := tx.Bucket(rows1).CreateBucket([]byte("zzzz")); return err })
		},
		"no rows": func(t *testing.T, dir string) {
			change1(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(rows1) })
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			dir := frozen1(t, 5000)
			damage(t, dir)
			before, err := os.ReadFile(filepath.Join(dir, indexName))
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			if err := version2(openRoot(t, dir), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(filepath.Join(dir, indexName))
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the index was changed, %v", err)
			}
			if names, _ := look(t, dir); names != "format index.db " {
				t.Errorf("there are %s", names)
			}
			if !strings.Contains(log.String(), "cannot be brought to version 2") {
				t.Errorf("it says %s", log.String())
			}
		})
	}
}

// TestVersion2WantsRoomFirst: with an index as long as the disk has room, it changes nothing and says so.
func TestVersion2WantsRoomFirst(t *testing.T) {
	dir := frozen1(t, 0)
	root := openRoot(t, dir)
	left, err := free(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, indexName), int64(left)+1<<30); err != nil { // a hole takes no room
		t.Skipf("NOT RUN: no file can be that long here: %v", err)
	}
	err = version2(root, discard)
	if err == nil || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), dir) {
		t.Errorf("it says %v", err)
	}
	if names, format := look(t, dir); names != "format index.db " || format != "millpond 1\n" {
		t.Errorf("there are %s with format %s", names, format)
	}
}

// TestRow2KeepsEachNumber: at each limit of the narrower fields. Offsets are those of the two versions.
func TestRow2KeepsEachNumber(t *testing.T) {
	le := binary.LittleEndian
	for name, field := range map[string]struct{ from, bytes, to, bits, wide int }{
		"request bytes":  {38, 8, 30, 40, 0},
		"response bytes": {46, 8, 35, 40, 8},
		"duration":       {62, 8, 48, 48, 16},
		"first byte":     {70, 8, 54, 48, 24},
		"segment":        {78, 8, 60, 32, 32},
		"first segment":  {90, 8, 67, 32, 40},
		"slot":           {86, 4, 64, 24, 48},
	} {
		limit := uint64(1) << field.bits
		for _, n := range []uint64{0, 1, limit - 1, limit, limit + 1, math.MaxUint64 >> (64 - 8*field.bytes)} {
			v := make([]byte, 98)
			for i := range v[8:36] {
				v[8+i] = byte(i%4+1) % 4 // words 0x030201
			}
			copy(v[38:], bytes.Repeat([]byte{1}, 60))
			clear(v[43:46])
			clear(v[51:54])
			clear(v[68:70])
			clear(v[76:78])
			clear(v[82:86])
			v[89] = 0
			clear(v[94:98])
			var whole [8]byte
			le.PutUint64(whole[:], n)
			copy(v[field.from:], whole[:field.bytes])
			v = append(v, "\x02\x03err\x01\x05/path\x10\x04WORD"...)
			h, err := row2(v)
			if err != nil {
				t.Fatal(err)
			}
			rest, wide := "\x05/path\x02\x03err\x10\x04WORD", n>>field.bits != 0
			if string(h[71:71+len(rest)]) != rest || (h[1]&2 != 0) != wide {
				t.Errorf("%s %d: the row ends with %q, wide: %v", name, n, h[71:], h[1])
			}
			got := whole
			clear(got[:])
			if wide {
				w := h[71+len(rest):]
				if len(w) != 2+52 || w[0] != 1 || w[1] != 52 {
					t.Fatalf("%s %d: its numbers are %x", name, n, w)
				}
				copy(got[:field.bytes], w[2+field.wide:])
				if field.wide != 16 && le.Uint64(w[2+16:]) != 0x010101010101 {
					t.Errorf("%s %d: the duration became %x", name, n, w)
				}
			} else {
				copy(got[:field.bits/8], h[field.to:])
			}
			if le.Uint64(got[:]) != n {
				t.Errorf("%s %d: it became %x", name, n, got)
			}
			if string(h[7:28]) != strings.Repeat("\x01\x02\x03", 7) {
				t.Errorf("%s %d: its words became %x", name, n, h[7:28])
			}
		}
	}
}
