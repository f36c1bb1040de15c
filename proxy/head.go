package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unsafe"
)

// field is one header field in the bytes that were on the wire: a Go string holds any byte, so latin-1 stays latin-1.
type field struct {
	name, value string
	// line is the field's bytes in an HTTP/1 head, with folded lines and the line's end. Empty for HTTP/2 and for a field that a modifier made.
	// A line without a colon has no name.
	line string
	// sensitive says that HTTP/2 must never index it. RFC 7541, section 7.1.3.
	sensitive bool
}

// head is the start line and the fields of a message, of HTTP/1 or of HTTP/2. It is not changed once made: what alters it makes another.
type head struct {
	raw    []byte // HTTP/1: the bytes with the final empty line. HTTP/2: one "name: value\n" a line
	fields []field
	proto  string // HTTP/1.0, HTTP/1.1 or HTTP/2
	start  string // HTTP/1: the start line without its end
	eol    string // HTTP/1: the start line's end, "\r\n" or "\n"
	last   string // HTTP/1: the empty line, where it is not eol

	method, target string // a request's, as on the wire (HTTP/2: :method and :path)
	status         int    // a response's

	ambiguous string // what makes its framing readable in two ways, beside the framing fields' values; empty for nothing
	oddName   bool   // a field's name is none that HTTP allows, and passes
}

var (
	errHeadTooLarge = errors.New("the head is larger than Millpond takes")
	errNoHead       = errors.New("closed before a head began")
	errNoStatusLine = errors.New("the first line is not an HTTP/1 status line")
)

// awaitHead waits for the first byte of a head. The connection ending before it is errNoHead.
func awaitHead(r *bufio.Reader) error {
	_, err := r.Peek(1)
	if errors.Is(err, io.EOF) {
		return errNoHead
	}
	return err
}

// readHead reads a head's bytes up to and with its empty line, at most limit bytes. Empty lines before it are dropped (RFC 9112, section 2.2).
// The connection ending before its first byte is errNoHead; the bytes that came are returned with every other error.
func readHead(r *bufio.Reader, limit int) ([]byte, error) {
	var raw []byte
	for {
		if len(raw) == 0 {
			if err := awaitHead(r); err != nil {
				return nil, err
			}
		} else if _, err := r.Peek(1); err != nil {
			return raw, err
		}
		have, _ := r.Peek(r.Buffered())
		if len(raw) == 0 {
			blank := len(have) - len(bytes.TrimLeft(have, "\r\n"))
			if limit -= blank; limit <= 0 {
				return nil, errHeadTooLarge
			}
			r.Discard(blank)
			if have = have[blank:]; len(have) == 0 {
				continue
			}
		}
		if len(raw) == 0 { // a head that came in one piece is copied once, and what follows it is not
			if end := headEnd(have, 0); end >= 0 && end <= limit {
				raw = bytes.Clone(have[:end])
				r.Discard(end)
				return raw, nil
			}
		}
		seen := len(raw)
		raw = append(raw, have...)
		end := headEnd(raw, max(0, seen-3))
		if end < 0 && len(raw) > limit || end > limit {
			return raw[:limit], errHeadTooLarge
		}
		if end >= 0 {
			r.Discard(end - seen)
			return raw[:end], nil
		}
		r.Discard(len(have))
	}
}

// headEnd returns the length of a head that is whole, the empty line with it, or -1. from is where to begin looking.
func headEnd(raw []byte, from int) int {
	for {
		i := bytes.IndexByte(raw[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
		switch rest := raw[from:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return from + 2
		}
	}
}

// parseRequestHead takes apart a request's head. Its errors say what a client did wrong, as RFC 9112 has it. They quote nothing of what came:
// they are shown where its credentials are hidden.
func parseRequestHead(raw []byte) (*head, error) {
	h, lines := splitStart(raw)
	method, rest, ok := strings.Cut(h.start, " ")
	if !ok || !isToken(method) {
		return nil, errors.New("the first line is not an HTTP request")
	}
	i := strings.LastIndexByte(rest, ' ')
	if i < 0 {
		return nil, errors.New("the request line has no HTTP version")
	}
	h.method, h.target, h.proto = method, rest[:i], rest[i+1:]
	if h.proto != "HTTP/1.1" && h.proto != "HTTP/1.0" {
		return nil, errors.New("the request line does not end in HTTP/1.0 or HTTP/1.1")
	}
	if h.target == "" || strings.ContainsAny(h.target, " \t") {
		return nil, errors.New("the request line does not have one target")
	}
	h.parseFields(lines)
	if h.ambiguous != "" {
		return nil, errors.New(h.ambiguous)
	}
	return h, nil
}

// parseResponseHead takes apart a response's head. Only a first line that is no HTTP/1 status line is an error; what else is odd is told by ambiguous.
func parseResponseHead(raw []byte) (*head, error) {
	h, lines := splitStart(raw)
	proto, rest, _ := strings.Cut(h.start, " ")
	code, _, _ := strings.Cut(rest, " ")
	if proto != "HTTP/1.1" && proto != "HTTP/1.0" || len(code) != 3 {
		return nil, errNoStatusLine
	}
	for _, c := range []byte(code) {
		if c < '0' || c > '9' {
			return nil, errNoStatusLine
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 {
		return nil, errNoStatusLine
	}
	h.proto = proto
	h.parseFields(lines)
	return h, nil
}

// splitStart makes a head of the first line; the lines after it are left to parseFields.
func splitStart(raw []byte) (h *head, lines string) {
	text := unsafe.String(unsafe.SliceData(raw), len(raw)) // raw is not changed once read, and each head holds it anyway
	line, lines, _ := strings.Cut(text, "\n")
	h = &head{raw: raw, start: line, eol: "\n"}
	if cut, ok := strings.CutSuffix(line, "\r"); ok {
		h.start, h.eol = cut, "\r\n"
	}
	if strings.IndexByte(h.start, '\r') >= 0 {
		h.ambiguous = "a carriage return stands inside the first line"
	} else if i := strings.IndexByte(text, 0); i >= 0 { // RFC 9110, section 5.5: some end the value there
		h.ambiguous = fmt.Sprintf("a NUL byte stands in line %d of the head", 1+strings.Count(text[:i], "\n"))
	}
	return h, lines
}

// parseFields appends the fields of lines, and sets ambiguous for what RFC 9112, sections 2.2 and 5, has a server refuse, and for names that programs
// make different fields of.
func (h *head) parseFields(lines string) {
	odd := func(format string, args ...any) {
		if h.ambiguous == "" {
			h.ambiguous = fmt.Sprintf(format, args...)
		}
	}
	h.fields = make([]field, 0, strings.Count(lines, "\n"))
	for n := 2; lines != ""; n++ { // n is the line's number
		end := strings.IndexByte(lines, '\n') + 1
		if end == 0 {
			end = len(lines)
		}
		line := lines[:end]
		lines = lines[end:]
		content := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if content == "" {
			if line != h.eol {
				h.last = line
			}
			break
		}
		if strings.IndexByte(content, '\r') >= 0 {
			odd("a carriage return stands inside line %d of the head", n)
		}
		if content[0] == ' ' || content[0] == '\t' {
			if len(h.fields) == 0 {
				odd("the first field line begins with a space")
				h.fields = append(h.fields, field{line: line})
				continue
			}
			last := &h.fields[len(h.fields)-1]
			if framingField(last.name) || h.method != "" && strings.EqualFold(last.name, "Host") { // Host is rewritten where it differs from the target
				odd("the field %s is folded over two lines", last.name)
			}
			// A fold means a space (RFC 9112, section 5.2); the wire keeps its lines.
			last.line += line
			last.value = strings.Trim(last.value+" "+strings.Trim(content, " \t"), " \t")
			continue
		}
		name, value, ok := strings.Cut(content, ":")
		if !ok || name == "" {
			odd("line %d of the head has no name and colon", n)
			h.fields = append(h.fields, field{line: line})
			continue
		}
		if c := name[len(name)-1]; c == ' ' || c == '\t' {
			odd("a space stands before the colon in line %d of the head", n)
			name = strings.TrimRight(name, " \t")
		}
		if !isToken(name) { // RFC 9110, section 5.1
			h.oddName = true
			switch core := strings.TrimFunc(name, func(c rune) bool { return c >= 0x80 || !isToken(string(c)) }); {
			case strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }): // many trim them, or end the name there
				odd("a control byte stands in the name of line %d of the head", n)
			case framingField(core):
				odd("the name of line %d of the head is %s to who trims it", n, http.CanonicalHeaderKey(core))
			}
		}
		h.fields = append(h.fields, field{name: name, value: strings.Trim(value, " \t"), line: line})
	}
}

// framingField reports whether a field says where a message ends.
func framingField(name string) bool {
	return strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding")
}

// value returns the first field of that name.
func (h *head) value(name string) (string, bool) {
	for i := range h.fields {
		if len(h.fields[i].name) == len(name) && strings.EqualFold(h.fields[i].name, name) {
			return h.fields[i].value, true
		}
	}
	return "", false
}

// joined returns the values of all fields of that name, joined by commas. RFC 9110, section 5.3.
func (h *head) joined(name string) string {
	var values []string
	for i := range h.fields {
		if strings.EqualFold(h.fields[i].name, name) {
			values = append(values, h.fields[i].value)
		}
	}
	return strings.Join(values, ", ")
}

// lists reports whether the comma-separated fields of that name hold the word, in any case.
func (h *head) lists(name, word string) bool {
	for i := range h.fields {
		if len(h.fields[i].name) != len(name) || !strings.EqualFold(h.fields[i].name, name) {
			continue
		}
		for item := range strings.SplitSeq(h.fields[i].value, ",") {
			if strings.EqualFold(strings.Trim(item, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// keepsAlive reports whether the message lets its connection serve another exchange. RFC 9112, section 9.3.
func (h *head) keepsAlive() bool {
	if h.lists("Connection", "close") {
		return false
	}
	return h.proto != "HTTP/1.0" || h.lists("Connection", "keep-alive")
}

// with returns a head of other fields, and for HTTP/1 another start line; fields that have a line keep its bytes.
func (h *head) with(start string, fields []field) *head {
	n := *h
	n.start, n.fields = start, fields
	size := len(start) + 4
	for i := range fields {
		size += len(fields[i].line) + len(fields[i].name) + len(fields[i].value) + 4
	}
	raw := make([]byte, 0, size)
	if h.proto == "HTTP/2" {
		for i := range fields {
			raw = append(append(append(append(raw, fields[i].name...), ": "...), fields[i].value...), '\n')
		}
		n.raw = raw
		return &n
	}
	raw = append(append(raw, start...), h.eol...)
	for i := range fields {
		if f := &fields[i]; f.line != "" {
			raw = append(raw, f.line...)
		} else {
			raw = append(append(append(append(raw, f.name...), ": "...), f.value...), h.eol...)
		}
	}
	last := h.eol
	if h.last != "" {
		last = h.last
	}
	n.raw = append(raw, last...)
	return &n
}

// newHead2 makes a head of HTTP/2 fields, pseudo-fields with them as they came.
func newHead2(fields []field) *head {
	h := &head{proto: "HTTP/2", fields: fields}
	for i := range fields {
		switch v := fields[i].value; fields[i].name {
		case ":method":
			h.method = v
		case ":path":
			h.target = v
		case ":status":
			for _, c := range []byte(v) {
				h.status = h.status*10 + int(c-'0')
			}
		default:
			if name := strings.TrimPrefix(fields[i].name, ":"); !isToken(name) || strings.ToLower(name) != name { // RFC 9113, section 8.2.1
				h.oddName = true
			}
		}
	}
	return h.with("", fields)
}

// isToken reports whether s is a token. RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

var tokenBytes = func() (of [256]bool) {
	for _, c := range []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~") {
		of[c] = true
	}
	return of
}()
