package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// TestRepairOfTheIndex damages the index, or has it lie: it is made again from the log, which lost nothing, and the old one is kept.
func TestRepairOfTheIndex(t *testing.T) {
	c := newRepairCase(t)
	inBucket := func(name []byte, fn func(k, v []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				b := tx.Bucket(name)
				k, v := b.Cursor().Last()
				return b.Put(bytes.Clone(k), fn(k, bytes.Clone(v)))
			})
		}
	}
	for name, damage := range map[string]func(t *testing.T, dir string){
		"cut short": func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, indexName), 3*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		},
		"other bytes": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, indexName), noise(1, 100_000), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no bucket": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketRows) })
		},
		"a row less": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketRows).Delete(idKey(c.plain)) })
		},
		"a row of another record": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucketRows)
				return b.Put(idKey(c.plain), bytes.Clone(b.Get(idKey(c.plain+1))))
			})
		},
		"a row's text": inBucket(bucketRows, func(_, v []byte) []byte { v[len(v)-1] ^= 1; return v }),
		"a word":       inBucket(bucketWords, func(_, v []byte) []byte { v[0] ^= 1; return v }),
		"a slot's place": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucketSlots)
				k := pageKey{3, 0}.bytes()
				var p slotPage
				p.decode(b.Get(k))
				p.slots[2].offset += 100
				return b.Put(k, p.encode())
			})
		},
		"a slot's names": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucketSlots)
				k := pageKey{3, 0}.bytes()
				var p slotPage
				p.decode(b.Get(k))
				p.slots[2].refs++
				return b.Put(k, p.encode())
			})
		},
		"a chunk's length": inBucket(bucketChunks, func(_, v []byte) []byte { v[0] ^= 1; return v }),
		"a chunk's names":  inBucket(bucketChunks, func(_, v []byte) []byte { v[4] += 5; return v }),
		"a chunk more": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				return tx.Bucket(bucketChunks).Put(noise(1, 32), (&chunkRow{100, 1}).encode())
			})
		},
		"a chunk less": func(t *testing.T, dir string) {
			inIndex(t, dir, func(tx *bbolt.Tx) error {
				k, _ := tx.Bucket(bucketChunks).Cursor().First()
				return tx.Bucket(bucketChunks).Delete(bytes.Clone(k))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := c.copy(t)
			damage(t, dir)
			if len(verifyAll(t, dir)) == 0 {
				t.Fatal("verify finds nothing wrong")
			}
			done, lines := repairAll(t, dir)
			if done.Lost > 0 {
				t.Errorf("%d sessions lost something: %s", done.Lost, lines)
			}
			if _, err := os.Stat(filepath.Join(dir, indexName+".damaged-1")); err != nil {
				t.Error(err)
			}
			c.checkSame(t, dir)
			if name != "cut short" && name != "other bytes" {
				s := openTest(t, dir)
				checkShares(t, s, oneShare)
				s.Close()
			}
			if lost := c.check(t, dir); len(lost) > 0 {
				t.Errorf("sessions %v lost something", lost)
			}
		})
	}
}

// TestRepairOfWhatIsLost damages the log and the chunks: what was lost is said on the sessions that lost it, what was there is kept aside, and no other session
// changes.
func TestRepairOfWhatIsLost(t *testing.T) {
	c := newRepairCase(t)
	chunkOf := func(t *testing.T, dir string, n int) string {
		for _, s := range c.picture.sessions {
			if s.ID == c.large {
				return filepath.Join(dir, filepath.FromSlash(chunkName(s.Sides[Response].Body.Extents[n].Chunk)))
			}
		}
		t.Fatal("no large session")
		return ""
	}
	both := []uint64{c.large, c.large + 1}
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string)
		lost   []uint64 // sessions whose bodies are cut
		marked int      // sessions that lost something else
		sizes  uint64   // of the cut bodies
		told   string
	}{
		"a chunk is missing": {func(t *testing.T, dir string) {
			if err := os.Remove(chunkOf(t, dir, 1)); err != nil {
				t.Fatal(err)
			}
		}, both, 0, chunkSize, "captured to byte 4194304: a chunk of it was damaged on disk"},
		"a chunk is short": {func(t *testing.T, dir string) {
			if err := os.Truncate(chunkOf(t, dir, 0), 1000); err != nil {
				t.Fatal(err)
			}
		}, both, 0, 0, "captured to byte 0: a chunk of it was damaged on disk"},
		"a chunk has other bytes": {func(t *testing.T, dir string) { change(t, chunkOf(t, dir, 2), 5, 1, 2, 3) }, both, 0, 2 * chunkSize, "it is kept in damaged/"},
		"a chunk is an incoming file, too": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "incoming", "77"), noise(100, chunkSize), 0o600); err != nil {
				t.Fatal(err)
			}
			change(t, chunkOf(t, dir, 0), 5, 1, 2, 3)
		}, nil, 0, 0, "is the same content"},
		"a piece": {func(t *testing.T, dir string) {
			path, at := find(t, dir, c.kept[c.plain].body, true)
			change(t, path, at+10, 1, 2, 3, 4)
		}, []uint64{c.plain}, 0, 0, "captured to byte 0: a piece of it was damaged on disk"},
		"a record": {func(t *testing.T, dir string) {
			path, at := find(t, dir, []byte("/session-12"), true)
			change(t, path, at, []byte("/SESSION")...)
		}, []uint64{c.plain}, 0, 1000, "captured to byte 1000: the record was damaged on disk"},
		"a record, and the index is no help": {func(t *testing.T, dir string) {
			path, at := find(t, dir, []byte("/session-20"), true) // there is an older one, without the note
			change(t, path, at, []byte("/SESSION")...)
		}, nil, 1, 0, "the record was damaged on disk"},
		"a deletion": {func(t *testing.T, dir string) {
			payload, err := encoder.Marshal(deletion{IDs: []uint64{c.gone}})
			if err != nil {
				t.Fatal(err)
			}
			path, at := find(t, dir, payload, false)
			change(t, path, at, 0xff)
		}, nil, 0, 0, "is deleted again"},
		"a segment's head": {func(t *testing.T, dir string) { change(t, filepath.Join(dir, segmentName(3)), 0, 1, 2, 3) }, nil, 0, 0, "are a hole now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := c.copy(t)
			test.damage(t, dir)
			if len(verifyAll(t, dir)) == 0 {
				t.Fatal("verify finds nothing wrong")
			}
			done, lines := repairAll(t, dir)
			if done.Lost != len(test.lost)+test.marked {
				t.Errorf("%d sessions lost something, want %d:\n%s", done.Lost, len(test.lost)+test.marked, strings.Join(lines, "\n"))
			}
			if all := strings.Join(lines, "\n"); !strings.Contains(all, test.told) {
				t.Errorf("it is not told that %q:\n%s", test.told, all)
			}
			for _, id := range test.lost {
				if all := strings.Join(lines, "\n"); !strings.Contains(all, fmt.Sprintf("session %d (GET example.com/session-", id)) {
					t.Errorf("session %d is not named:\n%s", id, all)
				}
			}
			if lost := c.check(t, dir); !slices.Equal(lost, test.lost) {
				t.Errorf("sessions %v lost bytes, want %v:\n%s", lost, test.lost, strings.Join(lines, "\n"))
			}
			s := openTest(t, dir)
			for _, id := range test.lost {
				if session, err := s.Session(id); err != nil || session.State != Done || session.Sides[Response].Body.Size != test.sizes {
					t.Errorf("session %d: %s, %+v, %v", id, session.State, session.Sides[Response].Body, err)
				}
			}
			checkShares(t, s, oneShare)
		})
	}
}

// TestRepairOfMissingDirectories: what is left is kept, and what is lost is said on the sessions.
func TestRepairOfMissingDirectories(t *testing.T) {
	c := newRepairCaseOf(t, 9<<20)
	for name, test := range map[string]struct {
		dirs []string
		lost []uint64 // nil: every session
	}{
		"incoming":            {[]string{"incoming"}, []uint64{}},
		"chunks and incoming": {[]string{"chunks", "incoming"}, []uint64{c.large, c.large + 1, c.large + 2}},
		"log":                 {[]string{"log"}, nil},
		"all":                 {[]string{"log", "chunks", "incoming"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.copy(t)
			for _, gone := range test.dirs {
				if err := os.RemoveAll(filepath.Join(dir, gone)); err != nil {
					t.Fatal(err)
				}
			}
			if told := strings.Join(verifyAll(t, dir), "\n"); !strings.Contains(told, test.dirs[0]+": the directory is gone") {
				t.Errorf("verify says %s", told)
			}
			done, lines := repairAll(t, dir)
			want := len(test.lost)
			if test.lost == nil {
				want = len(c.picture.sessions)
			}
			if done.Lost != want || done.Left != 0 {
				t.Errorf("%d sessions lost something, want %d, and %d things are wrong:\n%s", done.Lost, want, done.Left, strings.Join(lines, "\n"))
			}
			if told := verifyAll(t, dir); len(told) != 0 {
				t.Errorf("after it, verify says %s", strings.Join(told, "\n"))
			}
			s := openTest(t, dir)
			for id, k := range c.kept {
				if _, err := s.Session(id); (err == nil) == k.deleted {
					t.Errorf("session %d: %v", id, err)
				}
			}
		})
	}
}

// TestWhatNoIndexTellsOf damages a deletion in the log while the index is gone or damaged: the session is back, and nobody can know. That is told, by a start too.
func TestWhatNoIndexTellsOf(t *testing.T) {
	c := newRepairCaseOf(t, 1<<20)
	payload, err := encoder.Marshal(deletion{IDs: []uint64{c.gone}})
	if err != nil {
		t.Fatal(err)
	}
	for name, lose := range map[string]func(index string) error{
		"gone":    os.Remove,
		"damaged": func(index string) error { return os.WriteFile(index, bytes.Repeat([]byte("Z"), 60_000), 0o600) },
	} {
		for _, lossy := range []bool{true, false} {
			t.Run(fmt.Sprint(name, lossy), func(t *testing.T) {
				damaged := func() (dir string) {
					dir = c.copy(t)
					if err := lose(filepath.Join(dir, indexName)); err != nil {
						t.Fatal(err)
					}
					if lossy {
						path, at := find(t, dir, payload, false)
						change(t, path, at, 0xff)
					}
					return dir
				}
				dir := damaged()
				done, lines := repairAll(t, dir)
				if told := strings.Contains(strings.Join(lines, "\n"), mayBeMissing); done.MayMiss != lossy || told != lossy {
					t.Errorf("repair says %+v\n%s", done, strings.Join(lines, "\n"))
				}
				if done, lines := repairAll(t, dir); done.Wrong != 0 || done.MayMiss {
					t.Errorf("the second repair says %+v\n%s", done, strings.Join(lines, "\n"))
				}
				s, logs := openLogged(t, damaged())
				if told := strings.Contains(logs.String(), mayBeMissing); told != lossy {
					t.Errorf("a start says %s", logs)
				}
				if _, err := s.Session(c.gone); (err == nil) != lossy {
					t.Errorf("the deleted session: %v", err)
				}
			})
		}
	}
	dir := c.copy(t) // a repair that was broken off has made the hole, and then the index went
	path, at := find(t, dir, payload, false)
	change(t, path, at, 0xff)
	repairAll(t, dir)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	if done, lines := repairAll(t, dir); !done.MayMiss {
		t.Errorf("after a repair that was broken off: %+v\n%s", done, strings.Join(lines, "\n"))
	}
}

// TestRepairOfWholeSegments removes, empties or cuts segments: what the index knows of their sessions is kept.
func TestRepairOfWholeSegments(t *testing.T) {
	c := newRepairCase(t)
	segments, err := filepath.Glob(filepath.Join(c.dir, "log", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(path string) error{
		"gone":  os.Remove,
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"half": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()/2)
		},
		"zero": func(path string) error { return os.WriteFile(path, make([]byte, 12000), 0o600) },
	} {
		for _, n := range []int{1, 4, len(segments) - 1} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				dir := c.copy(t)
				if err := damage(filepath.Join(dir, "log", filepath.Base(segments[n]))); err != nil {
					t.Fatal(err)
				}
				if len(verifyAll(t, dir)) == 0 {
					t.Fatal("verify finds nothing wrong")
				}
				done, lines := repairAll(t, dir)
				if lost := c.check(t, dir); len(lost) > done.Lost || done.Lost == 0 && n < len(segments)-1 {
					t.Errorf("sessions %v lost bytes, and %d are said to have lost something:\n%s", lost, done.Lost, strings.Join(lines, "\n"))
				}
			})
		}
	}
}

// TestRepairOfWhatNothingNames: a whole chunk that nothing names is removed, and what cannot be told is kept aside.
func TestRepairOfWhatNothingNames(t *testing.T) {
	c := newRepairCase(t)
	dir := c.copy(t)
	whole := noise(500, 1000)
	sum := sha256.Sum256(whole)
	files := map[string][]byte{chunkName(sum[:]): whole, chunkName(noise(1, 32)): whole, "chunks/note.txt": whole, "incoming/9": whole, "incoming/note": whole, "log/note": whole}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if told := verifyAll(t, dir); len(told) != len(files) {
		t.Errorf("told: %s", strings.Join(told, "\n"))
	}
	_, lines := repairAll(t, dir)
	if entries, err := os.ReadDir(filepath.Join(dir, damagedDir)); err != nil || len(entries) != len(files)-2 {
		t.Errorf("kept aside: %v, %v:\n%s", entries, err, strings.Join(lines, "\n"))
	}
	c.checkSame(t, dir)
	c.check(t, dir)
}

// TestBodyThatIsNotThatOfItsSHA256: each of its runs is whole, and together they are not what was hashed.
func TestBodyThatIsNotThatOfItsSHA256(t *testing.T) {
	c := newRepairCase(t)
	s := openTest(t, c.dir)
	if err := s.amend(c.large, func(session *Session) {
		b := &session.Sides[Response].Body
		b.Extents = []Extent{b.Extents[1], b.Extents[0], b.Extents[2]}
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if told := verifyAll(t, c.dir); len(told) != 1 || !strings.Contains(told[0], "SHA-256") {
		t.Fatalf("told: %s", told)
	}
	if done, lines := repairAll(t, c.dir); done.Lost != 1 || done.Wrong != 1 {
		t.Errorf("%+v: %s", done, lines)
	}
}

// TestRepairOfDamageAnywhere changes runs of bytes anywhere in the directory: after a repair all that is served is right.
func TestRepairOfDamageAnywhere(t *testing.T) {
	c := newRepairCase(t)
	rounds := 16
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 7))
		dir := c.copy(t)
		var names []string
		for _, pattern := range []string{"index.db", "log/*", "log/*", "log/*", "chunks/*/*"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			names = append(names, found...)
		}
		what := ""
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			info, err := os.Stat(name)
			if err != nil || info.Size() == 0 {
				continue
			}
			at := random.Int64N(info.Size())
			n := min(int64(1+random.IntN(300)), info.Size()-at)
			change(t, name, at, noise(random.Uint64(), int(n))...)
			rel, _ := filepath.Rel(dir, name)
			what += fmt.Sprintf("%s: %d bytes from %d; ", rel, n, at)
		}
		var lines []string
		done, err := Repair(dir, func(line string) { lines = append(lines, line) })
		if err != nil || done.Left > 0 {
			t.Fatalf("seed %d (%s): %+v, %v:\n%s", seed, what, done, err, strings.Join(lines, "\n"))
		}
		checkRepaired(t, dir, lines)
		c.checkSome(t, dir)
		if t.Failed() {
			t.Fatalf("seed %d: %s\n%s", seed, what, strings.Join(lines, "\n"))
		}
		os.RemoveAll(dir)
	}
}

// checkSome checks that what is served as whole is right, and of the rest what there is.
func (c *repairCase) checkSome(t *testing.T, dir string) {
	t.Helper()
	s := openTest(t, dir)
	for id, want := range c.kept {
		session, err := s.Session(id)
		if err != nil {
			continue
		}
		if want.deleted {
			t.Errorf("session %d is back", id)
			continue
		}
		body := session.Sides[Response].Body
		b, err := s.Body(id, Response)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
		b.Close()
		if err == nil && (!bytes.Equal(got, want.body[:min(len(got), len(want.body))]) || body.Complete && len(got) != len(want.body)) {
			t.Errorf("session %d: %d of %d bytes, complete %t, and they differ", id, len(got), len(want.body), body.Complete)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
