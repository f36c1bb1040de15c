package server

import (
	"errors"
	"testing"
)

func TestParseRange(t *testing.T) {
	none := span{}
	for _, test := range []struct {
		name  string
		field string
		size  int64
		want  span
		ok    bool
		err   error
	}{
		{"absent", "", 10, none, false, nil},
		{"first to last", "bytes=2-4", 10, span{2, 5}, true, nil},
		{"one byte", "bytes=0-0", 10, span{0, 1}, true, nil},
		{"last byte", "bytes=9-9", 10, span{9, 10}, true, nil},
		{"open end", "bytes=3-", 10, span{3, 10}, true, nil},
		{"last beyond the end", "bytes=3-999", 10, span{3, 10}, true, nil},
		{"last beyond int64", "bytes=3-99999999999999999999", 10, span{3, 10}, true, nil},
		{"suffix", "bytes=-4", 10, span{6, 10}, true, nil},
		{"suffix longer than the body", "bytes=-40", 10, span{0, 10}, true, nil},
		{"unit in capitals", "Bytes=1-2", 10, span{1, 3}, true, nil},
		{"other unit", "items=1-2", 10, none, false, nil},
		{"no unit", "1-2", 10, none, false, nil},
		{"first at the end", "bytes=10-", 10, none, false, errRangeBeyond},
		{"first beyond int64", "bytes=99999999999999999999-", 10, none, false, errRangeBeyond},
		{"empty suffix", "bytes=-0", 10, none, false, errRangeBeyond},
		{"of nothing", "bytes=0-", 0, none, false, errRangeBeyond},
		{"suffix of nothing", "bytes=-1", 0, none, false, errRangeBeyond},
		{"last before first", "bytes=4-2", 10, none, false, errRangeSyntax},
		{"no dash", "bytes=4", 10, none, false, errRangeSyntax},
		{"dash alone", "bytes=-", 10, none, false, errRangeSyntax},
		{"empty", "bytes=", 10, none, false, errRangeSyntax},
		{"sign", "bytes=+1-2", 10, none, false, errRangeSyntax},
		{"hexadecimal", "bytes=0x1-2", 10, none, false, errRangeSyntax},
		{"negative last", "bytes=1--2", 10, none, false, errRangeSyntax},
		{"two", "bytes=0-1,3-4", 10, none, false, errManyRanges},
		{"two suffixes", "bytes=-1,-1", 10, none, false, errManyRanges},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok, err := parseRange(test.field, test.size)
			if got != test.want || ok != test.ok || !errors.Is(err, test.err) {
				t.Errorf("parseRange(%q, %d): got %v %v %v, want %v %v %v", test.field, test.size, got, ok, err, test.want, test.ok, test.err)
			}
		})
	}
}

// Whatever a client sends, a span lies within the body.
func FuzzParseRange(f *testing.F) {
	for _, field := range []string{"bytes=0-", "bytes=-5", "bytes=3-4", "bytes=9223372036854775807-9223372036854775807"} {
		f.Add(field, int64(10))
	}
	f.Fuzz(func(t *testing.T, field string, size int64) {
		if size < 0 {
			return
		}
		s, ok, err := parseRange(field, size)
		if ok && (err != nil || s.from < 0 || s.from >= s.to || s.to > size) {
			t.Errorf("parseRange(%q, %d): got %v %v", field, size, s, err)
		}
	})
}
