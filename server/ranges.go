package server

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// span is a run of bytes, from up to but not including to.
type span struct{ from, to int64 }

// contentRange renders the span for Content-Range; total is "*" while it is not known. RFC 9110, section 14.4.
func (s span) contentRange(total string) string {
	return fmt.Sprintf("bytes %d-%d/%s", s.from, s.to-1, total)
}

// Why a Range is refused.
var (
	errManyRanges  = errors.New("ask for one range at a time")
	errRangeSyntax = errors.New("ask for bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH")
	errRangeBeyond = errors.New("the range begins after what is there")
)

// parseRange returns the span that a Range field selects of a body of size bytes. ok is false where there is none to obey: no field, or
// a unit other than bytes, which RFC 9110, section 14.2 has a server ignore. More than one range is refused: a hundred thousand
// of one byte would answer fifteen megabytes.
func parseRange(field string, size int64) (s span, ok bool, err error) {
	unit, set, found := strings.Cut(field, "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return span{}, false, nil
	}
	if strings.Contains(set, ",") {
		return span{}, false, errManyRanges
	}
	first, last, found := strings.Cut(strings.TrimSpace(set), "-")
	if !found {
		return span{}, false, errRangeSyntax
	}
	if first == "" {
		n, err := position(last)
		if err != nil {
			return span{}, false, err
		}
		if n == 0 || size == 0 {
			return span{}, false, errRangeBeyond
		}
		return span{max(0, size-n), size}, true, nil
	}
	s.from, err = position(first)
	if err != nil {
		return span{}, false, err
	}
	s.to = size
	if last != "" {
		n, err := position(last)
		if err != nil {
			return span{}, false, err
		}
		if n < s.from {
			return span{}, false, errRangeSyntax
		}
		if n < size {
			s.to = n + 1
		}
	}
	if s.from >= size {
		return span{}, false, errRangeBeyond
	}
	return s, true, nil
}

// position parses digits alone. A number beyond an int64 is as good as the largest.
func position(digits string) (int64, error) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errRangeSyntax
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errRangeSyntax
	}
	return n, nil // ParseInt returns the largest with ErrRange
}

// etagListed reports whether a list of entity tags, or "*", holds the tag, by strong comparison. RFC 9110, section 8.8.3.2.
// Our tags hold no commas.
func etagListed(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == etag {
			return true
		}
	}
	return false
}
