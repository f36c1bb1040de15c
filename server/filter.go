package server

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"millpond/storage"
)

// maxFilter bounds a filter's length in bytes.
const maxFilter = 2000

// parseFilter returns the match for a filter: plain text, a part of the URL, upper and lower case alike. It returns nil, which
// matches every session, for an empty one.
func parseFilter(text string) (storage.URLMatch, error) {
	if len(text) > maxFilter {
		return nil, problem(422, "The filter is longer than %d bytes. Shorten it.", maxFilter)
	}
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return nil, nil
	}
	part, plain := []byte(text), isASCII(text)
	return func(scheme, host string, path []byte) bool {
		var room [256]byte // a longer URL is put on the heap
		url := append(append(append(append(room[:0], scheme...), "://"...), host...), path...)
		if !plain { // found only in a URL that is not ASCII, which few are
			return !isASCII(url) && bytes.Contains(bytes.ToLower(url), part)
		}
		lower(url)
		return bytes.Contains(url, part)
	}, nil
}

// matchesRow reports whether the row's session matches.
func matchesRow(m storage.URLMatch, r *storage.Row) bool {
	return m == nil || m(r.Scheme, r.Host, []byte(r.Path))
}

// lower makes the ASCII letters among p's bytes small, eight at a time: a filter spends most of its time here.
func lower(p []byte) {
	const (
		tops    = 0x8080808080808080
		ones    = 0x0101010101010101
		fromA   = (0x80 - 'A') * ones     // added to a byte, sets its top bit from A on
		beyondZ = (0x80 - 'Z' - 1) * ones // and beyond Z
	)
	for ; len(p) >= 8; p = p[8:] {
		x := binary.LittleEndian.Uint64(p)
		low := x &^ tops
		capitals := (low + fromA) &^ (low + beyondZ) &^ x & tops
		binary.LittleEndian.PutUint64(p, x|capitals>>2) // 'a' - 'A' is a quarter of the top bit
	}
	for i, c := range p {
		if 'A' <= c && c <= 'Z' {
			p[i] = c + 'a' - 'A'
		}
	}
}

func isASCII[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
