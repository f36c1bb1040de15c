package harness

import (
	"bufio"
	"io"
	"iter"
	"strings"
)

// Events yields the data of each server-sent event as it comes, until r ends.
func Events(r io.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !yield(data) {
				return
			}
		}
	}
}
