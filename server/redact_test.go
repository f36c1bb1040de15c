package server

import (
	"bytes"
	"strings"
	"testing"

	"millpond/storage"
)

const secretWord = "s3cret"

func TestRedactHead(t *testing.T) {
	for _, test := range []struct{ name, head, want string }{
		{"nothing to hide", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"cookie", "GET / HTTP/1.1\r\nCookie: s3cret\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nCookie: (hidden)\r\nHost: a\r\n\r\n"},
		{"any case", "GET / HTTP/1.1\r\naUTHORIZATION:s3cret\r\n\r\n", "GET / HTTP/1.1\r\naUTHORIZATION: (hidden)\r\n\r\n"},
		{"space before the colon", "GET / HTTP/1.1\r\nCookie : s3cret\r\n\r\n", "GET / HTTP/1.1\r\nCookie : (hidden)\r\n\r\n"},
		{"folded", "HTTP/1.1 200 OK\r\nSet-Cookie: a=\r\n s3cret;\r\n\ts3cret\r\nX: y\r\n\r\n", "HTTP/1.1 200 OK\r\nSet-Cookie: (hidden)\r\nX: y\r\n\r\n"},
		{"repeated", "HTTP/1.1 200 OK\r\nSet-Cookie: s3cret\r\nset-cookie: s3cret\r\n\r\n", "HTTP/1.1 200 OK\r\nSet-Cookie: (hidden)\r\nset-cookie: (hidden)\r\n\r\n"},
		{"bare line feeds", "GET / HTTP/1.1\nCookie: s3cret\n\n", "GET / HTTP/1.1\nCookie: (hidden)\n\n"},
		{"no line end", "Cookie: s3cret", "Cookie: (hidden)"},
		{"HTTP/2", ":method: GET\ncookie: s3cret\nproxy-authorization: s3cret\n", ":method: GET\ncookie: (hidden)\nproxy-authorization: (hidden)\n"},
		{"control bytes in the name", "GET / HTTP/1.1\r\nCookie\x00: s3cret\r\nCoo\x01kie\x0b : s3cret\r\n\r\n", "GET / HTTP/1.1\r\nCookie\x00: (hidden)\r\nCoo\x01kie\x0b : (hidden)\r\n\r\n"},
		{"a carriage return before it", "GET / HTTP/1.1\r\nX: y\rCookie: s3cret\r\n\r\n", "GET / HTTP/1.1\r\nX: y\rCookie: (hidden)\r\n\r\n"},
		{"in a continuation", "GET / HTTP/1.1\r\nX: y\r\n Cookie: s3cret\r\nZ: z\r\n\r\n", "GET / HTTP/1.1\r\nX: y\r\n Cookie: (hidden)\r\nZ: z\r\n\r\n"},
		{"an escaped name", ":method: GET\nx\\r\\ncookie: s3cret\n", ":method: GET\nx\\r\\ncookie: (hidden)\n"},
		{"an older name", "HTTP/1.1 200 OK\r\nSet-Cookie2: s3cret\r\n\r\n", "HTTP/1.1 200 OK\r\nSet-Cookie2: (hidden)\r\n\r\n"},
		{"credentials in the target", "GET http://ann:s3cret@a:1/b@c HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://(hidden)@a:1/b@c HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"two of them", "GET HTTP://ann:s3cret@s3cret@a?@ HTTP/1.1\r\nCookie: s3cret\r\n\r\n", "GET HTTP://(hidden)@a?@ HTTP/1.1\r\nCookie: (hidden)\r\n\r\n"},
		{"cut off before their end", "GET http://ann:s3cret", "GET http://(hidden)"},
		{"cut off within a password", "GET http://ann:s3cret@s3cr", "GET http://(hidden)"},
		{"cut off behind them", "GET http://ann:s3cret@a/b", "GET http://(hidden)@a/b"},
		{"a target without them", "GET http://a/b@c HTTP/1.1\r\n\r\n", "GET http://a/b@c HTTP/1.1\r\n\r\n"},
		{"a URL in a query", "GET /?to=http://ann@a/ HTTP/1.1\r\n\r\n", "GET /?to=http://ann@a/ HTTP/1.1\r\n\r\n"},
		{"a path", "GET /cookie:a HTTP/1.1\r\n\r\n", "GET /cookie:a HTTP/1.1\r\n\r\n"},
		{"empty value", "GET / HTTP/1.1\r\nCookie:\r\n\r\n", "GET / HTTP/1.1\r\nCookie: (hidden)\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := string(redactHead([]byte(test.head))); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Every place of a session that holds fields is redacted, and the store's own bytes are not written to.
func TestRedactReachesEveryHead(t *testing.T) {
	head := []byte("HTTP/1.1 200 OK\r\nSet-Cookie: " + secretWord + "\r\nCookie: " + secretWord + "\r\nAuthorization: " + secretWord + "\r\nProxy-Authorization: " + secretWord + "\r\n\r\n")
	before := bytes.Clone(head)
	m := storage.Message{Head: head, Received: head, Informational: [][]byte{head}, Trailers: head[17:]}
	session := storage.Session{Sides: [2]storage.Message{m, m}, Note: secretWord}
	redact(&session)
	for _, side := range session.Sides {
		for _, h := range append([][]byte{side.Head, side.Received, side.Trailers}, side.Informational...) {
			if strings.Contains(string(h), secretWord) || strings.Count(string(h), hidden) != 4 {
				t.Errorf("got %q", h)
			}
		}
	}
	if session.Note != "" || !bytes.Equal(head, before) {
		t.Error("the note is shown, or the record was written to")
	}
}

// An error may quote what the client sent.
func TestRedactHidesWhatAnErrorQuotes(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"upstream sent GOAWAY NO_ERROR \"Cookie: \\\"s3cret\\\" s3cret\", and left", "upstream sent GOAWAY NO_ERROR (hidden), and left"},
		{`the line "Cookie : s3cret… is cut`, "the line (hidden)"},
		{"it doesn't", "it doesn't"},
	} {
		row := storage.Row{Error: test.text}
		if redactRow(&row); row.Error != test.want {
			t.Errorf("got %q, want %q", row.Error, test.want)
		}
	}
}

func TestFieldsOf(t *testing.T) {
	for _, test := range []struct {
		name, head string
		want       []Field
	}{
		{"request", "GET http://a:1/ HTTP/1.1\r\nHost: a\r\nX-E:\r\nx-e: caf\xe9\r\n\r\n", []Field{{"Host", "a"}, {"X-E", ""}, {"x-e", "café"}}},
		{"status line with a colon", "HTTP/1.1 200 Note: well\r\nA: b\r\n\r\n", []Field{{"A", "b"}}},
		{"HTTP/2", ":status: 200\na: b\n", []Field{{":status", "200"}, {"a", "b"}}},
		{"folded", "HTTP/1.1 200\r\nA: b\r\n c\r\n\r\n", []Field{{"A", "b\r\n c"}}},
		{"nothing", "", []Field{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := fieldsOf([]byte(test.head))
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("got %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

// What is no field and can hold anything is hidden too: that it was there, and how long it is, is shown.
func TestRedactHidesWhatFramesSay(t *testing.T) {
	secretly := []byte(";" + secretWord)
	session := storage.Session{HTTP2: &storage.HTTP2{Stream: 3, Away: []storage.GoAway{{By: storage.ByUpstream, Debug: secretly, Size: 9}, {By: storage.ByClient}}}}
	session.Sides[storage.Response].Chunks = &storage.Chunks{Extensions: []storage.ChunkExtension{{Offset: 1, Text: secretly}}}
	before := session
	redact(&session)
	if got := session.Sides[storage.Response].Chunks.Extensions[0]; string(got.Text) != hidden || got.Offset != 1 {
		t.Errorf("the extension is %+v", got)
	}
	if got := session.HTTP2.Away; string(got[0].Debug) != hidden || got[0].Size != 9 || got[1].Debug != nil || session.HTTP2.Stream != 3 {
		t.Errorf("GOAWAY is %+v", got)
	}
	if string(before.HTTP2.Away[0].Debug) != string(secretly) || string(before.Sides[storage.Response].Chunks.Extensions[0].Text) != string(secretly) {
		t.Error("the record was written to")
	}
}
