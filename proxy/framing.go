package proxy

import (
	"errors"
	"net/http"
	"strings"

	"millpond/storage"
)

// bodyKind says how a message's end is found. RFC 9112, section 6.3.
type bodyKind uint8

const (
	noBody     bodyKind = iota
	byLength            // Content-Length
	byChunks            // Transfer-Encoding whose last coding is chunked
	untilClose          // a response that its connection's end ends
)

// stored is the kind as a session tells it.
func (k bodyKind) stored() storage.Framing {
	return [...]storage.Framing{storage.FramingNone, storage.FramingLength, storage.FramingChunked, storage.FramingClose}[k]
}

// framing is how a message's body is delimited.
type framing struct {
	kind   bodyKind
	length int64 // of a body by length, in bytes
}

// known returns the body's length as net/http has it: -1 where only its end tells.
func (f framing) known() int64 {
	switch f.kind {
	case noBody:
		return 0
	case byLength:
		return f.length
	}
	return -1
}

// requestFraming decides where a request ends. What could be read in two ways is an error: RFC 9112, section 6.3, and 11.2 on why.
func requestFraming(h *head) (framing, error) {
	codings, coded := transferCodings(h)
	length, sized, err := contentLength(h)
	switch {
	case err != nil:
		return framing{}, err
	case coded && sized:
		return framing{}, errors.New("the request has both Transfer-Encoding and Content-Length")
	case coded && h.proto == "HTTP/1.0":
		return framing{}, errors.New("an HTTP/1.0 request cannot have a Transfer-Encoding")
	case coded && !endsInChunked(codings):
		return framing{}, errors.New("the Transfer-Encoding does not end in chunked")
	case coded:
		return framing{kind: byChunks}, nil
	case sized && length > 0:
		return framing{kind: byLength, length: length}, nil
	}
	return framing{}, nil
}

// responseFraming decides where a response to method ends. It never fails: what could be read in two ways is taken to last until the connection's
// end, and ambiguous says why. With both Transfer-Encoding and Content-Length the former counts, and dropLength says that the latter must not be passed on;
// after any other ambiguous response nothing may follow on the client's connection.
func responseFraming(h *head, method string) (f framing, ambiguous string, dropLength bool) {
	if bodyless(method, h.status) {
		return framing{}, "", false
	}
	codings, coded := transferCodings(h)
	length, sized, err := contentLength(h)
	switch {
	case h.ambiguous != "":
		return framing{kind: untilClose}, h.ambiguous, false
	case coded && h.proto == "HTTP/1.0":
		return framing{kind: untilClose}, "an HTTP/1.0 response has a Transfer-Encoding", false
	case coded && countChunked(codings) > 1, coded && countChunked(codings) == 1 && !endsInChunked(codings):
		return framing{kind: untilClose}, "the Transfer-Encoding is chunked before its end", false
	case coded && sized && onlyIdentity(codings):
		// The name of a coding that changes nothing, in an old RFC. Some read the length, some to the connection's end: both are served by ending it there.
		f = framing{kind: byLength, length: length}
		if length == 0 {
			f.kind = noBody
		}
		return f, "the response has a Transfer-Encoding of identity and a Content-Length", false
	case coded && (sized || err != nil):
		f = framing{kind: untilClose}
		if endsInChunked(codings) {
			f.kind = byChunks
		}
		return f, "the response has both Transfer-Encoding and Content-Length", true
	case coded && endsInChunked(codings):
		return framing{kind: byChunks}, "", false
	case coded:
		return framing{kind: untilClose}, "", false
	case err != nil:
		return framing{kind: untilClose}, err.Error(), false
	case sized && length > 0:
		return framing{kind: byLength, length: length}, "", false
	case sized:
		return framing{}, "", false
	}
	return framing{kind: untilClose}, "", false
}

// bodyless reports whether a response to method with this status has no body, whatever its fields say.
func bodyless(method string, status int) bool {
	return method == http.MethodHead || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// transferCodings returns the codings of all Transfer-Encoding fields, lower-case, and whether there is such a field.
func transferCodings(h *head) (codings []string, ok bool) {
	for i := range h.fields {
		if !strings.EqualFold(h.fields[i].name, "Transfer-Encoding") {
			continue
		}
		ok = true
		for item := range strings.SplitSeq(h.fields[i].value, ",") {
			codings = append(codings, strings.ToLower(strings.Trim(item, " \t")))
		}
	}
	return codings, ok
}

// endsInChunked reports whether the last coding is chunked, and no other is.
func endsInChunked(codings []string) bool {
	return len(codings) > 0 && codings[len(codings)-1] == "chunked" && countChunked(codings) == 1
}

func onlyIdentity(codings []string) bool {
	for _, c := range codings {
		if c != "identity" {
			return false
		}
	}
	return true
}

func countChunked(codings []string) int {
	n := 0
	for _, c := range codings {
		if c == "chunked" {
			n++
		}
	}
	return n
}

// contentLength returns the length that all Content-Length fields agree on, and whether there is one.
func contentLength(h *head) (length int64, ok bool, err error) {
	for i := range h.fields {
		if !strings.EqualFold(h.fields[i].name, "Content-Length") {
			continue
		}
		for item := range strings.SplitSeq(h.fields[i].value, ",") {
			n, valid := parseLength(strings.Trim(item, " \t"))
			switch {
			case !valid:
				return 0, false, errors.New("a Content-Length is not a length")
			case ok && n != length:
				return 0, false, errors.New("the Content-Lengths differ")
			}
			length, ok = n, true
		}
	}
	return length, ok, nil
}

// parseLength reads 1*DIGIT below 2^63.
func parseLength(s string) (n int64, ok bool) {
	if s == "" || len(s) > 19 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		d := int64(s[i] - '0')
		if s[i] < '0' || s[i] > '9' || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
