package server

import "testing"

func TestUnicodeHost(t *testing.T) {
	for host, want := range map[string]string{
		"xn--mnchen-3ya.example":     "münchen.example",
		"XN--MNCHEN-3YA.example:444": "münchen.example:444",
		"www.xn--fsq.example":        "www.例.example",
		"plain.example:443":          "",
		"xn--999999999.example":      "", // decodes to nothing
		"[::1]:8000":                 "",
		"":                           "",
	} {
		if got := unicodeHost(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}
