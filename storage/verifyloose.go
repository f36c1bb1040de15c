package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// errMisfit is a sound index beside a log that it was not made from: an older one was put back, or the log was. Like a start, Verify and Repair then go by the
// log alone.
var errMisfit = errors.New("it does not fit the log")

// misfit looks whether the index was made from this log. A segment's file that it knows and that is gone is a loss, unless the log shows that it went on without
// this index: the segment was rewritten, or there are records that an index which was closed in order would have, or what is beyond it was cleaned already.
func (v *verifier) misfit(clean bool) error {
	if _, err := v.files.Stat(repairedIndex); err == nil {
		return nil // what is beyond the index was written by a repair that was broken off, and is of it
	}
	spans, others, err := logFiles(v.files, v.known)
	if err != nil {
		return nil // it is told where the log is read
	}
	there := make(map[uint64]bool, len(spans))
	doubled := make(map[uint64]bool)
	for _, span := range spans {
		there[span.number] = true
	}
	for _, span := range others {
		doubled[span.number] = true
	}
	ahead := false
	for _, span := range spans {
		want, ok := v.known[span.number]
		if ok && want == span.generation && span.number < v.applied.Segment {
			continue
		}
		head, _, err := readSegmentHead(v.files, span)
		if err != nil {
			continue // it proves nothing
		}
		switch {
		case ok && want != span.generation:
			return fmt.Errorf("%w: it knows %s, there is %s", errMisfit, generationName(span.number, want), span.file())
		case span.number > v.applied.Segment:
			cleaned := span.generation > 0 && !doubled[span.number]
			ahead = ahead || clean || cleaned || head.Prev > v.applied.Segment && !there[head.Prev]
		case span.number == v.applied.Segment && clean:
			ahead = ahead || v.goesOn(span)
		}
	}
	if !ahead {
		return nil
	}
	for _, number := range slices.Sorted(maps.Keys(v.known)) {
		if !there[number] {
			return fmt.Errorf("%w, which went on without it: it knows %s, which is gone", errMisfit, generationName(number, v.known[number]))
		}
	}
	return nil
}

// goesOn reports whether the segment has a whole record behind what the index has of it.
func (v *verifier) goesOn(span segmentSpan) bool {
	f, err := v.files.OpenFile(span.file(), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	r := segmentReader{segment: span.number, generation: span.generation, r: f, offset: v.applied.Offset, end: span.end}
	_, err = r.next()
	return err == nil
}

// nameChunks takes in which chunks a session that has ended names, as the index would.
func (v *verifier) nameChunks(rec *record) {
	switch rec.kind {
	case recordEnded:
		delete(v.named, rec.session.ID)
		for _, body := range rec.session.streams() {
			for _, e := range body.Extents {
				if len(e.Chunk) > 0 {
					v.named[rec.session.ID] = append(v.named[rec.session.ID], string(e.Chunk))
				}
			}
		}
	case recordDeleted:
		for _, id := range rec.gone.IDs {
			delete(v.named, id)
		}
		if from, through := rec.gone.From, rec.gone.Through; through-from < uint64(len(v.named)) {
			for id := from; id <= through; id++ {
				delete(v.named, id)
			}
		} else if through != 0 {
			maps.DeleteFunc(v.named, func(id uint64, _ []string) bool { return from <= id && id <= through })
		}
	}
}

// looseChunks reads the chunks that there are against their names, and looks for those that the log has sessions name: for where no index tells of them.
func (v *verifier) looseChunks() error {
	if !v.full {
		return nil
	}
	there := make(map[string]bool)
	err := fs.WalkDir(dirFS{v.files}, "chunks", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sum, err := hex.DecodeString(d.Name())
		if err != nil || len(sum) != sha256.Size || name != chunkName(sum) {
			return nil
		}
		there[string(sum)] = true
		if err := v.looseChunk(sum); err != nil {
			v.problems.chunks[string(sum)] = err
			v.tell("chunk %x: %v", sum, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("verify chunks: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(v.named)) {
		for _, sum := range slices.Compact(v.named[id]) {
			err := v.problems.chunks[sum]
			if err == nil && !there[sum] {
				err = errors.New("it is gone")
				v.problems.chunks[sum] = err
			}
			if err != nil {
				v.tell("session %d: chunk %x: %v", id, sum, err)
			}
		}
	}
	return nil
}

func (v *verifier) looseChunk(sum []byte) error {
	f, err := v.files.OpenFile(chunkName(sum), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	v.looked.Chunks++
	v.looked.Bytes += uint64(size)
	got, err := hashFile(f)
	if err == nil && !bytes.Equal(got, sum) {
		err = fmt.Errorf("%d bytes long; its content's hash is %x", size, got)
	}
	return err
}
