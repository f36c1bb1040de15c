package ws

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// put appends a frame. A key of zero leaves the payload unmasked.
func put(b []byte, fin bool, rsv, opcode byte, key [4]byte, payload []byte) []byte {
	first := rsv<<4 | opcode
	if fin {
		first |= 0x80
	}
	mask := byte(0)
	if key != [4]byte{} {
		mask = 0x80
	}
	b = append(b, first)
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if mask != 0 {
		b = append(b, key[:]...)
	}
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

// parse finds the messages of a direction that comes in pieces of at most size bytes.
func parse(wire []byte, deflate bool, size int) (found []Message, lost string) {
	p := Parser{Deflate: deflate, Found: func(m Message) { found = append(found, m) }, Lost: func(at uint64, why string) { lost = fmt.Sprintf("%d: %s", at, why) }}
	for rest := wire; len(rest) > 0; {
		n := min(size, len(rest))
		p.Write(rest[:n])
		rest = rest[n:]
	}
	p.End()
	return found, lost
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The examples of RFC 6455, section 5.7, and cases beside them.
func TestParser(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		deflate    bool
		want       []Message
		payloads   []string
		lost       string
	}{
		{name: "unmasked text", wire: "81 05 48656c6c6f", want: []Message{{Opcode: Text, Length: 7, Size: 5}}, payloads: []string{"Hello"}},
		{name: "masked text", wire: "81 85 37fa213d 7f9f4d5158", want: []Message{{Opcode: Text, Length: 11, Size: 5}}, payloads: []string{"Hello"}},
		{name: "fragments", wire: "01 03 48656c 80 02 6c6f", want: []Message{{Opcode: Text, Length: 9, Size: 5}}, payloads: []string{"Hello"}},
		{
			name: "ping and its masked answer", wire: "89 05 48656c6c6f 8a 85 37fa213d 7f9f4d5158",
			want:     []Message{{Opcode: Ping, Length: 7, Size: 5}, {Opcode: Pong, Offset: 7, Length: 11, Size: 5}},
			payloads: []string{"Hello", "Hello"},
		},
		{
			name: "a ping between fragments", wire: "01 03 48656c 89 02 7070 80 02 6c6f",
			want:     []Message{{Opcode: Ping, Offset: 5, Length: 4, Size: 2}, {Opcode: Text, Length: 13, Size: 5}},
			payloads: []string{"pp", "Hello"},
		},
		{
			name: "empty fragments", wire: "02 00 00 00 80 00 82 00",
			want:     []Message{{Opcode: Binary, Length: 6}, {Opcode: Binary, Offset: 6, Length: 2}},
			payloads: []string{"", ""},
		},
		{name: "close with a masked code", wire: "88 84 01020304 02ea 6f6f", want: []Message{{Opcode: Close, Length: 10, Size: 4, Code: 1000}}, payloads: []string{"\x03\xe8lk"}},
		{name: "close without a code", wire: "88 00", want: []Message{{Opcode: Close, Length: 2}}, payloads: []string{""}},
		{name: "a length that is longer than need be", wire: "82 7f 0000000000000001 aa", want: []Message{{Opcode: Binary, Length: 11, Size: 1}}, payloads: []string{"\xaa"}},
		{name: "compressed", wire: "c1 07 f248cdc9c90700", deflate: true, want: []Message{{Opcode: Text, Compressed: true, Length: 9, Size: 7}}, payloads: []string{"\xf2H\xcd\xc9\xc9\x07\x00"}},
		{name: "broken off in a payload", wire: "82 05 0102", want: []Message{{Opcode: Binary, Length: 4, Size: 2, Broken: true}}, payloads: []string{"\x01\x02"}},
		{name: "broken off between fragments", wire: "02 01 aa", want: []Message{{Opcode: Binary, Length: 3, Size: 1, Broken: true}}, payloads: []string{"\xaa"}},
		{name: "broken off in a later head", wire: "02 01 aa 00", want: []Message{{Opcode: Binary, Length: 4, Size: 1, Broken: true}}, payloads: []string{"\xaa"}},
		{
			name: "broken off in a ping between fragments", wire: "02 01 aa 89 02 70",
			want:     []Message{{Opcode: Ping, Offset: 3, Length: 3, Size: 1, Broken: true}, {Opcode: Binary, Length: 6, Size: 1, Broken: true}},
			payloads: []string{"p", "\xaa"},
		},
		{name: "a reserved opcode", wire: "81 00 83 00 81 00", want: []Message{{Opcode: Text, Length: 2}}, payloads: []string{""}, lost: "2: a frame has the opcode 3, which is reserved"},
		{name: "a reserved control opcode", wire: "8b 00", lost: "0: a frame has the opcode 11, which is reserved"},
		{name: "RSV1 that nobody agreed on", wire: "c1 00", lost: "0: a frame has a reserved bit set that no extension gives a meaning"},
		{name: "RSV2", wire: "a1 00", deflate: true, lost: "0: a frame has a reserved bit set that no extension gives a meaning"},
		{name: "a compressed ping", wire: "c9 00", deflate: true, lost: "0: a frame is marked as compressed that is not the first of a message"},
		{
			name: "a compressed continuation", wire: "01 00 c0 00", deflate: true, want: []Message{{Opcode: Text, Length: 2, Broken: true}}, payloads: []string{""},
			lost: "2: a frame is marked as compressed that is not the first of a message",
		},
		{name: "a large control frame", wire: "89 7e 007e", lost: "0: a control frame has 126 bytes, more than 125"},
		{name: "a fragmented control frame", wire: "09 00", lost: "0: a control frame is fragmented"},
		{name: "a continuation of nothing", wire: "80 00", lost: "0: a fragment comes without a message's first"},
		{
			name: "a message within another", wire: "01 01 61 81 00", want: []Message{{Opcode: Text, Length: 3, Size: 1, Broken: true}}, payloads: []string{"a"},
			lost: "3: a message begins before the one before has ended",
		},
		{name: "a length of 64 bits", wire: "82 7f 8000000000000000", lost: "0: a frame is longer than a frame can be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			for size := 1; size <= len(wire); size++ {
				got, lost := parse(wire, c.deflate, size)
				if !reflect.DeepEqual(got, c.want) || lost != c.lost {
					t.Fatalf("in pieces of %d: got %+v, lost %q, want %+v, lost %q", size, got, lost, c.want, c.lost)
				}
			}
			for i, m := range c.want {
				open := func() io.Reader {
					return NewPayload(Buffered(bytes.NewReader(wire)), m.Offset, m.Length, m.Opcode >= Close)
				}
				if got, err := io.ReadAll(open()); err != nil || string(got) != c.payloads[i] {
					t.Errorf("payload %d: got %q, %v, want %q", i, got, err, c.payloads[i])
				}
				if err := iotest.TestReader(open(), []byte(c.payloads[i])); err != nil {
					t.Errorf("payload %d: %v", i, err)
				}
			}
		})
	}
}

// A payload is found at any offset, in any order, whatever the fragments.
func TestPayloadAtAnyOffset(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var wire, want []byte
	for i := range 300 {
		part := make([]byte, random.IntN(20))
		for j := range part {
			part[j] = byte(random.Uint32())
		}
		want = append(want, part...)
		opcode := byte(Continuation)
		if i == 0 {
			opcode = Binary
		}
		wire = put(wire, i == 299, 0, opcode, [4]byte{1, byte(i), 3, 4}, part)
		if i != 299 && random.IntN(3) == 0 {
			wire = put(wire, true, 0, Ping, [4]byte{}, []byte("ping"))
		}
	}
	p := NewPayload(Buffered(bytes.NewReader(wire)), 0, uint64(len(wire)), false)
	for range 2000 {
		from := random.IntN(len(want))
		to := from + random.IntN(len(want)-from)
		got := make([]byte, to-from)
		if n, err := p.ReadAt(got, int64(from)); n != len(got) || err != nil || !bytes.Equal(got, want[from:to]) {
			t.Fatalf("bytes %d to %d: got %d, %v, or others", from, to, n, err)
		}
	}
}

func TestUnmask(t *testing.T) {
	for length := range 40 {
		for at := range uint64(9) {
			got := bytes.Repeat([]byte{0xaa}, length)
			want := bytes.Clone(got)
			key := [4]byte{1, 2, 3, 4}
			for i := range want {
				want[i] ^= key[(at+uint64(i))%4]
			}
			if unmask(got, key, at); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes from %d: got %x, want %x", length, at, got, want)
			}
		}
	}
}

func TestAgreed(t *testing.T) {
	for field, want := range map[string]Agreement{
		"":                   {},
		"permessage-deflate": {Deflate: true},
		"Permessage-Deflate; server_no_context_takeover; client_no_context_takeover":       {Deflate: true, ClientFresh: true, ServerFresh: true},
		`permessage-deflate;client_max_window_bits="12" ; Client_No_Context_Takeover=x`:    {Deflate: true, ClientFresh: true},
		`x-other; a="p,q;permessage-deflate"`:                                              {Other: "x-other"},
		`x-other; a="\"", permessage-deflate; server_no_context_takeover; server_max_wind`: {Deflate: true, ServerFresh: true, Other: "x-other"},
		";": {},
	} {
		if got := Agreed(field); got != want {
			t.Errorf("%q: got %+v, want %+v", field, got, want)
		}
	}
}

// The examples of RFC 7692, section 7.2.3.
func TestInflateExamples(t *testing.T) {
	for _, c := range []struct {
		name     string
		messages []string
		fresh    bool
		want     []string
	}{
		{name: "one message", messages: []string{"f248cdc9c90700"}, want: []string{"Hello"}},
		{name: "the window of the one before", messages: []string{"f248cdc9c90700", "f200110000"}, want: []string{"Hello", "Hello"}},
		{name: "no compression", messages: []string{"000500faff48656c6c6f00"}, want: []string{"Hello"}},
		{name: "a last block", messages: []string{"f348cdc9c9070000", "f200110000"}, want: []string{"Hello", "Hello"}},
		{name: "a last block alone", messages: []string{"f348cdc9c90700"}, want: []string{"Hello"}},
		{name: "two blocks", messages: []string{"f248050000 00ffff cac9c90700"}, want: []string{"Hello"}},
		{name: "empty", messages: []string{"00", "f248cdc9c90700", "00", "f200110000"}, want: []string{"", "Hello", "", "Hello"}},
		{name: "fresh", messages: []string{"f248cdc9c90700", "f248cdc9c90700"}, fresh: true, want: []string{"Hello", "Hello"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := Inflater{Fresh: c.fresh}
			for n, message := range c.messages {
				var got bytes.Buffer
				wire := unhex(t, message)
				if err := i.Message(&got, iotest.OneByteReader(bytes.NewReader(wire)), uint64(len(wire))); err != nil || got.String() != c.want[n] {
					t.Errorf("message %d: got %q, %v, want %q", n, got.String(), err, c.want[n])
				}
			}
		})
	}
}

// compress makes the payloads of messages, with or without context takeover.
func compress(t testing.TB, messages [][]byte, fresh bool) (payloads [][]byte) {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, 6)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if fresh {
			w.Reset(&out)
		}
		w.Write(m)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, bytes.Clone(bytes.TrimSuffix(out.Bytes(), []byte(tail))))
		out.Reset()
	}
	return payloads
}

func someMessages() (messages [][]byte) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := range 200 {
		m := fmt.Appendf(nil, `{"n":%d,"text":%q}`, n, strings.Repeat("the same again ", random.IntN(40)))
		if n%17 == 0 {
			m = bytes.Repeat([]byte{byte(n)}, 1<<random.IntN(18))
		}
		if n%11 == 0 {
			m = nil
		}
		if n%29 == 0 {
			m = make([]byte, 32768*(1+n%3)) // what the window holds
			for i := range m {
				m[i] = byte(random.Uint32())
			}
		}
		messages = append(messages, m)
	}
	return messages
}

func TestInflateMany(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		messages := someMessages()
		i := Inflater{Fresh: fresh}
		for n, payload := range compress(t, messages, fresh) {
			var got bytes.Buffer
			if err := i.Message(&got, bytes.NewReader(payload), uint64(len(payload))); err != nil {
				t.Fatalf("fresh %v, message %d: %v", fresh, n, err)
			}
			if !bytes.Equal(got.Bytes(), messages[n]) {
				t.Fatalf("fresh %v, message %d: got %d bytes, want %d, or others", fresh, n, got.Len(), len(messages[n]))
			}
		}
	}
}

// After a damaged message those that depend on it are errors, and those that do not are read.
func TestInflateDamaged(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		i := Inflater{Fresh: fresh}
		payloads := compress(t, [][]byte{[]byte("one one one"), []byte("two two two"), []byte("three three")}, fresh)
		for name, damaged := range map[string]string{"a reserved block": "ff", "cut short": "f248cd", "a false stored length": "00 0500 0000"} {
			i = Inflater{Fresh: fresh}
			var got bytes.Buffer
			if err := i.Message(&got, bytes.NewReader(payloads[0]), 10); err != nil || got.String() != "one one one" {
				t.Errorf("got %q, %v", got.String(), err)
			}
			if err := i.Message(io.Discard, bytes.NewReader(unhex(t, damaged)), 10); err == nil {
				t.Errorf("%s is no error", name)
			}
			got.Reset()
			err := i.Message(&got, bytes.NewReader(payloads[2]), 10)
			if fresh && (err != nil || got.String() != "three three") {
				t.Errorf("after %s: got %q, %v", name, got.String(), err)
			}
			if !fresh && err == nil {
				t.Errorf("after %s: no error", name)
			}
		}
	}
}

// A message that becomes much larger than what it is made from ends at the limit.
func TestInflateLimit(t *testing.T) {
	payload := compress(t, [][]byte{make([]byte, 80<<20)}, false)[0]
	var n counter
	i := Inflater{}
	if err := i.Message(&n, bytes.NewReader(payload), uint64(len(payload))); err != ErrLarge || n > 64<<20 {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// FuzzParser looks that a split changes nothing, and that what is found lies within and is read.
func FuzzParser(f *testing.F) {
	wire := put(nil, false, 4, Text, [4]byte{1, 2, 3, 4}, []byte("Hel"))
	wire = put(wire, true, 0, Ping, [4]byte{}, nil)
	wire = put(wire, true, 0, Continuation, [4]byte{}, bytes.Repeat([]byte("lo"), 100))
	wire = put(wire, true, 0, Close, [4]byte{4, 3, 2, 1}, []byte("\x03\xe8bye"))
	f.Add(wire, true, 1)
	f.Add(wire, false, 7)
	f.Fuzz(func(t *testing.T, wire []byte, deflate bool, size int) {
		whole, whyWhole := parse(wire, deflate, max(len(wire), 1))
		split, whySplit := parse(wire, deflate, 1+(size&0xff))
		if !reflect.DeepEqual(whole, split) || whyWhole != whySplit {
			t.Fatalf("whole: %+v %s; in pieces: %+v %s", whole, whyWhole, split, whySplit)
		}
		inflater := Inflater{}
		for _, m := range whole {
			if m.Offset+m.Length > uint64(len(wire)) || m.Size > m.Length {
				t.Fatalf("message beyond the wire: %+v", m)
			}
			payload, err := io.ReadAll(NewPayload(bytes.NewReader(wire), m.Offset, m.Length, m.Opcode >= Close))
			if err != nil || uint64(len(payload)) != m.Size {
				t.Fatalf("%+v: %d bytes, %v", m, len(payload), err)
			}
			if m.Compressed {
				_ = inflater.Message(io.Discard, bytes.NewReader(payload), m.Size)
			}
		}
	})
}

// Fragments of one byte cost time that is linear in their number, to find and to read.
func BenchmarkOneByteFragments(b *testing.B) {
	var wire []byte
	wire = put(wire, false, 0, Text, [4]byte{}, []byte("a"))
	for range 1 << 20 {
		wire = put(wire, false, 0, Continuation, [4]byte{1, 2, 3, 4}, []byte("a"))
	}
	wire = put(wire, true, 0, Continuation, [4]byte{}, nil)
	b.SetBytes(int64(len(wire)))
	for b.Loop() {
		found, _ := parse(wire, false, 1)
		n, err := io.Copy(io.Discard, NewPayload(Buffered(bytes.NewReader(wire)), found[0].Offset, found[0].Length, false))
		if n != 1<<20+1 || err != nil {
			b.Fatal(n, err)
		}
	}
}
