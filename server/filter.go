package server

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"millpond/storage"
)

// maxFilter bounds a filter's length in bytes.
const maxFilter = 2000

// match reports whether a row is in a view. It looks at no more of it than Store.ScanURLs gives.
type match func(*storage.Row) bool

// parseFilter returns the match for a filter: plain text, a part of the URL, upper and lower case alike. It returns nil, which
// matches every row, for an empty one.
func parseFilter(text string) (match, error) {
	if len(text) > maxFilter {
		return nil, problem(422, "The filter is longer than %d bytes. Shorten it.", maxFilter)
	}
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return nil, nil
	}
	if !isASCII(text) {
		return func(r *storage.Row) bool {
			return strings.Contains(strings.ToLower(r.Scheme+"://"+r.Host+r.Path), text)
		}, nil
	}
	part := []byte(text)
	return func(r *storage.Row) bool {
		var room [512]byte // a longer URL is put on the heap
		url := append(append(append(append(room[:0], r.Scheme...), "://"...), r.Host...), r.Path...)
		for i, c := range url {
			if 'A' <= c && c <= 'Z' {
				url[i] = c + 'a' - 'A'
			}
		}
		return bytes.Contains(url, part)
	}, nil
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
