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
	"time"

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

// decoded returns a range of the response body without its content coding.
func (r *run) decoded(id uint64, from, n int) string {
	r.Helper()
	res, err := r.program.Call(r.Context(), http.MethodGet, harness.BodyURL(id, "response")+"?as=decoded", "Range", fmt.Sprintf("bytes=%d-%d", from, from+n-1))
	r.must(err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusPartialContent {
		r.Errorf("bytes from %d: %s, %v: %.200s", from, res.Status, err, got)
	}
	return string(got)
}

func viewsAreBounded(r *run) {
	text := jsonText(100 << 20)
	s := r.serveGzipped("application/json", text)
	r.flat(func() {
		res, err := r.program.Call(r.Context(), http.MethodGet, harness.BodyURL(s.ID, "response")+"?as=decoded", "Accept-Encoding", "identity")
		r.must(err)
		defer res.Body.Close()
		got, n, err := harness.Digest(res.Body)
		if want, _, _ := harness.Digest(strings.NewReader(text)); err != nil || got != want {
			r.Errorf("decoded: %s, %d bytes, %v; want %d", res.Status, n, err, len(text))
		}
		for _, from := range []int{0, 50 << 20, 100<<20 - 1000} {
			if got := r.decoded(s.ID, from, 100); got != text[from:from+100] {
				r.Errorf("decoded from %d: %q", from, got)
			}
		}
	})
}

// firstScreen asserts a wall time, because that is what was reported. The best of three counts: a machine may be busy with something else.
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
		best := time.Hour
		for n := range 3 {
			again := *r
			again.path = fmt.Sprintf("%s/%s/%d", r.path, test.mediaType, n)
			s := again.serveGzipped(test.mediaType, test.text)
			began := time.Now()
			got := again.decoded(s.ID, 0, 64<<10)
			if best = min(best, time.Since(began)); got != test.text[:64<<10] {
				r.Errorf("%s: the first screen holds %d bytes that are others", test.mediaType, len(got))
			}
		}
		if best > 300*time.Millisecond {
			r.Errorf("%s: the first screen took %v", test.mediaType, best)
		}
	}
}
