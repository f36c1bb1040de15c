package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

var update = flag.Bool("update", false, "run every test of the table, and write its part of docs/wire.md when all pass")

const (
	tableBegin = "<!-- The table is written by `npm run wire` from e2e/wire. -->\n"
	tableEnd   = "<!-- The table ends. -->\n"
)

// TestPage compares docs/wire.md with the table: it names the same cases and the same tests. With -update it runs all of those tests and writes the page.
func TestPage(t *testing.T) {
	path := filepath.Join(root(), "docs", "wire.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		t.Fatalf("docs/wire.md lacks the lines between which the table stands: %q, %q", tableBegin, tableEnd)
	}
	want := before + tableBegin + render(t) + tableEnd + after
	if *update {
		runAll(t)
		if t.Failed() {
			t.Fatal("docs/wire.md is left as it was")
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(page) {
		t.Error("docs/wire.md is not made from the table: npm run wire")
	}
}

// render writes the table as Markdown. It says "passed" of each test, because it is written only when all have.
func render(t *testing.T) string {
	var b strings.Builder
	for _, s := range table() {
		fmt.Fprintf(&b, "\n### %s\n\n| case | seen elsewhere | here | shown by |\n|---|---|---|---|\n", s.title)
		for i := range s.cases {
			c := &s.cases[i]
			var sources []string
			for issue := range strings.FieldsSeq(c.sources) {
				repository, number, _ := strings.Cut(issue, "#")
				sources = append(sources, fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", issue, repository, number))
			}
			seen := c.elsewhere
			if len(sources) > 0 {
				seen += " " + strings.Join(sources, ", ")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.slug, seen, c.here, strings.Join(c.shownBy(t), "<br>"))
		}
	}
	return b.String() + "\n"
}

// shownBy lists how the case is shown, each way once with the protocols that it is for.
func (c *wireCase) shownBy(t *testing.T) []string {
	var ways []string
	protocols := map[string][]string{}
	for i, p := range c.proofs() {
		way := ""
		switch {
		case p.run != nil:
			way = fmt.Sprintf("passed, [`TestWire/%s`](../%s)", c.slug, whereIs(p.run))
		case p.test != "":
			way = fmt.Sprintf("passed, [`%s`](../%s)", p.test, whereDeclared(t, p.dir, p.test))
		default:
			way = "not applicable. " + p.not
		}
		if protocols[way] == nil {
			ways = append(ways, way)
		}
		protocols[way] = append(protocols[way], string(harness.Protocols[i]))
	}
	for i, way := range ways {
		ways[i] = strings.Join(protocols[way], ", ") + ": " + way
	}
	return ways
}

// runAll runs every test that the table names, and reports each that does not pass.
func runAll(t *testing.T) {
	named := map[string][]string{"e2e/wire": {"TestWire"}}
	for _, s := range table() {
		for _, c := range s.cases {
			for _, p := range c.proofs() {
				if p.test != "" && !slices.Contains(named[p.dir], p.test) {
					named[p.dir] = append(named[p.dir], p.test)
				}
			}
		}
	}
	for dir, tests := range named {
		if strings.HasPrefix(tests[0], "Test") {
			runGo(t, dir, tests)
		} else {
			runBrowser(t, tests)
		}
	}
}

// runGo runs tests of a package, and reads what `go test -json` says of them (go doc test2json).
func runGo(t *testing.T, dir string, tests []string) {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=20m", "-run=^("+strings.Join(tests, "|")+")$", "./"+dir)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	results := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" {
			continue
		}
		switch event.Action {
		case "pass", "fail", "skip":
			results[event.Test] = event.Action
		case "output":
			if strings.Contains(event.Output, "_test.go:") {
				t.Logf("%s: %s", event.Test, strings.TrimSpace(event.Output))
			}
		}
	}
	for _, test := range tests {
		if results[test] != "pass" {
			t.Errorf("%s: %s did not pass, but %q", dir, test, results[test])
		}
	}
	for test, result := range results {
		if result != "pass" && slices.Contains(tests, strings.Split(test, "/")[0]) {
			t.Errorf("%s: %s did not pass, but %q", dir, test, result)
		}
	}
}

// runBrowser runs tests of e2e/browser by their titles.
func runBrowser(t *testing.T, titles []string) {
	for _, title := range titles {
		cmd := exec.Command("npx", "playwright", "test", "--config", "e2e", "--output", t.TempDir(), "--reporter", "line", "--grep", title)
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", title, err, out)
		}
	}
}
