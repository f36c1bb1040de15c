package server

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millpond/storage"
)

func TestFilterMatchesPartsOfTheURL(t *testing.T) {
	path := []byte("/Über/B?q=1")
	for filter, want := range map[string]bool{
		"https://example.com:8443/": true, "EXAMPLE": true, "8443/": true, "/b?Q=1": true, " b?q ": true, "über": true, "ÜBER/b": true,
		"http://": false, "example.org": false, "uber": false, "q=12": false, strings.Repeat("x", 600): false,
	} {
		matches, err := parseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(200, "https", "Example.com:8443", path); got != want {
			t.Errorf("%q: got %v", filter, got)
		}
	}
	if string(path) != "/Über/B?q=1" {
		t.Errorf("a match changed the path to %q", path)
	}
	matches, _ := parseFilter("END")
	if !matches(0, "", "", []byte("/"+strings.Repeat("x", 2000)+"end")) {
		t.Error("the end of a long URL was not found")
	}
	if n := testing.AllocsPerRun(100, func() { matches(200, "https", "Example.com:8443", path) }); n > 0 {
		t.Errorf("%v allocations for each session", n)
	}
}

func TestFilterByStatus(t *testing.T) {
	for filter, want := range map[string][]int{
		"status:404": {404}, "status:4": {404, 499}, "STATUS:4xx": {404, 499}, "status:40": {404}, "status:40x": {404}, "status:": {0, 101, 200, 404, 499, 999},
		"status:0": {0}, "status:000": {0}, "status:9": {999}, "status:4 status:404": {404}, "status:4 status:2": nil, "status:2 example": {200}, "exam status:2": {200}, "status:2 other": nil,
	} {
		matches, err := parseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, status := range []int{0, 101, 200, 404, 499, 999} {
			if matches == nil || matches(status, "https", "example.com", []byte("/")) {
				got = append(got, status)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q matches %v, want %v", filter, got, want)
		}
	}
	for _, filter := range []string{"status:x", "status:ok", "status:4044", "status:4x4", "status:+4", "status:-1", "status:4 status:b", "status:٤"} {
		if _, err := parseFilter(filter); err == nil || !strings.Contains(err.Error(), "status:4") {
			t.Errorf("%q: %v", filter, err)
		}
	}
}

// plainMatch is what a filter means, said simply.
func plainMatch(filter string, r *storage.Row) bool {
	filter = strings.ToLower(strings.TrimSpace(filter))
	url := r.Scheme + "://" + r.Host + r.Path
	if isASCII(filter) {
		return strings.Contains(strings.Map(func(c rune) rune { // invalid bytes become U+FFFD, which no such filter has
			if 'A' <= c && c <= 'Z' {
				return c + 'a' - 'A'
			}
			return c
		}, url), filter)
	}
	return strings.Contains(strings.ToLower(url), filter)
}

// Looking through the index as it is stored finds what looking at each row finds, whatever bytes and letters URL and filter have.
func TestFilterFindsWhatRowsSay(t *testing.T) {
	store, err := storage.OpenStore(storage.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	// Letters whose other case is of another length, or ASCII, or not unique; bytes beside the letters; halves of a letter.
	alphabet := []string{
		"a", "Z", "z", "A", "b", "M", "m", "@", "[", "`", "{", "/", "?", "0", "=", "ü", "Ü", "é", "É", "ſ", "ß", "ẞ", "İ", "ı", "K", "k", "K",
		"Å", "å", "Å", "Ω", "ω", "Ω", "Ⱥ", "ⱥ", "日", "\xff", "\xc3", "\x00", "\x9c", "�",
	}
	r := rand.New(rand.NewPCG(3, 4))
	text := func(n int) string {
		var b strings.Builder
		plain := r.IntN(2) == 0
		for range n {
			c := alphabet[r.IntN(len(alphabet))]
			if plain && !isASCII(c) {
				c = "x"
			}
			b.WriteString(c)
		}
		return b.String()
	}
	const sessions = 2000
	var urls []string
	for range sessions {
		session := storage.Session{Scheme: []string{"http", "HTTPS", "tcp", ""}[r.IntN(4)], Host: text(r.IntN(9)), Path: text(r.IntN(1 << r.IntN(10)))}
		urls = append(urls, session.Scheme+"://"+session.Host+session.Path)
		rec := store.Begin(session)
		if r.IntN(50) > 0 {
			rec.End(storage.Done, "")
		}
	}
	found := 0
	for range 300 {
		filter := text(1 + r.IntN(3))
		if r.IntN(2) == 0 { // a part of what is there
			url := urls[r.IntN(sessions)]
			from := r.IntN(len(url))
			filter = url[from : from+1+r.IntN(min(len(url)-from, 12))]
		}
		matches, err := parseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		if matches == nil {
			continue
		}
		var got, want []uint64
		if err := store.Find(0, 1<<62, true, matches, func(ids []uint64, _, _ uint64) bool {
			got = append(got, ids...)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err := store.ScanDown(0, 1<<62, func(row *storage.Row) bool {
			if plainMatch(filter, row) {
				want = append(want, row.ID)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: found %d sessions, want %d", filter, len(got), len(want))
		}
		found += len(want)
	}
	if found < sessions {
		t.Errorf("the filters matched %d times", found)
	}
}

func BenchmarkFilter(b *testing.B) {
	path := []byte("/some/longer/path/to/a/Body?with=query")
	matches, _ := parseFilter("needle")
	b.ReportAllocs()
	for b.Loop() {
		matches(200, "https", "host.example.com", path)
	}
}
