package web

import (
	"io/fs"
	"strings"
	"testing"
)

// Both pages are there whether or not the app was built, and never point outside of the program.
func TestFilesHoldBothPages(t *testing.T) {
	for _, name := range []string{"index.html", "s/index.html"} {
		page, err := fs.ReadFile(Files(), name)
		if err != nil {
			t.Fatalf("read %s (built: %v): %v", name, Built(), err)
		}
		if strings.Contains(string(page), "http://") || strings.Contains(string(page), "https://") {
			t.Errorf("%s refers to another host:\n%s", name, page)
		}
		if got := strings.Contains(string(page), "npm run build"); got == Built() {
			t.Errorf("%s says how to build the app: got %v, built: %v", name, got, Built())
		}
	}
}
