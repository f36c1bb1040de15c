package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"millpond/e2e/harness"
)

// read returns how many bytes the program has read so far, from files and sockets (proc(5), /proc/PID/io, rchar).
func (r *run) read() int64 {
	r.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", r.program.PID()))
	if err != nil {
		r.Skip(err)
	}
	var n int64
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	r.must(err)
	return n
}

func largeMedia(r *run) {
	b := newBody(100 << 20)
	r.download(r.program.Client(r, r.protocol), b, harness.Fixed)
	s := r.session()
	before := r.read()
	r.expectRange(s.ID, b, 0, 64<<10)
	r.expectRange(s.ID, b, b.Size-64<<10, 64<<10)
	if n := r.read() - before; n > 4<<20 {
		r.Errorf("for 128 KiB of a body, %s were read", harness.SizeText(n))
	}
}

// jsonText is a JSON array on one line, of about n bytes.
func jsonText(n int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"number":%d,"name":"item %d","tags":["a","b"]}`, i, i)
	}
	b.WriteByte(']')
	return b.String()
}

// serveGzipped answers the run's path with a text, gzip-coded, and fetches it.
func (r *run) serveGzipped(mediaType, text string) harness.Session {
	r.Helper()
	var coded bytes.Buffer
	w, _ := gzip.NewWriterLevel(&coded, gzip.BestSpeed)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(coded.Len()))
		_, _ = w.Write(coded.Bytes())
	})
	_, err := io.Copy(io.Discard, r.get("Accept-Encoding", "gzip").Body)
	r.must(err)
	s := r.session()
	r.expectDone(s, 200)
	return s
}

// piece is what an answer holds of a response body without its content coding.
type piece struct {
	text    string
	growing bool // the copy was still being made
	last    bool // nothing follows
}

// decoded asks for the bytes from..to of the response body without its content coding; a copy that is being made may give fewer, or none yet.
func (r *run) decoded(id uint64, from, to int) piece {
	r.Helper()
	res, err := r.program.Call(r.Context(), http.MethodGet, harness.BodyURL(id, "response")+"?as=decoded", "Range", fmt.Sprintf("bytes=%d-%d", from, to))
	r.must(err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	r.must(err)
	said, growing := res.Header.Get("Content-Range"), res.Header.Get("Millpond-Body") == "growing"
	if (res.Header.Get("ETag") == "") != growing {
		r.Errorf("a copy that is growing (%t) has ETag %q", growing, res.Header.Get("ETag"))
	}
	if res.StatusCode == http.StatusRequestedRangeNotSatisfiable && growing {
		return piece{growing: true}
	}
	bounds, total, _ := strings.Cut(said, "/")
	size, err := strconv.Atoi(total)
	if res.StatusCode != http.StatusPartialContent || len(got) == 0 || bounds != fmt.Sprintf("bytes %d-%d", from, from+len(got)-1) || growing != (total == "*") || !growing && err != nil {
		r.Fatalf("bytes from %d: %s, Content-Range %q, %d bytes, growing %t: %.200q", from, res.Status, said, len(got), growing, got)
	}
	return piece{string(got), growing, !growing && from+len(got) == size}
}

func viewsAreBounded(r *run) {
	text := jsonText(100 << 20)
	s := r.serveGzipped("application/json", text)
	r.flat(func() {
		at := 0
		for last := false; !last; { // in the app's pages
			p := r.decoded(s.ID, at, at+1<<20-1)
			if !strings.HasPrefix(text[at:], p.text) {
				r.Fatalf("decoded from %d: other bytes", at)
			}
			at, last = at+len(p.text), p.last
		}
		if at != len(text) {
			r.Errorf("decoded to %d bytes, want %d", at, len(text))
		}
		for _, from := range []int{0, 50 << 20, 100<<20 - 1000} {
			if got := r.decoded(s.ID, from, from+99).text; got != text[from:from+100] {
				r.Errorf("decoded from %d: %q", from, got)
			}
		}
		res, err := r.program.Call(r.Context(), http.MethodGet, harness.BodyURL(s.ID, "response")+"?as=decoded", "Accept-Encoding", "identity")
		r.must(err)
		defer res.Body.Close()
		got, n, err := harness.Digest(res.Body)
		if want, _, _ := harness.Digest(strings.NewReader(text)); err != nil || got != want || res.StatusCode != http.StatusOK {
			r.Errorf("decoded: %s, %d bytes, %v; want %d", res.Status, n, err, len(text))
		}
	})
}

// firstScreen shows that the first screen does not wait for the rest: it comes while that is still being decoded. On a busy machine the rest
// can be done by the time of an answer, so one of ten is enough; a server that waits gives none.
func firstScreen(r *run) {
	var xml strings.Builder
	xml.WriteString("<?xml version=\"1.0\"?><list>")
	for i := 0; xml.Len() < 5<<20; i++ {
		fmt.Fprintf(&xml, "<item n=\"%d\">text</item>", i)
	}
	pdf, err := io.ReadAll(newBody(46 << 20).Reader())
	r.must(err)
	for _, test := range []struct{ mediaType, text string }{
		{"application/json", jsonText(20 << 20)},
		{"application/xml", xml.String() + "</list>"},
		{"application/pdf", string(pdf)},
	} {
		early := false
		for n := 0; n < 10 && !early; n++ {
			again := *r
			again.path = fmt.Sprintf("%s/%s/%d", r.path, test.mediaType, n)
			s := again.serveGzipped(test.mediaType, test.text)
			p := again.decoded(s.ID, 0, 64<<10-1)
			if early = p.growing; !strings.HasPrefix(test.text, p.text) || len(p.text) != 64<<10 {
				r.Errorf("%s: the first screen holds %d bytes, or others", test.mediaType, len(p.text))
			}
		}
		if !early {
			r.Errorf("%s: the first screen came only with all the rest", test.mediaType)
		}
	}
}
