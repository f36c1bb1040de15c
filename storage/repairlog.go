package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
)

// dropStale moves segments aside that a sound index has let go of: in an index that is made again they would bring deleted sessions back.
func (r *repair) dropStale() error {
	var names []string
	if r.known == nil {
		return nil
	}
	err := readIndex(filepath.Join(r.dir, indexName), func(ix *index, tx *bbolt.Tx) error {
		return r.orphans(tx, func(name string) error {
			if strings.HasPrefix(name, "log/") {
				names = append(names, name)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return r.clear(names)
}

// mendLog puts a hole over each damaged run of the log: a record that nothing reads. Offsets and numbers of the others stay.
func (r *repair) mendLog() error {
	runs := slices.Clone(r.problems.log)
	for i, span := range r.spans { // one that is too short becomes as long again as it was
		size := r.sizeOf(i)
		if size <= span.end {
			continue
		}
		run := damagedRun{span.number, r.ends[span.number], size}
		runs = slices.DeleteFunc(runs, func(x damagedRun) bool { return x.segment == run.segment && x.from >= run.from })
		runs = append(runs, run)
	}
	if n := len(r.spans); n > 0 { // what the index had of the newest one is no torn tail
		span := r.spans[n-1]
		if end := r.ends[span.number]; r.applied.Segment == span.number && end < r.applied.Offset && end+frameSize <= span.size {
			runs = append(runs, damagedRun{span.number, end, span.size})
		}
	}
	for _, run := range runs {
		if err := r.dig(run); err != nil {
			return fmt.Errorf("mend log segment %d: %w", run.segment, err)
		}
	}
	return nil
}

// sizeOf returns how long a segment's file is to be: a rewritten one says it itself, of another the next one does. It is 0 where nothing tells.
func (r *repair) sizeOf(i int) uint64 {
	span := r.spans[i]
	if span.generation > 0 {
		head, _, err := readSegmentHead(r.files, span)
		if err != nil {
			return 0
		}
		return head.Size
	}
	if i+1 == len(r.spans) {
		return 0
	}
	head, _, err := readSegmentHead(r.files, r.spans[i+1])
	if err != nil || head.Prev != span.number || head.PrevEnd == unknownEnd {
		return 0
	}
	return head.PrevEnd
}

// disown puts a copy in the place of a segment's file, which a backup may have under another name: what is written to it then is not written to the backup.
func (r *repair) disown(name string) error {
	from, err := r.files.OpenFile(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	size, err := from.Size()
	if err != nil {
		return err
	}
	fresh := name + unfinished
	if err := r.files.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := r.files.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, size))
	if err == nil {
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, r.files.Remove(fresh))
	}
	from.Close()
	path := func(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }
	if err := os.Rename(path(fresh), path(name)); err != nil { // the one place where a file takes another's name: both are the same bytes
		return err
	}
	return r.files.SyncDir("log")
}

// dig copies a damaged run aside and puts a hole in its place.
func (r *repair) dig(run damagedRun) error {
	const most = payloadMax / 2
	i := slices.IndexFunc(r.spans, func(s segmentSpan) bool { return s.number == run.segment })
	if err := r.disown(r.spans[i].file()); err != nil {
		return err
	}
	f, err := r.files.OpenFile(r.spans[i].file(), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // dropStale moved it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	aside := ""
	if run.from < uint64(size) {
		if aside, err = r.free(fmt.Sprintf("log-%06d-%d-%d", run.segment, run.from, run.to)); err != nil {
			return err
		}
		if err := r.copyRun(f, run, aside); err != nil {
			return err
		}
	}
	if run.to > uint64(size) {
		if err := f.Truncate(int64(run.to)); err != nil {
			return err
		}
	}
	for from := run.from; from < run.to; {
		n := min(run.to-from, most)
		if rest := run.to - from - n; rest > 0 && rest < frameSize {
			n -= frameSize
		}
		if n < frameSize {
			return fmt.Errorf("there is no room for a record in %d bytes", n)
		}
		payload := make([]byte, n-frameSize)
		if _, err := f.ReadAt(payload, int64(from+frameSize)); err != nil && !errors.Is(err, io.EOF) {
			clear(payload) // it cannot be read: it may be so when it was written over
			if _, err := f.WriteAt(payload, int64(from+frameSize)); err != nil {
				return err
			}
		}
		var head [frameSize]byte
		frame{kind: recordHole, length: uint32(len(payload)), crc: crc32.Checksum(payload, castagnoli)}.put(head[:], run.segment)
		if _, err := f.WriteAt(head[:], int64(from)); err != nil {
			return err
		}
		from += n
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if aside == "" {
		aside = "nothing, as they are gone"
	}
	r.say("log segment %d: bytes %d to %d are a hole now; what was there is kept in %s", run.segment, run.from, run.to, aside)
	return nil
}

// copyRun copies what can be read of the run to a file of its own.
func (r *repair) copyRun(from File, run damagedRun, name string) error {
	to, err := r.files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer to.Close()
	buf := make([]byte, 64<<10)
	for at := run.from; at < run.to; {
		n, err := from.ReadAt(buf[:min(uint64(len(buf)), run.to-at)], int64(at))
		if _, err := to.WriteAt(buf[:n], int64(at-run.from)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // a sector that cannot be read: go on behind it
			n = max(n, 4096)
		}
		at += uint64(n)
	}
	if err := to.Sync(); err != nil {
		return err
	}
	return r.files.SyncDir(damagedDir)
}

// free returns a name in damagedDir that no file has.
func (r *repair) free(name string) (string, error) {
	if err := r.files.Mkdir(damagedDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := r.files.SyncDir("."); err != nil {
		return "", err
	}
	full := damagedDir + "/" + name
	for n := 2; ; n++ {
		if _, err := r.files.Stat(full); errors.Is(err, fs.ErrNotExist) {
			return full, nil
		} else if err != nil {
			return "", err
		}
		full = damagedDir + "/" + name + "-" + strconv.Itoa(n)
	}
}

// moveAside moves a file to damagedDir. One that is not there is no error, and no name.
func (r *repair) moveAside(name string) (aside string, err error) {
	if _, err := r.files.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	base := strings.TrimPrefix(name, "chunks/")
	base = base[strings.LastIndexByte(base, '/')+1:]
	if !strings.HasPrefix(name, "chunks/") {
		base = strings.ReplaceAll(name, "/", "-")
	}
	if aside, err = r.free(base); err != nil {
		return "", err
	}
	if err := r.files.Rename(name, aside); err != nil {
		return "", err
	}
	return aside, r.files.SyncDir(damagedDir)
}

// mendChunk moves a damaged chunk aside, and puts an incoming file of the same content in its place, where there is one.
func (r *repair) mendChunk(sum []byte) error {
	aside, err := r.moveAside(chunkName(sum))
	if err != nil {
		return fmt.Errorf("move chunk %x aside: %w", sum, err)
	}
	if aside != "" {
		r.say("chunk %x: it is kept in %s", sum, aside)
	}
	entries, err := r.files.ReadDir("incoming")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "incoming/" + e.Name()
		f, err := r.files.OpenFile(name, os.O_RDWR)
		if err != nil {
			continue
		}
		got, err := hashFile(f)
		if err == nil && bytes.Equal(got, sum) {
			err = f.Sync()
		}
		f.Close()
		if err != nil || !bytes.Equal(got, sum) {
			continue
		}
		if err := (&Store{files: r.files}).rename(name, chunkName(sum)); err != nil {
			return err
		}
		delete(r.problems.chunks, string(sum))
		r.say("chunk %x: %s is the same content, and has taken its place", sum, name)
		return r.files.SyncDir("chunks/" + hex.EncodeToString(sum[:1]))
	}
	return nil
}
