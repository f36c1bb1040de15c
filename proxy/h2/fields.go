package h2

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// DefaultMaxList is how long a field list may be, compressed or decoded, in bytes; a longer one's stream is refused. With four times
// as much compressed, its frame headers included, the connection is ended.
const DefaultMaxList = 256 << 10

// What the lists of one peer may unfold to, so that few bytes sent do not fill the disk with what is recorded of them: unfoldBurst bytes beyond what each may by itself.
// A list that uses no entry of the compression table twice decodes to what the table holds and unfoldRatio bytes for each that was sent, with the head of its frames, at
// the most: a static entry is 59 bytes, as RFC 9113, section 6.5.2, counts, for one sent. A list that needs less makes up for one that took more.
const (
	unfoldRatio = 64
	unfoldBurst = 4 << 20
)

// lists decodes one peer's field lists. A list is decoded by hand, not with Framer.ReadMetaHeaders, which refuses what
// the other side should judge: control bytes, upper case, pseudo-fields out of place.
type lists struct {
	max    int // see DefaultMaxList
	dec    *hpack.Decoder
	block  []byte
	fields []hpack.HeaderField
	size   int // of the list, decoded. RFC 9113, section 6.5.2
	total  int // of the list, compressed, with its further frames' headers
	long   bool
	excess int // what the lists took beyond their own share, see unfoldBurst
}

func (l *lists) init(most int) {
	l.max = most
	l.dec = hpack.NewDecoder(tableSize, func(f hpack.HeaderField) {
		l.size += int(f.Size())
		if l.size > l.max {
			l.overflow()
			return
		}
		l.fields = append(l.fields, f)
	})
	l.dec.SetMaxStringLength(4 * most)
}

// overflow gives the list up. It is decoded to its end all the same, for the sake of the compression state.
func (l *lists) overflow() {
	l.long = true
	l.dec.SetEmitEnabled(false)
}

// read returns the field list that f begins, taking its CONTINUATION frames. long says that it exceeded max, and is not whole. The caller looks at excess.
// An error ends the connection: the compression state is lost.
func (l *lists) read(framer *http2.Framer, f *http2.HeadersFrame) (fields []hpack.HeaderField, long bool, err error) {
	clear(l.fields)
	l.fields, l.block, l.size, l.long = l.fields[:0], l.block[:0], 0, false
	if cap(l.fields) > 1024 || cap(l.block) > 4*frameSize {
		l.fields, l.block = nil, nil
	}
	l.dec.SetEmitEnabled(true)

	fragment, ended := f.HeaderBlockFragment(), f.HeadersEnded()
	for l.total = len(fragment); !ended; {
		l.block = append(l.block, fragment...)
		if len(l.block) > l.max {
			l.overflow()
			if err := l.decode(l.block); err != nil {
				return nil, false, err
			}
			l.block = l.block[:0]
		}
		fh, err := framer.ReadFrameHeader() // refuses all but the CONTINUATION of this stream
		if err != nil {
			return nil, false, err
		}
		if l.total += frameHeader + int(fh.Length); l.total > 4*l.max {
			return nil, false, &protocolError{http2.ErrCodeEnhanceYourCalm, fmt.Sprintf("a field list of over %d bytes", 4*l.max)}
		}
		next, err := framer.ReadFrameForHeader(fh)
		if err != nil {
			return nil, false, err
		}
		c := next.(*http2.ContinuationFrame)
		fragment, ended = c.HeaderBlockFragment(), c.HeadersEnded()
	}
	if len(l.block) > 0 {
		l.block = append(l.block, fragment...)
		fragment = l.block
	}
	if err := l.decode(fragment); err != nil {
		return nil, false, err
	}
	if err := l.dec.Close(); err != nil {
		return nil, false, &protocolError{http2.ErrCodeCompression, err.Error()}
	}
	l.excess = max(0, l.excess+l.size-tableSize-unfoldRatio*(frameHeader+l.total))
	return l.fields, l.long, nil
}

func (l *lists) decode(block []byte) error {
	if _, err := l.dec.Write(block); err != nil {
		return &protocolError{http2.ErrCodeCompression, err.Error()}
	}
	return nil
}

// malformed says what in a list forbids to pass it on, or "". A CR, LF or NUL ends a field for a server that speaks HTTP/1 behind
// the next hop, other control bytes in a name are trimmed by some, and a list that holds one, or a name with a colon or white space, would not be what it
// seems in the form of lines. RFC 9113, section 8.2.1.
// Its other rules are for the receiver to judge.
func malformed(fields []hpack.HeaderField) string {
	for _, f := range fields {
		switch {
		case !lineName(f.Name):
			return "a field whose name is empty or holds a control byte, colon or white space"
		case strings.ContainsAny(f.Value, "\r\n\x00"):
			return "a CR, LF or NUL in the value of the field " + f.Name
		}
	}
	return ""
}

func lineName(name string) bool {
	name = strings.TrimPrefix(name, ":")
	return name != "" && !strings.ContainsFunc(name, notInName)
}

func notInName(c rune) bool { return c <= ' ' || c == 0x7f || c == ':' }

// Legible returns the list with what is malformed in it made visible: escaped as in a Go string, a colon in a name as \x3a. It never is sent.
func Legible(fields []hpack.HeaderField) []hpack.HeaderField {
	if malformed(fields) == "" {
		return fields
	}
	legible := make([]hpack.HeaderField, len(fields))
	for i, f := range fields {
		legible[i] = hpack.HeaderField{Name: f.Name, Value: escapes.Replace(f.Value), Sensitive: f.Sensitive}
		if !lineName(f.Name) {
			legible[i].Name = escapeName(f.Name)
		}
	}
	return legible
}

var escapes = strings.NewReplacer("\r", `\r`, "\n", `\n`, "\x00", `\x00`)

func escapeName(name string) string {
	var b strings.Builder
	for _, c := range []byte(escapes.Replace(name)) {
		if notInName(rune(c)) {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Value returns the value of the first field of that name, empty where there is none.
func Value(fields []hpack.HeaderField, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func status(fields []hpack.HeaderField) int {
	n, err := strconv.Atoi(Value(fields, ":status"))
	if err != nil || n < 100 || n > 999 {
		return 0
	}
	return n
}

// Text renders a field list as people read it, and as it is kept: a "name: value" line for each field, in order.
func Text(fields []hpack.HeaderField) []byte {
	n := 0
	for _, f := range fields {
		n += len(f.Name) + len(f.Value) + len(": \n")
	}
	text := make([]byte, 0, n)
	for _, f := range fields {
		text = append(append(text, f.Name...), ": "...)
		text = append(append(text, f.Value...), '\n')
	}
	return text
}
