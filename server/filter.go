package server

import (
	"strings"

	"millpond/storage"
)

// maxFilter bounds a filter's length in bytes.
const maxFilter = 2000

// match reports whether a row is in a view.
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
	return func(r *storage.Row) bool {
		return strings.Contains(strings.ToLower(r.Scheme+"://"+r.Host+r.Path), text)
	}, nil
}
