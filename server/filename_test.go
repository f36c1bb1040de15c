package server

import (
	"mime"
	"strings"
	"testing"
	"unicode/utf8"

	"millpond/storage"
)

func TestFileName(t *testing.T) {
	for _, test := range []struct {
		name, path, mediaType string
		side                  storage.Side
		want                  string
	}{
		{"its own extension", "/release/disk-image.zip", "application/zip", storage.Response, "disk-image.zip"},
		{"query", "/a/b.json?x=/../c", "application/json", storage.Response, "b.json"},
		{"extension from the type", "/api/items", "application/json; charset=utf-8", storage.Response, "items.json"},
		{"structured suffix", "/x", "application/vnd.api+json", storage.Response, "x.json"},
		{"unknown type", "/x", "", storage.Response, "x.bin"},
		{"root", "/", "text/html", storage.Response, "body.html"},
		{"tunnel", "", "", storage.Request, "request-body.bin"},
		{"request", "/upload.png", "image/png", storage.Request, "request-upload.png"},
		{"escaped", "/na%C3%AFve%20file.txt", "", storage.Response, "naïve file.txt"},
		{"bad escape", "/100%zz.txt", "", storage.Response, "100_zz.txt"},
		{"escaped separator", "/..%2F..%2Fetc%2Fpasswd", "", storage.Response, "_.._etc_passwd.bin"},
		{"backslash", `/a\b.txt`, "", storage.Response, "a_b.txt"},
		{"hidden file", "/.bashrc", "text/plain", storage.Response, "bashrc.txt"},
		{"only dots", "/...", "", storage.Response, "body.bin"},
		{"trailing dots", "/a.exe. .", "", storage.Response, "a.exe"},
		{"line feed", "/a%0D%0AX-Evil:%201.txt", "", storage.Response, "a__X-Evil_ 1.txt"},
		{"quote", `/a"; filename=evil.exe`, "", storage.Response, "a__ filename=evil.exe"},
		{"direction mark", "/photo%E2%80%AEgpj.exe", "", storage.Response, "photogpj.exe"},
		{"device", "/CON.txt", "", storage.Response, "_CON.txt"},
		{"device with digits", "/com1", "text/plain", storage.Response, "_com1.txt"},
		{"not UTF-8", "/a%FFb.txt", "", storage.Response, "a_b.txt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := fileName(test.path, test.mediaType, test.side); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A long name is cut between characters and keeps its extension.
func TestFileNameIsShort(t *testing.T) {
	got := fileName("/"+strings.Repeat("%C3%A9", 300)+".json", "", storage.Response)
	if len(got) > maxFileName || !strings.HasSuffix(got, "é.json") || !utf8.ValidString(got) {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}

func FuzzDisposition(f *testing.F) {
	f.Add("/a b;=@'(é).txt", "text/plain")
	f.Add("/%00%0a\"\\", "")
	f.Fuzz(func(t *testing.T, path, mediaType string) {
		name := fileName(path, mediaType, storage.Response)
		field := disposition(name)
		kind, params, err := mime.ParseMediaType(field)
		if err != nil || kind != "attachment" {
			t.Fatalf("%q: %v %q", field, err, kind)
		}
		if params["filename"] != name {
			t.Errorf("%q: got %q, want %q", field, params["filename"], name)
		}
		if name == "" || len(name) > maxFileName || strings.ContainsAny(name, "/\\\"\r\n\x00") || name[0] == '.' {
			t.Errorf("unsafe name %q", name)
		}
	})
}
