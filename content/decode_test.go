package content

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode applies one coding.
func encode(t testing.TB, coding string, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "raw":
		w, err = flate.NewWriter(&b, flate.DefaultCompression)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	default:
		t.Fatalf("no encoder of %s", coding)
	}
	if err == nil {
		_, err = w.Write(plain)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func decode(body []byte, contentEncoding string) ([]byte, error) {
	r, err := Decode(bytes.NewReader(body), contentEncoding)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// sample is text that compresses well.
func sample(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"mill", "pond", "water", "wheel", "grain", "stone", "\n", "{\"a\":", "}"}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[random.IntN(len(words))])
	}
	return b.Bytes()[:n]
}

func TestDecode(t *testing.T) {
	text := sample(300 << 10)
	gz, br, zs := encode(t, "gzip", text), encode(t, "br", text), encode(t, "zstd", text)
	a, b := []byte("AAAA"), []byte("BBBB")
	skippable := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}
	tests := []struct {
		name   string
		body   []byte
		coding string
		want   []byte
		err    error // nil: decodes whole
	}{
		{"no coding", text, "", text, nil},
		{"identity", text, "identity", text, nil},
		{"gzip", gz, "gzip", text, nil},
		{"gzip in capitals", gz, " GZip ", text, nil},
		{"x-gzip", gz, "x-gzip", text, nil},
		{"concatenated gzip", join(encode(t, "gzip", a), encode(t, "gzip", b)), "gzip", []byte("AAAABBBB"), nil},
		{"gzip with an empty member", join(encode(t, "gzip", a), encode(t, "gzip", nil), encode(t, "gzip", b)), "gzip", []byte("AAAABBBB"), nil},
		{"deflate in zlib", encode(t, "zlib", text), "deflate", text, nil},
		{"deflate raw", encode(t, "raw", text), "deflate", text, nil},
		{"deflate raw, short", encode(t, "raw", a), "deflate", a, nil},
		{"deflate raw, stored", []byte("\x01\x04\x00\xfb\xffAAAA"), "deflate", a, nil},
		{"deflateRaw", encode(t, "raw", text), "deflateRaw", text, nil},
		{"br", br, "br", text, nil},
		{"br, short", encode(t, "br", a), "br", a, nil},
		{"zstd", zs, "zstd", text, nil},
		{"two zstd frames", join(zs, encode(t, "zstd", a)), "zstd", join(text, a), nil},
		{"zstd with a skippable frame first", join(skippable, zs), "zstd", text, nil},
		{"two codings", encode(t, "br", gz), "gzip, br", text, nil},
		{"two codings with spaces and gaps", encode(t, "gzip", zs), "zstd\t,, identity ,gzip", text, nil},
		{"empty under any label", nil, "gzip, deflate, br, zstd", []byte{}, nil},

		{"unknown coding", text, "compress", nil, ErrUnknownCoding},
		{"unknown among known", gz, "aws-chunked, gzip", nil, ErrUnknownCoding},
		{"too many codings", gz, "gzip,gzip,gzip,gzip,gzip,gzip", nil, ErrUnknownCoding},

		{"JSON labelled gzip", []byte(`{"a":1}`), "gzip", []byte{}, ErrNotEncoded},
		{"JSON labelled deflate", []byte(`{"a":1}`), "deflate", []byte{}, ErrNotEncoded},
		{"JSON labelled br", []byte(`{"a":1}`), "br", []byte{}, ErrNotEncoded},
		{"JSON labelled zstd", []byte(`{"a":1}`), "zstd", []byte{}, ErrNotEncoded},
		{"text labelled deflate", text, "deflate", []byte{}, ErrNotEncoded},
		{"text labelled br", text, "br", []byte{}, ErrNotEncoded},
		{"text labelled deflateRaw", text, "deflateRaw", []byte{}, ErrNotEncoded},
		{"UTF-8 labelled br", []byte(strings.Repeat("水車小屋", 99)), "br", []byte{}, ErrNotEncoded},
		{"one letter labelled gzip", a[:1], "gzip", []byte{}, ErrNotEncoded},
		{"gzip labelled zstd", gz, "zstd", []byte{}, ErrNotEncoded},
		{"gzip labelled gzip twice", gz, "gzip, gzip", []byte{}, ErrNotEncoded},

		{"gzip without its trailer", gz[:len(gz)-8], "gzip", text, ErrTruncated},
		{"gzip's first byte", gz[:1], "gzip", []byte{}, ErrTruncated},
		{"gzip's header", gz[:9], "gzip", []byte{}, ErrTruncated},
		{"gzip with a member's header cut", join(gz, gz[:4]), "gzip", text, ErrTruncated},
		{"zlib without its check", encode(t, "zlib", text)[:len(encode(t, "zlib", text))-4], "deflate", text, ErrTruncated},
		{"zstd's first bytes", zs[:3], "zstd", []byte{}, ErrTruncated},

		{"bytes after gzip", join(gz, []byte("\r\n")), "gzip", text, ErrTrailing},
		{"bytes after zlib", join(encode(t, "zlib", text), a), "deflate", text, ErrTrailing},
		{"bytes after raw deflate", join(encode(t, "raw", text), a), "deflate", text, ErrTrailing},
		{"bytes after br", join(br, a), "br", text, ErrTrailing},
		{"bytes after zstd", join(zs, []byte("AAAAAAAA")), "zstd", text, ErrTrailing},

		{"gzip with a bad check", join(gz[:len(gz)-8], []byte("12345678")), "gzip", text, ErrCorrupt},
		{"deflate that needs a dictionary", []byte{0x78, 0xbb, 1, 2, 3, 4, 5}, "deflate", []byte{}, ErrCorrupt},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := decode(test.body, test.coding)
			if !errors.Is(err, test.err) {
				t.Errorf("error is %v, want %v", err, test.err)
			}
			if !bytes.Equal(got, test.want) {
				t.Errorf("got %d bytes %.40q, want %d %.40q", len(got), got, len(test.want), test.want)
			}
			if test.err != nil {
				return
			}
			r, err := Decode(iotest.OneByteReader(bytes.NewReader(test.body)), test.coding)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if len(test.want) > 1<<10 { // the suite reads byte by byte, and again and again
				got, err = io.ReadAll(r)
				if err != nil || !bytes.Equal(got, test.want) {
					t.Errorf("byte by byte: %d bytes, %v", len(got), err)
				}
			} else if err := iotest.TestReader(r, test.want); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDecodeCutAnywhere cuts bodies at many places, but not so short that they could be text: what can be decoded comes, and then ErrTruncated.
func TestDecodeCutAnywhere(t *testing.T) {
	text := sample(200 << 10)
	for name, coding := range map[string]string{"gzip": "gzip", "zlib": "deflate", "raw": "deflate", "br": "br", "zstd": "zstd"} {
		t.Run(name, func(t *testing.T) {
			body := encode(t, name, text)
			longest := 0
			for cut := 4; cut < len(body); cut += 1 + cut/7 {
				got, err := decode(body[:cut], coding)
				if !errors.Is(err, ErrTruncated) {
					t.Fatalf("cut at %d of %d: %v", cut, len(body), err)
				}
				if !bytes.HasPrefix(text, got) {
					t.Fatalf("cut at %d: got other bytes", cut)
				}
				if len(got) < longest {
					t.Fatalf("cut at %d: %d bytes, fewer than before", cut, len(got))
				}
				longest = len(got)
			}
			if got, _ := decode(body[:len(body)-1], coding); len(got) < len(text)/2 {
				t.Errorf("without its last byte only %d bytes came", len(got))
			}
		})
	}
}

// TestDecodeComesAtOnce sees that what was flushed is there before the next byte is.
func TestDecodeComesAtOnce(t *testing.T) {
	type flusher interface {
		io.Writer
		Flush() error
	}
	for coding, open := range map[string]func(w io.Writer) flusher{
		"gzip":    func(w io.Writer) flusher { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) flusher { return zlib.NewWriter(w) },
		"br":      func(w io.Writer) flusher { return brotli.NewWriter(w) },
		"zstd": func(w io.Writer) flusher {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
	} {
		t.Run(coding, func(t *testing.T) {
			body, wire := io.Pipe()
			defer body.Close()
			w := open(wire)
			r, err := Decode(body, coding)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			events := make(chan string, 2)
			defer close(events)
			go func() {
				for event := range events {
					io.WriteString(w, event)
					w.Flush()
				}
			}()
			for _, event := range []string{"data: one\n\n", "data: two\n\n"} {
				events <- event
				got := make([]byte, len(event))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != event {
					t.Fatalf("got %q, %v", got, err)
				}
			}
		})
	}
}

func TestDecodePassesOnTheErrorOfItsReader(t *testing.T) {
	broken := errors.New("disk")
	for _, coding := range []string{"gzip", "deflate", "br", "zstd", "identity", "gzip, br"} {
		for _, n := range []int64{0, 1, 5, 1000} {
			body := encode(t, map[string]string{"deflate": "raw", "identity": "gzip", "gzip, br": "br"}[coding]+map[string]string{"gzip": "gzip", "br": "br", "zstd": "zstd"}[coding], sample(64<<10))
			r, err := Decode(io.MultiReader(bytes.NewReader(body[:n]), iotest.ErrReader(broken)), coding)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r); !errors.Is(err, broken) && !(coding == "gzip, br" && errors.Is(err, ErrNotEncoded)) {
				t.Errorf("%s after %d bytes: %v", coding, n, err)
			}
			r.Close()
		}
	}
}

// gzipZeros returns n zeros in gzip, in members of 1 MiB: to make is cheaper than to decode.
func gzipZeros(t testing.TB, n int) []byte {
	t.Helper()
	const member = 1 << 20
	body := bytes.Repeat(encode(t, "gzip", make([]byte, member)), n/member)
	return append(body, encode(t, "gzip", make([]byte, n%member))...)
}

// emptyMember is a gzip member of 64 KiB that holds nothing: its header has an extra field (RFC 1952, section 2.3.1.1).
func emptyMember(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Extra = make([]byte, 1<<16-1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecodeStopsABomb(t *testing.T) {
	once := gzipZeros(t, 256<<20)
	twice := encode(t, "gzip", once)
	if len(twice) > 4<<10 {
		t.Fatalf("the bomb has %d bytes", len(twice))
	}
	hidden := encode(t, "gzip", bytes.Repeat(emptyMember(t), LimitFloor>>16+1)) // much in between, nothing in the end
	tests := []struct {
		name, coding string
		body         []byte
		memory       uint64 // allocated, not held
	}{
		{"zeros in gzip twice", "gzip, gzip", twice, 4 << 20},
		{"zeros in gzip", "gzip", once, 4 << 20},
		{"nothing, in much, in little", "gzip, gzip", hidden, LimitFloor + 4<<20}, // each header on its own
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := Decode(bytes.NewReader(test.body), test.coding)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			n, err := io.Copy(io.Discard, r)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrRatio) {
				t.Errorf("error is %v, want ErrRatio", err)
			}
			if want := max(LimitFloor, LimitRatio*int64(len(test.body))); n > want {
				t.Errorf("%d bytes came of %d, want at most %d", n, len(test.body), want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > test.memory {
				t.Errorf("took %d bytes of memory", took)
			}
		})
	}
}

func TestDecodeAtTheLimit(t *testing.T) {
	for _, test := range []struct {
		n   int
		err error
	}{{LimitFloor - 1, nil}, {LimitFloor, nil}, {LimitFloor + 1, ErrRatio}} {
		r, err := Decode(bytes.NewReader(gzipZeros(t, test.n)), "gzip")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		if want := int64(min(test.n, LimitFloor)); n != want || !errors.Is(err, test.err) {
			t.Errorf("%d zeros: %d, %v; want %d, %v", test.n, n, err, want, test.err)
		}
		r.Close()
	}
}

// TestDecodeKnowsTheSize has a body that begins with much of the same: its whole size counts, not what was read so far.
func TestDecodeKnowsTheSize(t *testing.T) {
	body := join(gzipZeros(t, 80<<20), encode(t, "gzip", randomBytes(512<<10)))
	for _, sized := range []bool{true, false} {
		var in io.Reader = bytes.NewReader(body)
		if !sized {
			in = io.MultiReader(in)
		}
		r, err := Decode(in, "gzip")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, r)
		if want := map[bool]error{true: nil, false: ErrRatio}[sized]; !errors.Is(err, want) {
			t.Errorf("sized %v: %v, want %v", sized, err, want)
		}
		r.Close()
	}
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(p)
	return p
}

func TestZstdWindow(t *testing.T) {
	for window, want := range map[int]error{zstdWindow: nil, 2 * zstdWindow: ErrCorrupt} {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		plain := make([]byte, 20<<20)
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := decode(b.Bytes(), "zstd")
		if !errors.Is(err, want) || want == nil && !bytes.Equal(got, plain) {
			t.Errorf("window %d: %d bytes, %v; want %v", window, len(got), err, want)
		}
		if want != nil && !strings.Contains(err.Error(), "RFC 9659") {
			t.Errorf("window %d: %v does not say why", window, err)
		}
	}
}

func TestClosedDecoder(t *testing.T) {
	for _, coding := range []string{"", "gzip", "zstd"} {
		r, err := Decode(bytes.NewReader(encode(t, "gzip", sample(10))), coding)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		r.Close()
		if _, err := r.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("%q: read after Close: %v", coding, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	text := sample(1 << 10)
	for _, coding := range []string{"gzip", "zlib", "raw", "br", "zstd"} {
		body := encode(f, coding, text)
		label := map[string]string{"zlib": "deflate", "raw": "deflate"}[coding]
		if label == "" {
			label = coding
		}
		f.Add(body, label)
		f.Add(body[:len(body)/2], label)
		f.Add(text, label)
		f.Add(encode(f, "gzip", body), label+", gzip")
	}
	f.Fuzz(func(t *testing.T, body []byte, coding string) {
		r, err := Decode(io.MultiReader(bytes.NewReader(body)), coding)
		if err != nil {
			if !errors.Is(err, ErrUnknownCoding) {
				t.Errorf("Decode: %v", err)
			}
			return
		}
		defer r.Close()
		n, err := io.Copy(io.Discard, r)
		if n > max(LimitFloor, LimitRatio*int64(len(body))) {
			t.Errorf("%d bytes came of %d", n, len(body))
		}
		known := err == nil
		for _, is := range []error{ErrNotEncoded, ErrTruncated, ErrTrailing, ErrCorrupt, ErrRatio} {
			known = known || errors.Is(err, is)
		}
		if !known {
			t.Errorf("error without a name: %v", err)
		}
		if errors.Is(err, ErrNotEncoded) && n > 0 && !strings.Contains(coding, ",") {
			t.Errorf("%d bytes came before %v", n, err)
		}
	})
}

func FuzzIsText(f *testing.F) {
	f.Add([]byte("caf\xc3"), "text/html; charset=utf-8")
	f.Fuzz(func(_ *testing.T, head []byte, contentType string) { IsText(head, contentType) })
}
