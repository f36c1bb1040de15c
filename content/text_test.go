package content

import "testing"

func TestIsText(t *testing.T) {
	tests := []struct {
		name, head, contentType string
		want                    bool
	}{
		{"plain", "hello", "text/plain", true},
		{"nothing", "", "", true},
		{"nothing, called a picture", "", "image/png", false},
		{"JSON", `{"a":1}`, "application/json; charset=utf-8", true},
		{"JSON of an API", `{"a":1}`, "application/vnd.api+json", true},
		{"JSON of no type", `{"a":1}`, "", true},
		{"JSON called octets", `{"a":1}`, "application/octet-stream", true},
		{"SVG", "<svg/>", "image/svg+xml", true},
		{"Shift-JIS, said so", "\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd", "text/html; charset=Shift_JIS", true},
		{"Shift-JIS, not said", "<html>\x82\xb1\x82\xf1", "text/html", true},
		{"ISO-2022-JP", "\x1b$B$3\x1b(B", "text/plain", true},
		{"latin-1 of no type", "caf\xe9 au lait", "", false},
		{"UTF-8, last character cut", "caf\xc3", "", true},
		{"UTF-8, broken", "caf\xc3 x", "", false},
		{"UTF-16 with a mark", "\xff\xfeh\x00i\x00", "", true},
		{"UTF-16, said so", "h\x00i\x00", "text/plain; charset=UTF-16LE", true},
		{"zeros called text", "a\x00b", "text/plain", false},
		{"PNG", "\x89PNG\r\n\x1a\n", "image/png", false},
		{"PNG called text", "\x89PNG\r\n\x1a\n", "text/html", false},
		{"PNG of no type", "\x89PNG\r\n\x1a\n", "", false},
		{"PDF, whose head is text", "%PDF-1.7\n", "application/pdf", false},
		{"gRPC", "abc", "application/grpc+proto", false},
		{"a form", "a=1&b=2", "application/x-www-form-urlencoded", true},
		{"a playlist", "#EXTM3U\n", "audio/mpegurl", true},
		{"a type that does not parse", `{"a":1}`, "application/json; charset", true},
		{"a type in capitals that does not parse", "\xe9", "TEXT/HTML; ;;=", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := IsText([]byte(test.head), test.contentType); got != test.want {
				t.Errorf("IsText(%q, %q) = %v, want %v", test.head, test.contentType, got, test.want)
			}
		})
	}
}
