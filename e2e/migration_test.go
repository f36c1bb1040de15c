package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"millpond/e2e/harness"
	"millpond/storage"
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

// An index of version 1 that is damaged is set aside, and made again from the log: its sessions are there, and its shares as far as they can be read.
func TestDamagedFormerIndexIsMadeAgain(t *testing.T) {
	dir, want := thaw(t, "whole")
	index := filepath.Join(dir, "index.db")
	db, err := bbolt.Open(index, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket([]byte("rows")).Cursor().First()
		return tx.Bucket([]byte("rows")).Put(bytes.Clone(k), []byte("no row"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	p := harness.Start(t, dir)
	checkTold(t, p, want)
	stop(t, p)
	if log := p.Log(); !strings.Contains(log, "cannot be brought to version 2") || !strings.Contains(log, "shares are kept from the damaged index") {
		t.Errorf("it logged %s", log)
	}
	if got, before := indexed(t, index, "shares"), indexed(t, index+".damaged-1", "shares"); len(before) == 0 || !maps.Equal(got, before) {
		t.Errorf("%d shares became %d", len(before), len(got))
	}
	checkVerified(t, dir)
}

// indexed returns the entries of a bucket of an index that no program has open.
func indexed(t *testing.T, path, bucket string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := make(map[string]string)
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return fmt.Errorf("%s has no bucket %s", path, bucket)
		}
		return b.ForEach(func(k, v []byte) error {
			all[string(k)] = string(v)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A directory with many sessions is killed while it is brought up, each time at another moment: it is brought up by the next start, or the one after
// that, with each session as it was.
func TestKilledWhileBroughtUp(t *testing.T) {
	const sessions, kills = 30_000, 20
	former := t.TempDir()
	store, err := storage.OpenStore(storage.Config{Dir: former})
	if err != nil {
		t.Fatal(err)
	}
	for n := range sessions {
		r := store.Begin(storage.Session{
			Method: "GET", Scheme: "https", Host: fmt.Sprintf("host%d.example.com", n%300), Path: fmt.Sprintf("/some/longer/path/%d?to=what", n),
			Client: fmt.Sprintf("127.0.0.1:%d", 1+n%60_000), Protocol: "HTTP/1.1", Status: 200, Note: fmt.Sprint("noted ", n),
		})
		body := r.Body(storage.Response)
		body.Write(fmt.Appendf(nil, "the body of %d", n/2))
		body.Complete()
		body.Wait(t.Context())
		r.End(storage.Done, "")
	}
	if err := errors.Join(store.PutShare("share", []byte("of a session")), store.Close()); err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(former, "index.db")
	want := indexed(t, index, "rows2")
	bringDown(t, former)

	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	// start has the program begin, and kills it after a time or when it is through, whichever is first; 0 is no time.
	start := func(dir string, after time.Duration) (took time.Duration) {
		cmd := exec.Command(binary, "--data", dir, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); unfinished(dir) && (after == 0 || took < after); took = time.Since(began) {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return took
	}
	killed, whole := 0, time.Duration(0)
	for attempt := 0; killed < kills; attempt++ {
		if attempt == 5*kills {
			t.Fatalf("of %d attempts %d ended while the directory was brought up", attempt, killed)
		}
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(former)); err != nil {
			t.Fatal(err)
		}
		for round := range 3 { // a directory is killed up to three times
			took := start(dir, whole*time.Duration((attempt*3+round)%19+1)/20)
			if !unfinished(dir) {
				whole = took
				break
			}
			killed++
		}
		p := harness.Start(t, dir)
		stop(t, p)
		if got := indexed(t, filepath.Join(dir, "index.db"), "rows2"); !maps.Equal(got, want) {
			t.Fatalf("attempt %d: %d rows became %d, or others", attempt, len(want), len(got))
		}
		if got := indexed(t, filepath.Join(dir, "index.db"), "shares"); got["share"] != "of a session" {
			t.Fatalf("attempt %d: the shares are %v", attempt, got)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.*")); len(left) != 1 {
			t.Fatalf("attempt %d: there are %v, want an index alone", attempt, left)
		}
		if killed >= kills {
			checkVerified(t, dir)
		}
		os.RemoveAll(dir)
	}
	t.Logf("%d kills while it was brought up, which takes some %v", killed, whole)
}

// unfinished reports whether the directory is still of version 1.
func unfinished(dir string) bool {
	format, err := os.ReadFile(filepath.Join(dir, "format"))
	return err != nil || string(format) != "millpond 2\n"
}

// bringDown makes a directory of version 1 of one of version 2, but for the heads of segments: what the fixtures are too small for.
func bringDown(t *testing.T, dir string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "index.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	err = db.Update(func(tx *bbolt.Tx) error {
		rows, err := tx.CreateBucket([]byte("rows"))
		if err != nil {
			return err
		}
		if err := tx.Bucket([]byte("rows2")).ForEach(func(k, v []byte) error {
			old := append(bytes.Clone(v[:4]), v[4], v[5], v[6], 0)
			for i := range 7 {
				old = append(old, v[7+3*i], v[8+3*i], v[9+3*i], 0)
			}
			old = append(old, v[28:30]...)
			old = append(append(old, v[30:35]...), 0, 0, 0)
			old = append(append(old, v[35:40]...), 0, 0, 0)
			old = append(old, v[40:48]...)
			old = append(append(old, v[48:54]...), 0, 0)
			old = append(append(old, v[54:60]...), 0, 0)
			old = le.AppendUint64(old, uint64(le.Uint32(v[60:])))
			old = append(old, v[64], v[65], v[66], 0)
			old = le.AppendUint64(old, uint64(le.Uint32(v[67:])))
			length, n := binary.Uvarint(v[71:])
			old = append(append(old, 1), v[71:71+n+int(length)]...)
			return rows.Put(bytes.Clone(k), append(old, v[71+n+int(length):]...))
		}); err != nil {
			return err
		}
		shorter := func(bucket string, size int) error {
			b := tx.Bucket([]byte(bucket))
			all := make(map[string][]byte)
			if err := b.ForEach(func(k, v []byte) error { all[string(k)] = bytes.Clone(v[:size]); return nil }); err != nil {
				return err
			}
			for k, v := range all {
				if err := b.Put([]byte(k), v); err != nil {
					return err
				}
			}
			return nil
		}
		return errors.Join(shorter("segments", 25), shorter("graves", 8), tx.DeleteBucket([]byte("rows2")))
	})
	if err := errors.Join(err, db.Close(), os.WriteFile(filepath.Join(dir, "format"), []byte("millpond 1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Who reads a directory as it is does not read one of a former version, and says what to do. A backup copies it as it is, for before that.
func TestFormerDirectoryIsNotReadAsItIs(t *testing.T) {
	dir, _ := thaw(t, "whole")
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"verify"}, {"verify", "--full"}, {"compact"}} {
		out, err := exec.Command(binary, append(command, "--data", dir)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "its format is 1, this program's is 2, to which its start brings it") {
			t.Errorf("%s: %v, %s", command, err, out)
		}
	}
	to := filepath.Join(t.TempDir(), "to")
	if out, err := exec.Command(binary, "backup", to, "--data", dir).CombinedOutput(); err != nil || !strings.Contains(string(out), "backed up ") || strings.Contains(string(out), "backed up 0 ") {
		t.Errorf("backup: %v, %s", err, out)
	}
	if a, b := indexed(t, filepath.Join(dir, "index.db"), "rows"), indexed(t, filepath.Join(to, "index.db"), "rows"); !maps.Equal(a, b) || !unfinished(to) {
		t.Error("the backup has another index")
	}
	if !unfinished(dir) || len(indexed(t, filepath.Join(dir, "index.db"), "rows")) == 0 {
		t.Error("the directory was changed")
	}
}
