package proxy

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// difference is a kind of message that ours and net/http's parser do not read alike, and that is meant so. docs/wire.md tells of each.
type difference struct {
	name     string
	example  string
	lenient  bool // ours takes what net/http does not; else the other way round
	flagged  bool // also where net/http takes it: ours flags it, and nothing follows on its connection
	matches  func(d divergence) bool
	response bool // its example is one
}

// differences are all that are known. In each but the first only one of the two takes the message: a message that both take means the same to both.
var differences = []difference{
	{
		name: "an ambiguous response, to the connection's end", response: true, lenient: true, flagged: true, example: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		matches: func(d divergence) bool { return d.ours.head.ambiguous != "" },
	},
	{
		name: "empty lines before a head", lenient: true, example: "\r\n\nGET / HTTP/1.1\r\n\r\n",
		matches: func(d divergence) bool { return d.ours.blank },
	},
	{
		name: "a target that is no URL", lenient: true, example: "GET /%zz HTTP/1.1\r\n\r\n",
		matches: func(d divergence) bool { return d.method == "" && !parsesAsURL(d.ours.head) },
	},
	{
		name: "a field name that is no token", lenient: true, example: "GET / HTTP/1.1\r\na=b; c d: e\r\n\r\n",
		matches: func(d divergence) bool {
			return slices.ContainsFunc(d.ours.head.fields, func(f field) bool { return !isToken(f.name) })
		},
	},
	{
		name: "control bytes in a value", lenient: true, example: "GET / HTTP/1.1\r\nCookie: a\x01b\r\n\r\n",
		matches: func(d divergence) bool {
			return slices.ContainsFunc(d.ours.head.fields, func(f field) bool { return strings.ContainsFunc(f.value, isControl) })
		},
	},
	{
		name: "several Host fields", lenient: true, example: "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		matches: func(d divergence) bool { return d.method == "" && len(d.ours.fields["Host"]) > 1 },
	},
	{
		name: "equal lengths in one field", lenient: true, example: "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\na",
		matches: func(d divergence) bool {
			return slices.ContainsFunc(d.ours.fields["Content-Length"], func(v string) bool { return strings.Contains(v, ",") })
		},
	},
	{
		name: "equal lengths written differently", lenient: true, example: "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 01\r\n\r\na",
		matches: func(d divergence) bool {
			v := d.ours.fields["Content-Length"]
			return len(v) > 1 && slices.ContainsFunc(v, func(s string) bool { return s != v[0] })
		},
	},
	{
		name: "codings before chunked", lenient: true, example: "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		matches: func(d divergence) bool {
			codings, _ := transferCodings(d.ours.head)
			return d.ours.kind == byChunks && len(codings) > 1 && strings.Contains(d.theirs.err.Error(), "transfer encoding")
		},
	},
	{
		name: "framing announced as a trailer", lenient: true, example: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		matches: func(d divergence) bool { return errorHas(d.theirs.err, "bad trailer key") },
	},
	{
		name: "trailers that are no fields", lenient: true, example: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na b\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.kind == byChunks && errorHas(d.theirs.err, "malformed MIME header")
		},
	},
	{
		name: "a chunk's size with many zeros", lenient: true, example: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\na\r\n0\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.kind == byChunks && errorHas(d.theirs.err, "http chunk length too large")
		},
	},
	{
		name: "long chunk extensions", lenient: true, example: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 5000) + "\r\na\r\n0\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.kind == byChunks && (errorHas(d.theirs.err, "header line too long") || errorHas(d.theirs.err, "too much non-data"))
		},
	},
	{
		name: "no body and a length that is none", response: true, lenient: true, example: "HTTP/1.1 204 No Content\r\nContent-Length: x\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.kind == noBody && (errorHas(d.theirs.err, "Content-Length") || errorHas(d.theirs.err, "transfer encoding"))
		},
	},
	{
		name: "a response in another coding, to the connection's end", response: true, lenient: true, example: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
		matches: func(d divergence) bool {
			return d.ours.kind == untilClose && errorHas(d.theirs.err, "transfer encoding")
		},
	},
	{
		name: "other text behind a chunk's size, in a response", response: true, lenient: true, example: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 x\r\na\r\n0\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.kind == byChunks && errorHas(d.theirs.err, "invalid byte in chunk length")
		},
	},
	{
		name: "lone line feeds in a response's chunks", response: true, lenient: true, example: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
		matches: func(d divergence) bool {
			return d.ours.kind == byChunks && (errorHas(d.theirs.err, "bare LF") || errorHas(d.theirs.err, "malformed chunked encoding") || errorHas(d.theirs.err, "suspiciously long trailer") || errorHas(d.theirs.err, "unexpected EOF"))
		},
	},

	{
		name: "another HTTP version", example: "GET / HTTP/1.2\r\n\r\n",
		matches: func(d divergence) bool { return d.theirs.proto != "HTTP/1.1" && d.theirs.proto != "HTTP/1.0" },
	},
	{
		name: "both framings", example: "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		matches: func(d divergence) bool { return errorHas(d.ours.err, "both Transfer-Encoding and Content-Length") },
	},
	{
		name: "a coding in HTTP/1.0", example: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		matches: func(d divergence) bool { return errorHas(d.ours.err, "HTTP/1.0 request") },
	},
	{
		name: "framing over two lines", example: "POST / HTTP/1.1\r\nContent-Length:\r\n 0\r\n\r\n",
		matches: func(d divergence) bool { return errorHas(d.ours.err, "is folded over two lines") },
	},
	{
		name: "a space before the colon", example: "GET / HTTP/1.1\r\nA : b\r\n\r\n",
		matches: func(d divergence) bool { return errorHas(d.ours.err, "a space stands before the colon") },
	},
	{
		name: "a lone line feed in a request's trailers", example: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\nGET / HTTP/1.1\r\n\r\n",
		matches: func(d divergence) bool {
			return d.ours.message != nil && d.ours.kind == byChunks && errorHas(d.ours.err, "a line feed without carriage return")
		},
	},
	{
		name: "a length of more than 19 digits", example: "POST / HTTP/1.1\r\nContent-Length: 00000000000000000001\r\n\r\na",
		matches: func(d divergence) bool {
			return errorHas(d.ours.err, "a Content-Length is not a length") && strings.HasPrefix(strings.Join(d.theirs.fields["Content-Length"], ""), "0")
		},
	},
	{
		name: "a status line that is not one", response: true, example: "HTTP/1.1  200 OK\r\n\r\n",
		matches: func(d divergence) bool { return errors.Is(d.ours.err, errNoStatusLine) },
	},
}

// known returns the name of the difference that d is, or "".
func (d divergence) known() string {
	lenient := d.ours.message != nil && !d.theirs.whole() && d.theirs.err != io.EOF
	strict := d.theirs.message != nil && !d.ours.whole()
	for _, k := range differences {
		if k.response && d.method == "" || !(k.lenient && lenient || !k.lenient && strict || k.flagged && d.ours.message != nil) {
			continue
		}
		if k.matches(d) {
			return k.name
		}
	}
	return ""
}

func errorHas(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

func parsesAsURL(h *head) bool {
	target := h.target
	if h.method == http.MethodConnect && !strings.HasPrefix(target, "/") {
		target = "http://" + target
	}
	_, err := url.ParseRequestURI(target)
	return err == nil
}

// TestDifferencesFromNetHTTP holds each known difference: it is there, it is the one that is meant, and nothing else is different about its example.
func TestDifferencesFromNetHTTP(t *testing.T) {
	for _, k := range differences {
		t.Run(k.name, func(t *testing.T) {
			method := ""
			if k.response {
				method = "GET"
			}
			ours, theirs := readOurs(strings.NewReader(k.example), method), readTheirs([]byte(k.example), method)
			d := divergence{method: method, ours: at(ours, 0), theirs: at(theirs, 0)}
			if d.ours.whole() != k.lenient || d.theirs.whole() == k.lenient {
				t.Errorf("ours   %v\ntheirs %v", ours, theirs)
			}
			if got := d.known(); got != k.name {
				t.Errorf("it is taken for %q", got)
			}
		})
	}
}
