package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"millpond/content"
	"millpond/storage"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDecodedBodies(t *testing.T) {
	r := newRig(t)
	text := strings.Repeat("the mill grinds what the pond gives. ", 10_000)
	packed := gzipped(t, text)
	for _, test := range []struct {
		name, coding, body string
		status             int
		want               string
		state, problem     string // of Millpond-Body; a part of Millpond-Decode-Error or of the problem
	}{
		{"gzip", "gzip", packed, 200, text, "complete", ""},
		{"twice", "gzip, gzip", gzipped(t, packed), 200, text, "complete", ""},
		{"identity", "identity", text, 200, text, "complete", ""},
		{"empty", "gzip", "", 200, "", "complete", ""},
		{"trailing", "gzip", packed + "more", 200, text, "complete", "bytes follow"},
		{"truncated", "gzip", packed[:len(packed)-12], 200, "", "incomplete", "truncated"},
		{"label lies", "gzip", `{"a":1}`, 422, "", "", "not encoded as its Content-Encoding says"},
		{"unknown", "sdch", "x", 422, "", "", "unknown content coding"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := r.record(exchange{url: "http://a/b.txt", response: test.body, fields: "Content-Encoding: " + test.coding + "\r\n"})
			path := bodyPath(id, "response")
			res := r.call("GET", path+"?as=decoded", "")
			got := r.text(res)
			if res.StatusCode != test.status || res.Header.Get("Millpond-Body") != test.state {
				t.Fatalf("got %s %q: %.200s", res.Status, res.Header.Get("Millpond-Body"), got)
			}
			if test.status != 200 {
				if !strings.Contains(got, test.problem) {
					t.Errorf("got %s, want %q in it", got, test.problem)
				}
				return
			}
			if why := res.Header.Get("Millpond-Decode-Error"); (why != "") != (test.problem != "") || !strings.Contains(why, test.problem) {
				t.Errorf("got Millpond-Decode-Error %q, want %q in it", why, test.problem)
			}
			if test.state == "incomplete" {
				if got == "" || !strings.HasPrefix(text, got) {
					t.Errorf("got %d bytes, want the beginning", len(got))
				}
			} else if got != test.want {
				t.Errorf("got %d bytes, want %d", len(got), len(test.want))
			}
			if wire := r.text(r.call("GET", path, "")); wire != test.body {
				t.Errorf("the wire bytes are not what was sent")
			}
			if test.want != text {
				return
			}
			part := r.call("GET", path+"?as=decoded", "", "Range", "bytes=100-199")
			if got := r.text(part); part.StatusCode != 206 || got != text[100:200] || part.Header.Get("Content-Range") != fmt.Sprintf("bytes 100-199/%d", len(text)) {
				t.Errorf("a range: got %s %q %q", part.Status, part.Header.Get("Content-Range"), got)
			}
			if test.coding != "identity" && part.Header.Get("ETag") == r.call("HEAD", path, "").Header.Get("ETag") {
				t.Error("two representations have one ETag")
			}
		})
	}
}

// A small body that would become a very large one costs no more than content.LimitFloor, and says so.
func TestDecodedBombIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 64 MiB")
	}
	r := newRig(t)
	once := strings.Repeat(gzipped(t, string(make([]byte, 1<<20))), 100)
	id := r.record(exchange{url: "http://a/b", response: gzipped(t, once), fields: "Content-Encoding: gzip, gzip\r\n"})
	var size int64
	eventually(t, "the copy is final", func() bool {
		res := r.call("HEAD", bodyPath(id, "response")+"?as=decoded", "")
		size = res.ContentLength
		return res.Header.Get("Millpond-Body") == "incomplete" && strings.Contains(res.Header.Get("Millpond-Decode-Error"), "too large")
	})
	if size != content.LimitFloor {
		t.Errorf("got %d bytes, want %d", size, content.LimitFloor)
	}
}

// A compressed body that grows is decoded as far as it is there.
func TestDecodedWhileItGrows(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "http://a/events", fields: "Content-Encoding: gzip\r\n"})
	path := bodyPath(rec.ID(), "response") + "?as=decoded"
	body := rec.Body(storage.Response)
	pack := gzip.NewWriter(body)
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(pack, text); err != nil {
			t.Fatal(err)
		}
		if err := pack.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	say("first ")
	eventually(t, "the first event can be read", func() bool {
		res := r.call("GET", path, "")
		return res.StatusCode == 206 && r.text(res) == "first " && res.Header.Get("Millpond-Body") == "growing"
	})
	for _, test := range []struct {
		rang         string
		status       int
		text, ranged string
	}{
		{"bytes=2-100", 206, "rst ", "bytes 2-5/*"},
		{"bytes=0-3", 206, "firs", "bytes 0-3/*"},
		{"bytes=-2", 206, "t ", "bytes 4-5/*"},
		{"bytes=6-", 416, "", "bytes */6"},
	} {
		res := r.call("GET", path, "", "Range", test.rang)
		got := r.text(res)
		if res.StatusCode != test.status || res.Header.Get("Content-Range") != test.ranged || test.status == 206 && got != test.text || res.Header.Get("ETag") != "" {
			t.Errorf("%s: got %s %q, ETag %q, %q", test.rang, res.Status, res.Header.Get("Content-Range"), res.Header.Get("ETag"), got)
		}
	}
	download := r.call("GET", path+"&download", "")
	say("second")
	got := make([]byte, len("first second"))
	if _, err := io.ReadFull(download.Body, got); err != nil || string(got) != "first second" {
		t.Fatalf("got %q, %v", got, err)
	}
	if err := pack.Close(); err != nil {
		t.Fatal(err)
	}
	body.Complete()
	rec.End(storage.Done, "")
	if rest := r.text(download); rest != "" {
		t.Errorf("got %q", rest)
	}
	eventually(t, "the copy is complete", func() bool {
		res := r.call("GET", path, "")
		return res.StatusCode == 200 && r.text(res) == "first second"
	})
}

// Of a whole body whose copy is not there yet an answer gives what there is: of one that waits for its turn, nothing, and says so.
func TestDecodedBeforeItIsMade(t *testing.T) {
	r := newRig(t)
	path := bodyPath(r.record(exchange{url: "http://a/b", response: gzipped(t, "text"), fields: "Content-Encoding: gzip\r\n"}), "response") + "?as=decoded"
	for range maxDecoding {
		r.server.decoding <- struct{}{}
	}
	for _, test := range []struct {
		rang   string
		status int
		ranged string
	}{{"", 204, ""}, {"bytes=0-99", 416, "bytes */0"}} {
		res := r.call("GET", path, "", "Range", test.rang)
		if h := res.Header; res.StatusCode != test.status || h.Get("Content-Range") != test.ranged || h.Get("ETag") != "" || h.Get("Repr-Digest") != "" || h.Get("Millpond-Body") != "growing" {
			t.Errorf("%q: got %s %v", test.rang, res.Status, h)
		}
	}
	for range maxDecoding {
		<-r.server.decoding
	}
	eventually(t, "the copy is complete", func() bool { return r.text(r.call("GET", path, "")) == "text" })
}
