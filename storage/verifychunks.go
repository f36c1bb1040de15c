package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

// chunkCounts holds how often each chunk is named that the index counts: its keys, one after the other as bbolt has them, and what was found of each.
type chunkCounts struct {
	keys    []byte
	found   []chunkRow
	unknown map[string]bool // named, and not in the index
}

func (c *chunkCounts) key(i int) []byte { return c.keys[i*sha256.Size:][:sha256.Size] }

// find returns where the chunk is; -1 where the index does not count it.
func (c *chunkCounts) find(sum []byte) int {
	low, high := 0, len(c.found)
	for low < high {
		middle := (low + high) / 2
		switch bytes.Compare(c.key(middle), sum) {
		case 0:
			return middle
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	return -1
}

// chunkRows compares the chunks that the index counts to what names them.
func (v *verifier) chunkRows(tx *bbolt.Tx) error {
	i := 0
	return tx.Bucket(bucketChunks).ForEach(func(k, b []byte) error {
		var row chunkRow
		row.decode(b)
		if found := v.chunks.found[i]; found != row {
			v.problem("chunk %x: %d bytes named %d times, counted as %d bytes, %d times", k, found.length, found.refs, row.length, row.refs)
		}
		i++
		return nil
	})
}

// chunkFiles looks at the file of each chunk that the index counts and, after a clean end, for files that nothing names: what a crash left over, the next
// start removes.
func (v *verifier) chunkFiles(tx *bbolt.Tx, clean bool) error {
	err := tx.Bucket(bucketChunks).ForEach(func(k, b []byte) error {
		var row chunkRow
		row.decode(b)
		if err := v.chunk(k, row); err != nil {
			v.problems.chunks[string(k)] = err
			v.tell("chunk %x: %v", k, err)
		}
		return nil
	})
	if err != nil || !clean {
		return err
	}
	return v.orphans(tx, func(name string) error {
		v.tell("%s: nothing names it", name)
		return nil
	})
}

// orphans calls fn with the names of the files that nothing names.
func (v *verifier) orphans(tx *bbolt.Tx, fn func(name string) error) error {
	var state indexState
	if b := tx.Bucket(bucketMeta).Get(keyState); b != nil {
		if err := decoder.Unmarshal(b, &state); err != nil {
			return err
		}
	}
	for _, dir := range []string{"chunks", "incoming", "log"} {
		err := fs.WalkDir(dirFS{v.files}, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			switch dir {
			case "chunks":
				if sum, err := hex.DecodeString(d.Name()); err == nil && tx.Bucket(bucketChunks).Get(sum) != nil && name == chunkName(sum) {
					return nil
				}
			case "log":
				number, generation, ok := parseSegment(d.Name())
				var row segmentRow
				stored := tx.Bucket(bucketSegments).Get(idKey(number))
				row.decode(stored)
				if ok && (stored == nil && number >= state.Applied.Segment || stored != nil && row.generation == generation) && name == generationName(number, generation) {
					return nil
				}
			}
			return fn(name)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// chunk returns what is wrong with a chunk's file.
func (v *verifier) chunk(sum []byte, row chunkRow) error {
	f, err := v.files.OpenFile(chunkName(sum), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	v.looked.Chunks++
	v.looked.Bytes += uint64(row.length)
	size, err := f.Size()
	if err != nil {
		return err
	}
	wrong := size != int64(row.length)
	if v.full {
		got, err := hashFile(f)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, sum) {
			return fmt.Errorf("%d bytes long, want %d; its content's hash is %x", size, row.length, got)
		}
		if wrong {
			v.problem("chunk %x: it has %d bytes, counted as %d", sum, size, row.length) // it is as it was named
		}
		return nil
	}
	if wrong {
		return fmt.Errorf("%d bytes long, want %d", size, row.length)
	}
	return nil
}

// hashFile returns the SHA-256 of a file's content.
func hashFile(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// dirFS lets fs.WalkDir walk a Files.
type dirFS struct{ files Files }

func (d dirFS) Open(string) (fs.File, error) { return nil, fs.ErrInvalid }

func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) { return d.files.ReadDir(name) }

func (d dirFS) Stat(name string) (fs.FileInfo, error) { return d.files.Stat(name) }
