package server

import (
	"bytes"
	"iter"
	"strings"
)

// line is one field of a head: its bytes, with the lines that continue it, and what they mean.
type line struct {
	raw         []byte // with its line end
	name, value []byte // without white space around them
	colon       int    // where the value begins in raw; -1 for a line that is no field
}

// lines yields the lines of a head in the order of the wire, the start line included (it has no colon, or is told by start).
// It reads both forms that storage keeps: HTTP/1 bytes, and one "name: value" a line for HTTP/2, where a name may begin with a colon.
// A line that begins with white space continues the one before (obs-fold, RFC 9112, section 5.2).
func lines(head []byte) iter.Seq[line] {
	return func(yield func(line) bool) {
		for len(head) > 0 {
			n := lineEnd(head)
			for n < len(head) && (head[n] == ' ' || head[n] == '\t') {
				n += lineEnd(head[n:])
			}
			if !yield(parseLine(head[:n])) {
				return
			}
			head = head[n:]
		}
	}
}

func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

func parseLine(raw []byte) line {
	l := line{raw: raw, colon: -1}
	from := 0
	if bytes.HasPrefix(raw, []byte(":")) {
		from = 1 // an HTTP/2 pseudo-field
	}
	if i := bytes.IndexByte(raw[from:], ':'); i >= 0 {
		l.colon = from + i + 1
		l.name = bytes.TrimSpace(raw[:l.colon-1])
		l.value = bytes.TrimSpace(raw[l.colon:])
	}
	return l
}

// startLine reports whether the head begins with a start line. A trailer section, and an HTTP/2 field list, have none.
func startLine(head []byte) bool {
	first := parseLine(head[:lineEnd(head)])
	if first.colon < 0 {
		return true
	}
	// A request line or status line has a space before any colon; a field's name has none.
	return bytes.ContainsAny(first.raw[:first.colon], " ")
}

// fieldsOf returns the fields of a head; never nil.
func fieldsOf(head []byte) []Field {
	if startLine(head) {
		head = head[lineEnd(head):]
	}
	return append([]Field{}, trailersOf(head)...)
}

// trailersOf returns the fields of a trailer section, which is a head without a start line.
func trailersOf(section []byte) []Field {
	var fields []Field
	for l := range lines(section) {
		if l.colon >= 0 {
			fields = append(fields, Field{latin1(l.name), latin1(l.value)})
		}
	}
	return fields
}

// codingOf returns the content codings of a head, in the order they were applied, joined by ", ". RFC 9110, section 8.4.
func codingOf(head []byte) string {
	var codings []string
	for _, f := range fieldsOf(head) {
		if strings.EqualFold(f[0], "Content-Encoding") {
			for coding := range strings.SplitSeq(f[1], ",") {
				if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
					codings = append(codings, coding)
				}
			}
		}
	}
	return strings.Join(codings, ", ")
}
