package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"millpond/storage"
)

// noise returns n bytes that do not compress and do not repeat.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return string(b)
}

func bodyPath(id uint64, side string) string {
	return fmt.Sprintf("/api/sessions/%d/%s/body", id, side)
}

func TestBodyOfEachSize(t *testing.T) {
	r := newRig(t)
	for _, size := range []int{0, 1, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145, 4<<20 - 1, 4 << 20, 4<<20 + 1} {
		want := noise(size)
		id := r.record(exchange{url: "http://a/b", response: want})
		path := bodyPath(id, "response")
		res := r.call("GET", path, "")
		if got := r.text(res); res.StatusCode != 200 || got != want {
			t.Fatalf("size %d: got %s and %d bytes", size, res.Status, len(got))
		}
		sum := sha256.Sum256([]byte(want))
		digest := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
		if got := res.Header.Get("Repr-Digest"); got != digest {
			t.Errorf("size %d: got Repr-Digest %q, want %q", size, got, digest)
		}
		etag := res.Header.Get("ETag")
		if etag == "" || strings.HasPrefix(etag, "W/") {
			t.Errorf("size %d: got ETag %q", size, etag)
		}
		head := r.call("HEAD", path, "")
		if head.ContentLength != int64(size) || head.Header.Get("Repr-Digest") != digest || head.Header.Get("ETag") != etag {
			t.Errorf("size %d: HEAD: got %d %v", size, head.ContentLength, head.Header)
		}
		var joined strings.Builder
		for from := 0; from < size; {
			to := min(size, from+1+size/3)
			part := r.call("GET", path, "", "Range", fmt.Sprintf("bytes=%d-%d", from, to-1), "If-Range", etag)
			if got, want := part.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", from, to-1, size); part.StatusCode != 206 || got != want {
				t.Fatalf("size %d: got %s %q, want 206 %q", size, part.Status, got, want)
			}
			joined.WriteString(r.text(part))
			from = to
		}
		if joined.String() != want {
			t.Errorf("size %d: the ranges do not make the body", size)
		}
	}
}

func TestBodyRequests(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/dir/caf%C3%A9?x", response: "0123456789", request: "abc"})
	path := bodyPath(id, "response")
	etag := r.call("HEAD", path, "").Header.Get("ETag")
	for _, test := range []struct {
		name         string
		method, path string
		fields       []string
		status       int
		body         string
		contentRange string
	}{
		{"whole", "GET", path, nil, 200, "0123456789", ""},
		{"other side", "GET", bodyPath(id, "request"), nil, 200, "abc", ""},
		{"range", "GET", path, []string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{"suffix", "GET", path, []string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{"beyond", "GET", path, []string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{"two ranges", "GET", path, []string{"Range", "bytes=0-1,3-4"}, 416, "", "bytes */10"},
		{"broken range", "GET", path, []string{"Range", "bytes=x"}, 416, "", "bytes */10"},
		{"other unit", "GET", path, []string{"Range", "lines=1-2"}, 200, "0123456789", ""},
		{"HEAD has no ranges", "HEAD", path, []string{"Range", "bytes=2-4"}, 200, "", ""},
		{"If-Range holds", "GET", path, []string{"Range", "bytes=2-4", "If-Range", etag}, 206, "234", "bytes 2-4/10"},
		{"If-Range does not", "GET", path, []string{"Range", "bytes=2-4", "If-Range", `"other"`}, 200, "0123456789", ""},
		{"If-Range is weak", "GET", path, []string{"Range", "bytes=2-4", "If-Range", "W/" + etag}, 200, "0123456789", ""},
		{"If-Range is a date", "GET", path, []string{"Range", "bytes=2-4", "If-Range", "Mon, 30 Nov 2026 11:00:00 GMT"}, 200, "0123456789", ""},
		{"If-None-Match", "GET", path, []string{"If-None-Match", `"other", ` + etag}, 304, "", ""},
		{"If-Match holds", "GET", path, []string{"If-Match", etag}, 200, "0123456789", ""},
		{"If-Match does not", "GET", path, []string{"If-Match", `"other"`}, 412, "", ""},
		{"decoded without a coding", "GET", path + "?as=decoded", nil, 200, "0123456789", ""},
		{"unknown representation", "GET", path + "?as=pdf", nil, 400, "", ""},
		{"unknown session", "GET", bodyPath(999, "response"), nil, 404, "", ""},
		{"no number", "GET", "/api/sessions/x/response/body", nil, 404, "", ""},
		{"unknown side", "GET", bodyPath(id, "both"), nil, 404, "", ""},
		{"not a body's method", "POST", path, nil, 405, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := r.call(test.method, test.path, "", test.fields...)
			got := r.text(res)
			if res.StatusCode != test.status || res.Header.Get("Content-Range") != test.contentRange {
				t.Fatalf("got %s %q, want %d %q", res.Status, res.Header.Get("Content-Range"), test.status, test.contentRange)
			}
			if test.status < 300 && got != test.body {
				t.Errorf("got %q, want %q", got, test.body)
			}
			if test.status >= 400 && res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("no problem: %q %s", res.Header.Get("Content-Type"), got)
			}
		})
	}
}

// What was captured is never shown with a type of its own, wherever a browser opens it.
func TestBodyIsHarmless(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/x.html", response: "<script>alert(1)</script>"})
	for _, query := range []string{"", "?download", "?as=decoded"} {
		res := r.call("GET", bodyPath(id, "response")+query, "")
		for field, want := range map[string]string{
			"Content-Type":                 "application/octet-stream",
			"X-Content-Type-Options":       "nosniff",
			"Content-Security-Policy":      "sandbox; default-src 'none'",
			"Content-Disposition":          "attachment",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			if got := res.Header.Get(field); !strings.HasPrefix(got, want) {
				t.Errorf("%q: got %s %q, want %q", query, field, got, want)
			}
		}
	}
	if got := r.call("GET", bodyPath(id, "response")+"?download", "").Header.Get("Content-Disposition"); got != `attachment; filename="x.html"` {
		t.Errorf("got %q", got)
	}
}

// While a body grows, the part that is there is a 206, and never looks like the whole.
func TestBodyWhileItGrows(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "http://a/b"})
	path := bodyPath(rec.ID(), "response")
	if res := r.call("GET", path, ""); res.StatusCode != 204 || res.Header.Get("Millpond-Body") != "growing" {
		t.Fatalf("before the first byte: got %s %v", res.Status, res.Header)
	}
	w := rec.Body(storage.Response)
	write(w, "01234")
	body, err := r.store.Body(rec.ID(), storage.Response)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	eventually(t, "five bytes can be read", func() bool { return body.Size() == 5 })

	for _, test := range []struct{ rang, want, contentRange string }{
		{"", "01234", "bytes 0-4/*"},
		{"bytes=0-", "01234", "bytes 0-4/*"},
		{"bytes=1-99", "1234", "bytes 1-4/*"},
		{"bytes=1-2", "12", "bytes 1-2/*"},
		{"bytes=-2", "34", "bytes 3-4/*"},
	} {
		res := r.call("GET", path, "", "Range", test.rang)
		if got := r.text(res); res.StatusCode != 206 || got != test.want || res.Header.Get("Content-Range") != test.contentRange {
			t.Errorf("%q: got %s %q %q", test.rang, res.Status, got, res.Header.Get("Content-Range"))
		}
		if res.Header.Get("ETag") != "" || res.Header.Get("Repr-Digest") != "" || res.Header.Get("Millpond-Body") != "growing" {
			t.Errorf("%q: it says that it is final: %v", test.rang, res.Header)
		}
	}
	if res := r.call("GET", path, "", "Range", "bytes=5-"); res.StatusCode != 416 || res.Header.Get("Content-Range") != "bytes */5" {
		t.Errorf("got %s %q", res.Status, res.Header.Get("Content-Range"))
	}

	download := r.call("GET", path+"?download", "") // its answer has begun
	write(w, "56789")
	first := make([]byte, 10)
	if _, err := io.ReadFull(download.Body, first); err != nil || string(first) != "0123456789" {
		t.Fatalf("got %q, %v", first, err) // each byte as it comes, not at the end
	}
	w.Complete()
	rec.End(storage.Done, "")
	if rest := r.text(download); rest != "" {
		t.Errorf("got %q", rest)
	}
	res := r.call("GET", path, "")
	if got := r.text(res); res.StatusCode != 200 || got != "0123456789" || res.Header.Get("Millpond-Body") != "complete" {
		t.Errorf("got %s %q %q", res.Status, got, res.Header.Get("Millpond-Body"))
	}
}

// What cannot be answered is told with what is known of it, before the head of an answer says that it comes.
func TestBodyThatIsNotThere(t *testing.T) {
	r := newRig(t)
	r.disk.SetSpace(20<<20, 1<<40) // enough for records, not for bodies
	refused := r.record(exchange{url: "http://a/refused", response: "text"})
	ask := func() *http.Response { return r.call("GET", bodyPath(refused, "response"), "") }
	eventually(t, "the disk has refused it", func() bool { // until then it is read from memory
		res := ask()
		return res.StatusCode != 200 || r.text(res) != "text"
	})
	for range 2 { // at once, and from the index
		res := ask()
		if got := r.text(res); res.StatusCode != 404 || !strings.Contains(got, "captured to byte 0: the disk is full") {
			t.Errorf("got %s %q", res.Status, got)
		}
		eventually(t, "it is durable", func() bool { return r.store.Status().DurableUntil == refused })
	}
	r.disk.Heal()

	lost := r.record(exchange{url: "http://a/lost", response: noise(300_000)})
	eventually(t, "it is durable", func() bool { return r.store.Status().DurableUntil == lost })
	if err := os.RemoveAll(filepath.Join(r.dir, "chunks")); err != nil {
		t.Fatal(err)
	}
	for name, fields := range map[string][]string{"whole": nil, "part": {"Range", "bytes=1000-2000"}} {
		res := r.call("GET", bodyPath(lost, "response")+"?download", "", fields...)
		if got := r.text(res); res.StatusCode != 500 || !strings.Contains(got, "cannot be read") || res.Header.Get("Content-Disposition")+res.Header.Get("ETag")+res.Header.Get("Content-Range") != "" {
			t.Errorf("%s: got %s %q %v", name, res.Status, got, res.Header)
		} else if strings.Count(got, "millpond verify --repair finds out what is lost") != 1 {
			t.Errorf("%s: what to do is not said once: %q", name, got)
		}
	}
}

// A session whose record is gone, and nobody deleted it, is no session that there never was.
func TestSessionWhoseSegmentIsGone(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/record", response: "text"})
	eventually(t, "it is durable", func() bool { return r.store.Status().DurableUntil == id })
	if err := os.RemoveAll(filepath.Join(r.dir, "log")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fmt.Sprintf("/api/sessions/%d", id), bodyPath(id, "response")} {
		res := r.call("GET", path, "")
		if got := r.text(res); res.StatusCode != 500 || !strings.Contains(got, "the file is gone: millpond verify --repair finds out what is lost") {
			t.Errorf("%s: got %s %q", path, res.Status, got)
		}
	}
}

// A download that follows a body is broken where the body is: it never looks complete.
func TestDownloadOfABodyThatBreaksOff(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "http://a/b"})
	w := rec.Body(storage.Response)
	write(w, "01234")
	download := r.call("GET", bodyPath(rec.ID(), "response")+"?download", "")
	first := make([]byte, 5)
	if _, err := io.ReadFull(download.Body, first); err != nil {
		t.Fatal(err)
	}
	rec.End(storage.UpstreamAborted, "upstream closed")
	if _, err := io.ReadAll(download.Body); err == nil {
		t.Error("the download ended as if it were whole")
	}
	res := r.call("GET", bodyPath(rec.ID(), "response"), "")
	if got := r.text(res); res.StatusCode != 200 || got != "01234" || res.Header.Get("Millpond-Body") != "incomplete" {
		t.Errorf("got %s %q %q", res.Status, got, res.Header.Get("Millpond-Body"))
	}
}

// A client that stops reading holds one buffer and nothing that others wait for.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	r := newRig(t)
	id := r.record(exchange{url: "http://a/b", response: noise(16 << 20)})
	slow := r.call("GET", bodyPath(id, "response"), "")
	if _, err := io.ReadFull(slow.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		other := r.record(exchange{url: "http://a/c", response: "quick"})
		if got := r.text(r.call("GET", bodyPath(other, "response"), "")); got != "quick" {
			t.Errorf("got %q", got)
		}
	}
	if n, err := io.Copy(io.Discard, slow.Body); err != nil || n != 16<<20-1 {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestFollowerIsAReader(t *testing.T) {
	r := newRig(t)
	want := noise(100_000)
	id := r.record(exchange{url: "http://a/b", response: want})
	open := func() *storage.BodyReader {
		body, err := r.store.Body(id, storage.Response)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { body.Close() })
		return body
	}
	eventually(t, "the body is final", func() bool { return open().Final() })
	if err := iotest.TestReader(open().Follow(t.Context()), []byte(want)); err != nil {
		t.Error(err)
	}
	got, err := io.ReadAll(iotest.OneByteReader(open().Follow(t.Context())))
	if err != nil || !bytes.Equal(got, []byte(want)) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestHeadOfAGrowingBodyTellsItsSize(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "http://a/b"})
	write(rec.Body(storage.Response), "01234")
	eventually(t, "HEAD tells five bytes", func() bool {
		res := r.call("HEAD", bodyPath(rec.ID(), "response"), "")
		return res.StatusCode == http.StatusPartialContent && res.Header.Get("Content-Range") == "bytes 0-4/*" && res.ContentLength == 5
	})
	rec.End(storage.ClientAborted, "")
}
