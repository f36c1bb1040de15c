package server

import (
	"bytes"
	"slices"
	"strings"

	"millpond/storage"
)

// hidden takes the place of a value that a share does not show.
const hidden = "(hidden)"

// secret names the fields whose values are hidden from a share, in lower case.
var secret = []string{"authorization", "proxy-authorization", "cookie", "set-cookie"}

// redact hides the secret fields' values wherever a session holds a head, and what its owner wrote on it.
// The record is the caller's own: its byte slices are replaced, never written to.
func redact(s *storage.Session) {
	s.Note, s.Color, s.Pinned = "", "", false
	for i := range s.Sides {
		m := &s.Sides[i]
		m.Head = redactHead(m.Head)
		m.Received = redactHead(m.Received)
		m.Trailers = redactHead(m.Trailers)
		m.Informational = slices.Clone(m.Informational)
		for j, head := range m.Informational {
			m.Informational[j] = redactHead(head)
		}
	}
}

func redactRow(r *storage.Row) { r.Note, r.Color, r.Pinned = "", "", false }

// redactHead returns the head with the values of secret fields, and the lines that continue them, hidden. A name is read generously
// (white space before its colon does not save it), because a server may have read it so.
func redactHead(head []byte) []byte {
	if head == nil {
		return nil
	}
	out := make([]byte, 0, len(head))
	for l := range lines(head) {
		if l.colon < 0 || !slices.Contains(secret, strings.ToLower(string(l.name))) {
			out = append(out, l.raw...)
			continue
		}
		out = append(out, l.raw[:l.colon]...)
		out = append(out, ' ')
		out = append(out, hidden...)
		out = append(out, l.raw[len(bytes.TrimRight(l.raw, "\r\n")):]...)
	}
	return out
}
