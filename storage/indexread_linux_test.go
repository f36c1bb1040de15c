package storage

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// mappedPages is what of this process's resident size are pages of files, in bytes.
func mappedPages(t *testing.T) (bytes int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}

// A scan, and a look through all of a large index, leave little of it in the resident size.
func TestResidentSizeDoesNotGrowToTheIndex(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	path := "/" + strings.Repeat("long/", 6_000)
	for range 3_000 { // 90 MB
		r := s.Begin(Session{Host: "example.com", Path: path})
		r.Body(Response).Wait(t.Context())
		r.End(Done, "")
	}
	waitDurable(t, s)
	if s.index.isSmall() {
		t.Fatal("the index is no large one")
	}
	const little = 24 << 20
	before := mappedPages(t)
	for name, read := range map[string]func() error{
		"scan": func() error { return s.Scan(0, 1<<62, func(*Row) bool { return true }) },
		"find": func() error {
			return s.Find(0, 1<<62, true, func(int, string, string, []byte) bool { return false }, func([]uint64, uint64, uint64) bool { return true })
		},
		"check": s.index.check,
	} {

		if err := read(); err != nil {
			t.Fatal(err)
		}
		if after := mappedPages(t); after > before+little {
			t.Errorf("%s: the pages of files that are resident grew from %d to %d MB", name, before>>20, after>>20)
		}
	}
}
