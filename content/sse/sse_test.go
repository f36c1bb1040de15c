package sse

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// parse finds the events of a body that comes in pieces of at most size bytes.
func parse(body string, size int) (found []Message) {
	p := Parser{Found: func(m Message) { found = append(found, m) }}
	for rest := []byte(body); len(rest) > 0; {
		n := min(size, len(rest))
		p.Write(rest[:n])
		rest = rest[n:]
	}
	p.End()
	return found
}

func TestParser(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string // each event's bytes
		data       []string
		broken     bool // the last
	}{
		{name: "one", body: "data: hello\n\n", want: []string{"data: hello\n\n"}, data: []string{"hello"}},
		{name: "no space after the colon", body: "data:hello\n\n", want: []string{"data:hello\n\n"}, data: []string{"hello"}},
		{name: "two spaces", body: "data:  hello\n\n", want: []string{"data:  hello\n\n"}, data: []string{" hello"}},
		{name: "all fields", body: "event: add\nid: 7\nretry: 100\ndata: a\ndata: b\n\n", want: []string{"event: add\nid: 7\nretry: 100\ndata: a\ndata: b\n\n"}, data: []string{"a\nb"}},
		{name: "carriage returns", body: "data: a\r\rdata: b\r\r", want: []string{"data: a\r\r", "data: b\r\r"}, data: []string{"a", "b"}},
		{name: "both", body: "data: a\r\ndata\r\n\r\ndata: b\r\n\r\n", want: []string{"data: a\r\ndata\r\n\r\n", "data: b\r\n\r\n"}, data: []string{"a\n", "b"}},
		{name: "mixed", body: "data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", want: []string{"data: a\r\n\n", "data: b\n\r\n", "data: c\r\r\n"}, data: []string{"a", "b", "c"}},
		{name: "empty lines between", body: "\n\r\n\rdata: a\n\n\n\ndata: b\n\n", want: []string{"data: a\n\n", "data: b\n\n"}, data: []string{"a", "b"}},
		{name: "a byte order mark", body: "\xef\xbb\xbfdata: a\n\n", want: []string{"data: a\n\n"}, data: []string{"a"}},
		{name: "half a byte order mark", body: "\xef\xbbdata: a\n\n", want: []string{"\xef\xbbdata: a\n\n"}, data: []string{""}},
		{name: "a comment", body: ": still here\n\ndata: a\n: and one\n\n", want: []string{": still here\n\n", "data: a\n: and one\n\n"}, data: []string{"", "a"}},
		{name: "longer and shorter names", body: "dat: a\n\ndatas: a\n\nxdata: a\n\n", want: []string{"dat: a\n\n", "datas: a\n\n", "xdata: a\n\n"}, data: []string{"", "", ""}},
		{name: "empty data", body: "data\n\ndata:\n\n", want: []string{"data\n\n", "data:\n\n"}, data: []string{"", ""}},
		{name: "broken off", body: "data: a\n\ndata: b\n", want: []string{"data: a\n\n", "data: b\n"}, data: []string{"a", "b"}, broken: true},
		{name: "broken off in a line", body: "data: a", want: []string{"data: a"}, data: []string{"a"}, broken: true},
		{name: "ends in a carriage return", body: "data: a\r\n\r", want: []string{"data: a\r\n\r"}, data: []string{"a"}},
		{name: "nothing", body: "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for size := 1; size <= len(c.body); size++ {
				got := parse(c.body, size)
				if len(got) != len(c.want) {
					t.Fatalf("in pieces of %d: got %+v", size, got)
				}
				for i, m := range got {
					bytes := c.body[m.Offset : m.Offset+m.Length]
					e := Parse(bytes)
					if bytes != c.want[i] || e.Data != c.data[i] || m.Size != uint64(len(e.Data)) || m.Broken != (c.broken && i == len(got)-1) {
						t.Errorf("in pieces of %d, event %d: got %+v, %q, data %q", size, i, m, bytes, e.Data)
					}
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	got := Parse("id: 7\r\nevent: add\nretry:100\n: one\n:two\nid: a\x00b\nother: x\ndata: {\ndata: }\n\n")
	if want := (Event{Type: "add", ID: "7", Retry: "100", Data: "{\n}", Comment: "one\ntwo"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// FuzzParser looks that a split changes nothing, that events lie one behind the other, and that both readings of one agree on its data.
func FuzzParser(f *testing.F) {
	f.Add("\xef\xbb\xbf: c\r\n\r\ndata: a\ndata\r\rid: 1\n\n", 1)
	f.Fuzz(func(t *testing.T, body string, size int) {
		whole, split := parse(body, max(len(body), 1)), parse(body, 1+(size&0xf))
		if !reflect.DeepEqual(whole, split) {
			t.Fatalf("whole: %+v; in pieces: %+v", whole, split)
		}
		at := uint64(0)
		for _, m := range whole {
			if m.Offset < at || m.Length == 0 || m.Offset+m.Length > uint64(len(body)) {
				t.Fatalf("%+v after %d, of %d bytes", m, at, len(body))
			}
			at = m.Offset + m.Length
			text := body[m.Offset:at]
			if data := Parse(text).Data; uint64(len(data)) != m.Size {
				t.Fatalf("%+v: %q has the data %q", m, text, data)
			}
			if strings.Trim(text, "\r\n") == "" {
				t.Fatalf("%+v: nothing but line ends", m)
			}
		}
	})
}

func BenchmarkParser(b *testing.B) {
	body := bytes.Repeat([]byte("event: tick\ndata: {\"price\": 1234.5, \"volume\": 100}\n\n"), 10_000)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		p := Parser{Found: func(Message) {}}
		p.Write(body)
		p.End()
	}
}
