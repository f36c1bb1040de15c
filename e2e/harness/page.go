package harness

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// pageResources is how many resources a page has.
const pageResources = 200

// ResourceSize is the size of a page's resource with the number, in bytes.
func ResourceSize(i int) int { return 300 + i*997 }

// servePage gives a page with 200 resources: scripts, style sheets, images and fetched data, in turn.
// The page counts in window.loaded and window.broken how each of them ended.
func servePage(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html><title>%s</title><link rel=icon href=data:,>\n", name)
	b.WriteString("<script>loaded = 0; broken = 0; const ok = () => loaded++, bad = () => broken++;\n" +
		"const take = (path, size) => fetch(path).then((r) => r.arrayBuffer()).then((b) => b.byteLength === size ? ok() : bad(), bad);</script>\n")
	for i := range pageResources {
		path := fmt.Sprintf("/page/%s/%d", name, i)
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "<script src=%s onload=ok() onerror=bad()></script>\n", path)
		case 1:
			fmt.Fprintf(&b, "<link rel=stylesheet href=%s onload=ok() onerror=bad()>\n", path)
		case 2:
			fmt.Fprintf(&b, "<img src=%s onload=ok() onerror=bad()>\n", path)
		case 3:
			fmt.Fprintf(&b, "<script>take(%q, %d)</script>\n", path, ResourceSize(i))
		}
	}
	_, _ = w.Write(b.Bytes())
}

// serveResource gives one resource of a page: a valid one of its kind, padded to its size.
func serveResource(w http.ResponseWriter, r *http.Request) {
	i, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || i < 0 || i >= pageResources {
		http.NotFound(w, r)
		return
	}
	kinds := [...]struct{ mediaType, before, after string }{
		{"text/javascript", "/*", "*/\n"},
		{"text/css", "/*", "*/\n"},
		{"image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><!--`, "--></svg>\n"},
		{"application/octet-stream", "", ""},
	}
	kind := kinds[i%4]
	// The number comes first, so that no two resources are alike.
	before := kind.before + strconv.Itoa(i) + " "
	body := before + strings.Repeat(".", ResourceSize(i)-len(before)-len(kind.after)) + kind.after
	w.Header().Set("Content-Type", kind.mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write([]byte(body))
}
