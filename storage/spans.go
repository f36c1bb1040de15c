package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"millpond/migrations"
)

// segmentSpan is a segment and how much of it counts.
type segmentSpan struct {
	number, end uint64
	size        uint64 // of the file
	generation  uint32
	last        bool  // what follows its last whole record is a torn tail
	damage      error // it is shorter than the next one says, or its head cannot be read
}

func (s *segmentSpan) file() string { return generationName(s.number, s.generation) }

// unknownEnd is the end of a segment whose next one's head cannot be read: all of it counts.
const unknownEnd = 1<<64 - 1

// parseSegment reads the name of a segment's file.
func parseSegment(name string) (number uint64, generation uint32, ok bool) {
	first, second, rewritten := strings.Cut(name, ".")
	number, err := strconv.ParseUint(first, 10, 64)
	if err != nil || !rewritten {
		return number, 0, err == nil
	}
	g, err := strconv.ParseUint(second, 10, 32)
	return number, uint32(g), err == nil && g > 0
}

// logFiles lists the files of the log: of each segment the generation that known names, or the newest. Files of others are what a crash left of a rewriting.
func logFiles(files Files, known map[uint64]uint32) (spans, others []segmentSpan, err error) {
	entries, err := files.ReadDir("log")
	if err != nil {
		return nil, nil, fmt.Errorf("list log: %w", err)
	}
	for _, e := range entries {
		number, generation, ok := parseSegment(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, nil, fmt.Errorf("list log: %w", err)
		}
		spans = append(spans, segmentSpan{number: number, generation: generation, end: uint64(info.Size()), size: uint64(info.Size())})
	}
	rank := func(s segmentSpan) uint64 {
		if want, ok := known[s.number]; ok && want == s.generation {
			return 1 << 32
		}
		return uint64(s.generation)
	}
	slices.SortFunc(spans, func(a, b segmentSpan) int {
		if a.number != b.number {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(rank(b), rank(a))
	})
	kept := spans[:0]
	for _, span := range spans {
		if n := len(kept); n > 0 && kept[n-1].number == span.number {
			others = append(others, span)
			continue
		}
		kept = append(kept, span)
	}
	return kept, others, nil
}

// segmentSpans lists the log's segments, oldest first. A segment that a later one skips was given up, and is not among them. known tells the generations that
// the index has.
func segmentSpans(files Files, known map[uint64]uint32) ([]segmentSpan, error) {
	spans, _, err := logFiles(files, known)
	if err != nil {
		return nil, err
	}
	var kept []segmentSpan
	prev := position{Segment: 1<<64 - 1}
	for i := len(spans) - 1; i >= 0; i-- {
		span := spans[i]
		if span.number > prev.Segment {
			continue
		}
		span.last = len(kept) == 0
		if span.number == prev.Segment && span.generation == 0 {
			if span.end < prev.Offset && prev.Offset != unknownEnd {
				span.damage = fmt.Errorf("it is %d bytes long, the next segment says %d", span.end, prev.Offset)
			}
			span.end = min(span.end, prev.Offset)
		}
		head, begun, err := readSegmentHead(files, span)
		if err == nil && span.generation > 0 && head.Size > 0 {
			if span.end < head.Size {
				span.damage = fmt.Errorf("it is %d bytes long, its head says %d", span.end, head.Size)
			}
			span.end = min(span.end, head.Size)
		}
		switch {
		case errors.Is(err, migrations.ErrNewer):
			return nil, err
		case err != nil && span.last && !begun && !unreadable(err):
			continue // it was about to be begun
		case err != nil:
			head.Prev, head.PrevEnd, span.damage = span.number-1, unknownEnd, err
		}
		prev = position{head.Prev, head.PrevEnd}
		kept = append(kept, span)
	}
	slices.Reverse(kept)
	return kept, nil
}

// unreadable tells a disk that does not give its bytes from bytes that are wrong: it may give them the next time.
func unreadable(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed)
}

// newestSegment returns the highest number of a segment file, whatever it holds.
func newestSegment(files Files) (newest uint64, err error) {
	spans, _, err := logFiles(files, nil)
	for _, span := range spans {
		newest = max(newest, span.number)
	}
	return newest, err
}

// readSegmentHead reads the segment's first record. Where that is an error, begun tells whether whole records follow.
func readSegmentHead(files Files, span segmentSpan) (head segmentHead, begun bool, err error) {
	f, err := files.OpenFile(span.file(), os.O_RDONLY)
	if err != nil {
		return segmentHead{}, true, fmt.Errorf("open log segment: %w", err)
	}
	defer f.Close()
	r := segmentReader{segment: span.number, generation: span.generation, r: f, end: span.end}
	rec, err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		return segmentHead{}, false, errors.New("it is empty")
	case err != nil:
		return segmentHead{}, r.resync(), fmt.Errorf("read its head: %w", err)
	case rec.kind == recordHole: // the head was damaged
		return segmentHead{Prev: span.number - 1, PrevEnd: unknownEnd}, true, nil
	case rec.kind != recordSegment || rec.head.Segment != span.number || rec.head.Generation != span.generation:
		return segmentHead{}, true, errors.New("read its head: it begins with another record")
	case rec.head.Version > formatVersion:
		return segmentHead{}, true, fmt.Errorf("read log segment %d: its format is %d: %w", span.number, rec.head.Version, migrations.ErrNewer)
	}
	return rec.head, true, nil
}
