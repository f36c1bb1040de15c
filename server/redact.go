package server

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"millpond/storage"
)

// hidden takes the place of a value that a share does not show.
const hidden = "(hidden)"

// secret names the fields whose values are hidden from a share, in lower case.
var secret = []string{"authorization", "proxy-authorization", "cookie", "set-cookie"}

// redact hides the secret fields' values wherever a session holds a head, what is no field and can hold anything (a chunk's extension, which may be
// a signature; what a GOAWAY says), and what its owner wrote on it.
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
		if m.Chunks != nil {
			chunks := *m.Chunks
			chunks.Extensions = slices.Clone(chunks.Extensions)
			for j := range chunks.Extensions {
				chunks.Extensions[j].Text = []byte(hidden)
			}
			m.Chunks = &chunks
		}
	}
	if s.HTTP2 != nil && len(s.HTTP2.Away) > 0 {
		h := *s.HTTP2
		h.Away = slices.Clone(h.Away)
		for i := range h.Away {
			if h.Away[i].Size > 0 {
				h.Away[i].Debug = []byte(hidden)
			}
		}
		s.HTTP2 = &h
	}
}

// redactRow also hides what an error quotes of the wire.
func redactRow(r *storage.Row) {
	r.Note, r.Color, r.Pinned = "", "", false
	r.Error = quoted.ReplaceAllString(r.Error, hidden)
}

// quoted is text between quotation marks as %q writes them, also where its end is missing.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|$)`)

// redactHead returns the head with the values of secret fields, and the lines that continue them, hidden, and the credentials of an absolute-form target.
func redactHead(head []byte) []byte {
	if head == nil {
		return nil
	}
	out := make([]byte, 0, len(head))
	for l := range lines(head) {
		if len(out) == 0 {
			if from, to := userinfo(l.raw); to > from {
				out = append(out, l.raw[:from]...)
				out = append(out, hidden...)
				out = append(out, l.raw[to:]...)
				continue
			}
		}
		at := secretAt(l.raw, len(out) == 0)
		if at < 0 {
			out = append(out, l.raw...)
			continue
		}
		out = append(out, l.raw[:at]...)
		out = append(out, ' ')
		out = append(out, hidden...)
		out = append(out, l.raw[len(bytes.TrimRight(l.raw, "\r\n")):]...)
	}
	return out
}

// userinfo returns where the credentials of a request line's target begin and end: what stands between :// and the authority's last @, as the proxy reads it; all of an
// authority that was cut off.
func userinfo(line []byte) (from, to int) {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	scheme := bytes.Index(rest, []byte("://"))
	if !ok || scheme < 0 || bytes.ContainsAny(rest[:scheme], "/?#@") || bytes.ContainsRune(method, ':') {
		return 0, 0
	}
	from = len(method) + 1 + scheme + 3
	authority := line[from:]
	if end := bytes.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	} else if !bytes.HasSuffix(line, []byte("\n")) {
		return from, len(line)
	}
	return from, from + max(bytes.LastIndexByte(authority, '@'), 0)
}

// secretAt returns where the value of a secret field begins in a line with those that continue it, or -1. A server may have read them otherwise than
// Millpond did, so it looks generously: a carriage return alone, and a continuation, may begin a field too.
func secretAt(raw []byte, first bool) int {
	for from := 0; from < len(raw); {
		end := from + 1 + bytes.IndexAny(raw[from:], "\r\n")
		if end == from {
			end = len(raw)
		}
		if part := parseLine(raw[from:end]); part.colon >= 0 && isSecret(part.name, first && from == 0) {
			return from + part.colon
		}
		from = end
	}
	return -1
}

// isSecret reports whether a name is a secret field's, whatever white space and control bytes it holds. Beyond the first line, where a path may
// stand, it is enough that it holds one.
func isSecret(name []byte, first bool) bool {
	plain := strings.ToLower(string(bytes.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return -1
		}
		return r
	}, name)))
	if first {
		return slices.Contains(secret, plain)
	}
	return slices.ContainsFunc(secret, func(word string) bool { return strings.Contains(plain, word) })
}
