package server

import (
	"mime"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"millpond/storage"
)

// maxFileName bounds a file name in bytes: file systems stop at 255, and a browser may add " (1)" and ".crdownload".
const maxFileName = 150

// fileName makes a name for a body out of its session's path and media type, neither of which is to be trusted: no separators, no control or
// direction characters, no names that Windows reserves, no leading dots.
func fileName(rawPath, mediaType string, side storage.Side) string {
	raw, _, _ := strings.Cut(rawPath, "?")
	raw, _, _ = strings.Cut(raw, "#")
	name := path.Base("/" + raw)
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped
	}
	name = strings.ToValidUTF8(name, "_")
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Cf, r): // direction marks make "exe.gpj" look like another type
			return -1
		case r < ' ' || r == 0x7f || unicode.IsControl(r) || strings.ContainsRune(`<>:"/\|?*%;`, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r):
			return '_'
		}
		return r
	}, name)
	name = strings.TrimLeft(name, ". ")
	name = strings.TrimRight(name, ". ")
	if strings.Trim(name, "_") == "" {
		name = "body"
	}
	if side == storage.Request {
		name = "request-" + name
	}
	ext := path.Ext(name)
	if len(ext) < 2 || len(ext) > 12 || strings.ContainsFunc(ext[1:], notAlphanumeric) {
		ext = ""
	}
	stem := strings.TrimSuffix(name, ext)
	if ext == "" {
		ext = extensionOf(mediaType)
	}
	if reserved(stem) {
		stem = "_" + stem
	}
	return shorten(stem, maxFileName-len(ext)) + ext
}

// extensions are those of the types that captures are made of; the mime package's own depend on the machine.
var extensions = map[string]string{
	"application/json": ".json", "application/pdf": ".pdf", "application/zip": ".zip", "application/gzip": ".gz",
	"application/javascript": ".js", "application/xml": ".xml", "application/wasm": ".wasm", "text/javascript": ".js", "text/html": ".html",
	"text/css": ".css", "text/plain": ".txt", "text/csv": ".csv", "text/xml": ".xml", "text/event-stream": ".txt",
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg", "image/avif": ".avif",
	"audio/mpeg": ".mp3", "video/mp4": ".mp4", "video/webm": ".webm", "font/woff2": ".woff2", "font/woff": ".woff",
}

func extensionOf(mediaType string) string {
	base, _, _ := mime.ParseMediaType(mediaType)
	switch {
	case extensions[base] != "":
		return extensions[base]
	case strings.HasSuffix(base, "+json"):
		return ".json"
	case strings.HasSuffix(base, "+xml"):
		return ".xml"
	}
	return ".bin"
}

func notAlphanumeric(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// reserved reports whether Windows keeps the name for a device.
func reserved(stem string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(stem), ".")
	switch base = strings.TrimSpace(base); base {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) && base[3] >= '0' && base[3] <= '9'
}

// shorten cuts s to at most n bytes, between characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// disposition renders Content-Disposition: a plain name for old clients, and the real one where it is not ASCII. RFC 6266, RFC 8187.
// Name is one of fileName's: it holds no quote, backslash, percent sign or control character.
func disposition(name string) string {
	ascii := strings.Map(func(r rune) rune {
		if r > '~' {
			return '_'
		}
		return r
	}, name)
	field := `attachment; filename="` + ascii + `"`
	if ascii != name {
		field += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	}
	return field
}
