package server

import (
	"strings"
	"testing"

	"millpond/storage"
)

func TestFilterMatchesPartsOfTheURL(t *testing.T) {
	row := &storage.Row{Scheme: "https", Host: "Example.com:8443", Path: "/Über/B?q=1"}
	for filter, want := range map[string]bool{
		"https://example.com:8443/": true, "EXAMPLE": true, "8443/": true, "/b?Q=1": true, " b?q ": true, "über": true, "ÜBER/b": true,
		"http://": false, "example.org": false, "uber": false, "q=12": false, strings.Repeat("x", 600): false,
	} {
		matches, err := parseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(row); got != want {
			t.Errorf("%q: got %v", filter, got)
		}
	}
	matches, _ := parseFilter("END")
	if !matches(&storage.Row{Path: "/" + strings.Repeat("x", 2000) + "end"}) {
		t.Error("the end of a long URL was not found")
	}
	if n := testing.AllocsPerRun(100, func() { matches(row) }); n > 0 {
		t.Errorf("%v allocations for each row", n)
	}
}

func BenchmarkFilter(b *testing.B) {
	row := &storage.Row{Scheme: "https", Host: "host.example.com", Path: "/some/longer/path/to/a/Body?with=query"}
	matches, _ := parseFilter("needle")
	b.ReportAllocs()
	for b.Loop() {
		matches(row)
	}
}
