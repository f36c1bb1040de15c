package server

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"millpond/storage"
)

// maxFilter bounds a filter's length in bytes.
const maxFilter = 2000

// parseFilter returns the match for a filter: words such as status:404, and what is left is a part of the URL, upper and lower case alike. It returns nil, which
// matches every session, for an empty one.
func parseFilter(text string) (storage.Match, error) {
	if len(text) > maxFilter {
		return nil, problem(422, "The filter is longer than %d bytes. Shorten it.", maxFilter)
	}
	low, high := 0, math.MaxInt
	var rest []string
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		code, is := strings.CutPrefix(word, "status:")
		if !is {
			rest = append(rest, word)
			continue
		}
		from, to, ok := statuses(code)
		if !ok {
			return nil, problem(422, "There is no status %q. Write a code such as status:404, or its beginning: status:4 or status:4xx.", code)
		}
		low, high = max(low, from), min(high, to)
	}
	ofURL := matchURL(strings.Join(rest, " "))
	if low == 0 && high == math.MaxInt {
		return ofURL, nil
	}
	return func(status int, scheme, host string, path []byte) bool {
		return low <= status && status <= high && (ofURL == nil || ofURL(status, scheme, host, path))
	}, nil
}

// statuses returns the codes that begin with these up to three digits; x stands for any digit, at the end.
func statuses(text string) (low, high int, ok bool) {
	digits := strings.TrimRight(text, "x")
	if len(text) > 3 || digits == "" && text != "" {
		return 0, 0, false
	}
	if text == "" { // it is being typed
		return 0, math.MaxInt, true
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	for range 3 - len(digits) {
		n *= 10
		high = 10*high + 9
	}
	return int(n), int(n) + high, err == nil
}

// matchURL returns the match for a part of the URL in small letters, and nil for none.
func matchURL(text string) storage.Match {
	if text == "" {
		return nil
	}
	part, plain := []byte(text), isASCII(text)
	return func(_ int, scheme, host string, path []byte) bool {
		var room [256]byte // a longer URL is put on the heap
		url := append(append(append(append(room[:0], scheme...), "://"...), host...), path...)
		if !plain { // found only in a URL that is not ASCII, which few are
			return !isASCII(url) && bytes.Contains(bytes.ToLower(url), part)
		}
		lower(url)
		return bytes.Contains(url, part)
	}
}

// matchesRow reports whether the row's session matches.
func matchesRow(m storage.Match, r *storage.Row) bool {
	return m == nil || m(r.Status, r.Scheme, r.Host, []byte(r.Path))
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
