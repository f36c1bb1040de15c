package content

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"
)

// TextHead is how many bytes of a body IsText wants to see: as many as the WHATWG's MIME Sniffing standard looks at, and enough for a page's markup.
const TextHead = 1445

// IsText reports whether a body, decoded, is for reading: head is how it begins, contentType its field's value. The type is believed where the bytes do not
// contradict: a text type with the bytes of a picture is no text, and a type that says nothing (application/octet-stream, none) is text if the bytes are UTF-8.
func IsText(head []byte, contentType string) bool {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(contentType, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	switch {
	case isBinaryType(kind):
		return false
	case isTextType(kind):
		return isWide(head, params["charset"]) || !hasControls(head)
	}
	return isWide(head, "") || !hasControls(head) && validUTF8(head)
}

func isTextType(kind string) bool {
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml") {
		return true
	}
	switch strings.TrimPrefix(kind, "application/") {
	case "json", "xml", "javascript", "x-javascript", "ecmascript", "x-www-form-urlencoded", "graphql", "yaml", "x-yaml", "toml", "sql",
		"x-ndjson", "ndjson", "jsonl", "json-seq", "x-sh", "xml-dtd", "manifest+json", "x-httpd-php", "x-mpegurl", "vnd.apple.mpegurl":
		return true
	}
	return false
}

// isBinaryType knows the types whose bytes can look like text at their beginning and are none.
func isBinaryType(kind string) bool {
	for _, family := range []string{"image/", "audio/", "video/", "font/"} {
		if strings.HasPrefix(kind, family) {
			return !isTextType(kind) && kind != "audio/mpegurl" && kind != "audio/x-mpegurl"
		}
	}
	switch kind {
	case "application/pdf", "application/zip", "application/gzip", "application/wasm", "application/grpc", "application/protobuf", "application/x-protobuf":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc+")
}

// isWide reports whether the text is in UTF-16 or UTF-32, which are full of zero bytes.
func isWide(head []byte, charset string) bool {
	charset = strings.ToLower(charset)
	return strings.HasPrefix(charset, "utf-16") || strings.HasPrefix(charset, "utf-32") ||
		bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) || bytes.HasPrefix(head, []byte{0, 0, 0xfe, 0xff})
}

// hasControls reports whether there is a byte that no text has in any charset which extends ASCII: the standard's "binary data bytes".
func hasControls(head []byte) bool {
	for _, b := range head {
		if b != 0x7f && isControl(rune(b)) {
			return true
		}
	}
	return false
}

// validUTF8 reports whether head is UTF-8, whose last character may be cut.
func validUTF8(head []byte) bool {
	for len(head) > 0 {
		r, size := utf8.DecodeRune(head)
		if r == utf8.RuneError && size == 1 {
			return !utf8.FullRune(head)
		}
		head = head[size:]
	}
	return true
}
