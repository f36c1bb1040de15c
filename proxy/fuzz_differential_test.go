package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// reading is what a codec makes of the messages on one connection, up to the first that it does not take.
type reading struct {
	messages []message
	err      error // why the message after them was not taken; io.EOF: there was none
}

// message is one message as a codec read it.
type message struct {
	start  string              // method and target, or status
	proto  string              // HTTP/1.0 or HTTP/1.1
	fields map[string][]string // by canonical name, each in order
	body   string
	kind   bodyKind
	length int64 // as known has it
	end    int   // where the next message begins, in the bytes read; -1: with the connection
	broken error // of the body; io.ErrUnexpectedEOF: it is cut
	head   *head // ours only, as the next
	blank  bool  // an empty line stands before it
}

const fuzzLimit = 64 << 10 // of a head, in bytes

// readOurs reads messages as the relay does. method is that of the requests whose responses they are; empty: they are requests.
func readOurs(from io.Reader, method string) (got reading) {
	count := &countReader{r: from}
	r := bufio.NewReaderSize(count, 4096)
	for {
		before, _ := r.Peek(1)
		blank := string(before) == "\r" || string(before) == "\n"
		raw, err := readHead(r, fuzzLimit)
		if err != nil {
			got.err = err
			if errors.Is(err, errNoHead) {
				got.err = io.EOF
			}
			return got
		}
		var h *head
		var f framing
		if method == "" {
			if h, err = parseRequestHead(raw); err == nil {
				f, err = requestFraming(h)
			}
		} else if h, err = parseResponseHead(raw); err == nil {
			var why string
			if f, why, _ = responseFraming(h, method); why != "" {
				marked := *h
				marked.ambiguous = why
				h = &marked
			}
		}
		if err != nil {
			got.err = err
			return got
		}
		m := message{start: h.method + " " + h.target, proto: h.proto, fields: fieldsByName(h), kind: f.kind, length: f.known(), head: h, blank: blank}
		if method != "" {
			m.start = fmt.Sprint(h.status)
		}
		b := newBodyReader(r, f, fuzzLimit)
		b.chunks.lenient = method != ""
		body, err := io.ReadAll(b)
		m.body, m.broken = string(body), err
		m.end = count.n - r.Buffered()
		if f.kind == untilClose {
			m.end = -1
		}
		got.messages = append(got.messages, m)
		if err != nil || f.kind == untilClose {
			got.err = err
			if err == nil {
				got.err = io.EOF
			}
			return got
		}
	}
}

// readTheirs reads messages with net/http.
func readTheirs(in []byte, method string) (got reading) {
	count := &countReader{r: bytes.NewReader(in)}
	r := bufio.NewReaderSize(count, fuzzLimit)
	for {
		if _, err := r.Peek(1); err != nil {
			got.err = io.EOF
			return got
		}
		var m message
		var header http.Header
		var body io.ReadCloser
		if method == "" {
			req, err := http.ReadRequest(r)
			if err != nil {
				got.err = err
				return got
			}
			m = message{start: req.Method + " " + req.RequestURI, proto: req.Proto, kind: kindOf(req.TransferEncoding, req.ContentLength), length: req.ContentLength}
			header, body = req.Header, req.Body
		} else {
			res, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				got.err = err
				return got
			}
			m = message{start: fmt.Sprint(res.StatusCode), proto: res.Proto, kind: kindOf(res.TransferEncoding, res.ContentLength), length: res.ContentLength}
			header, body = res.Header, res.Body
			if bodyless(method, res.StatusCode) { // net/http tells the length that a GET would have had
				m.kind, m.length = noBody, 0
			}
		}
		m.fields = maps.Clone(header)
		b, err := io.ReadAll(body)
		m.body, m.broken = string(b), err
		m.end = count.n - r.Buffered()
		if m.kind == untilClose {
			m.end = -1
		}
		got.messages = append(got.messages, m)
		if err != nil || m.kind == untilClose {
			got.err = err
			if err == nil {
				got.err = io.EOF
			}
			return got
		}
	}
}

func kindOf(codings []string, length int64) bodyKind {
	switch {
	case len(codings) > 0:
		return byChunks
	case length > 0:
		return byLength
	case length < 0:
		return untilClose
	}
	return noBody
}

func fieldsByName(h *head) map[string][]string {
	all := make(map[string][]string)
	for _, f := range h.fields {
		key := textproto.CanonicalMIMEHeaderKey(f.name)
		all[key] = append(all[key], f.value)
	}
	return all
}

// countReader counts what was read.
type countReader struct {
	r io.Reader
	n int
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// differ compares the two readings of in, and returns what is neither the same meaning nor a known difference; "" for nothing.
func differ(in []byte, method string) string {
	ours, theirs := readOurs(bytes.NewReader(in), method), readTheirs(in, method)
	if bytewise := readOurs(iotest.OneByteReader(bytes.NewReader(in)), method); !sameReading(ours, bytewise) {
		return fmt.Sprintf("read in one piece %s, byte by byte %s", ours, bytewise)
	}
	for i := range max(len(ours.messages), len(theirs.messages)) {
		d := divergence{method: method, ours: at(ours, i), theirs: at(theirs, i)}
		if known := d.known(); known != "" {
			return "" // from here on the two may read different messages
		}
		if why := d.compare(); why != "" {
			return fmt.Sprintf("message %d: %s\nours   %s\ntheirs %s", i+1, why, ours, theirs)
		}
	}
	return ""
}

// one is what a codec makes of one message.
type one struct {
	*message       // nil: it is not taken
	err      error // why; io.EOF: nothing is there
}

func at(r reading, i int) one {
	if i < len(r.messages) {
		return one{message: &r.messages[i], err: r.messages[i].broken}
	}
	return one{err: r.err}
}

// whole reports whether the message was taken to its end.
func (o one) whole() bool { return o.message != nil && o.broken == nil }

// divergence is one message as each of the two codecs reads it.
type divergence struct {
	method       string // of the request, for a response; "" for a request
	ours, theirs one
}

// compare says what the two do not agree on.
func (d divergence) compare() string {
	ours, theirs := d.ours.message, d.theirs.message
	switch {
	case ours == nil && theirs == nil:
		return ""
	case ours == nil:
		return fmt.Sprintf("only net/http takes it; ours: %v", d.ours.err)
	case theirs == nil:
		return fmt.Sprintf("only ours takes it; net/http: %v", d.theirs.err)
	case ours.start != theirs.start, ours.proto != theirs.proto:
		return fmt.Sprintf("start: %q %s, %q %s", ours.start, ours.proto, theirs.start, theirs.proto)
	case ours.kind != theirs.kind, ours.length != theirs.length:
		return fmt.Sprintf("framing: %d %d, %d %d", ours.kind, ours.length, theirs.kind, theirs.length)
	}
	if why := compareFields(ours, theirs); why != "" {
		return why
	}
	switch {
	case (ours.broken == nil) != (theirs.broken == nil):
		return fmt.Sprintf("body: %v, %v", ours.broken, theirs.broken)
	case ours.broken != nil: // what came before the break is not all handed on by net/http
		return ""
	case ours.body != theirs.body:
		return fmt.Sprintf("body: %q, %q", ours.body, theirs.body)
	case ours.end != theirs.end:
		return fmt.Sprintf("end: %d, %d", ours.end, theirs.end)
	}
	return ""
}

// compareFields compares the fields that net/http keeps as they came: it takes out those that it has read itself.
func compareFields(ours, theirs *message) string {
	mine := maps.Clone(ours.fields)
	yours := maps.Clone(theirs.fields)
	for _, key := range []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"} { // framing is compared by its meaning
		delete(mine, key)
		delete(yours, key)
	}
	if p := mine["Pragma"]; len(p) > 0 && p[0] == "no-cache" && len(mine["Cache-Control"]) == 0 {
		delete(yours, "Cache-Control") // net/http adds it
	}
	if ours.head.lists("Connection", "close") && len(yours["Connection"]) == 0 {
		delete(mine, "Connection") // it has read that, too
	}
	folded := foldedNames(ours.head)
	for key, values := range mine {
		if slices.EqualFunc(values, yours[key], func(a, b string) bool {
			return a == b || folded[key] && strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ") // an empty fold is one space or none
		}) {
			delete(yours, key)
			continue
		}
		return fmt.Sprintf("field %s: %q, %q", key, values, yours[key])
	}
	if len(yours) > 0 {
		return fmt.Sprintf("fields that only net/http has: %q", yours)
	}
	return ""
}

// foldedNames are the names of the fields that stand on more than one line.
func foldedNames(h *head) map[string]bool {
	names := make(map[string]bool)
	for _, f := range h.fields {
		if strings.Count(f.line, "\n") > 1 {
			names[textproto.CanonicalMIMEHeaderKey(f.name)] = true
		}
	}
	return names
}

func sameReading(a, b reading) bool {
	return slices.EqualFunc(a.messages, b.messages, func(a, b message) bool {
		return a.start == b.start && a.kind == b.kind && a.length == b.length && a.body == b.body && (a.broken == nil) == (b.broken == nil) && (a.broken != nil || a.end == b.end)
	}) && (a.err == nil) == (b.err == nil)
}

func (r reading) String() string {
	var s strings.Builder
	for _, m := range r.messages {
		fmt.Fprintf(&s, "{%q %s kind %d length %d body %.60q end %d broken %v fields %.200q} ", m.start, m.proto, m.kind, m.length, m.body, m.end, m.broken, fmt.Sprint(m.fields))
	}
	return s.String() + fmt.Sprint(r.err)
}

// rewritten checks that what the relay makes of a request's head for an origin still means the same: a head that is taken apart and put together with other
// fields must not gain, lose or merge lines.
func rewritten(t *testing.T, in []byte) {
	raw, err := readHead(bufio.NewReader(bytes.NewReader(in)), fuzzLimit)
	if err != nil {
		return
	}
	h, err := parseRequestHead(raw)
	if err != nil {
		return
	}
	if same := h.with(h.start, h.fields); !bytes.Equal(same.raw, h.raw[:len(same.raw)]) {
		t.Errorf("put together without a change: %q became %q", h.raw, same.raw)
	}
	f, err := requestFraming(h)
	to, bad := parseAbsolute(h.target)
	if err != nil || bad != nil {
		return
	}
	sent, _ := toOrigin(h, to)
	again, err := parseRequestHead(sent.raw)
	if err != nil {
		t.Errorf("%q became %q: %v", raw, sent.raw, err)
		return
	}
	if g, err := requestFraming(again); err != nil || g != f {
		t.Errorf("%q became %q, framed %+v, %v, not %+v", raw, sent.raw, g, err, f)
	}
	want, got := fieldsByName(h), fieldsByName(again)
	for _, key := range []string{"Host", "Proxy-Connection", "Proxy-Authorization"} {
		delete(want, key)
	}
	if hosts := got["Host"]; len(hosts) != 1 {
		t.Errorf("%q became %q, with %d Hosts", raw, sent.raw, len(hosts))
	}
	delete(got, "Host")
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("%q became %q: fields %q, want %q", raw, sent.raw, got, want)
	}
}

func FuzzRequests(f *testing.F) {
	for _, in := range requestSeeds() {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if why := differ(in, ""); why != "" {
			t.Errorf("%q\n%s", in, why)
		}
		rewritten(t, in)
	})
}

func FuzzResponses(f *testing.F) {
	for _, in := range responseSeeds() {
		f.Add([]byte(in), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		if why := differ(in, method); why != "" {
			t.Errorf("%s %q\n%s", method, in, why)
		}
	})
}
