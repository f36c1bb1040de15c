package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millpond/e2e/harness"
)

var (
	update = flag.Bool("update", false, "run every test of the table, and write its part of docs/wire.md when all pass")
	noRun  = flag.Bool("no-run", false, "write the table without a run: it says of each test that it was not run yet")
)

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
	if *update || *noRun {
		commit := describe() // before the tests: what they run is this, whatever is written meanwhile
		var results map[string]*result
		if *update {
			results = runAll(t)
		}
		table := render(t, results, commit)
		if t.Failed() {
			t.Fatal("docs/wire.md is left as it was")
		}
		if err := os.WriteFile(path, []byte(before+tableBegin+table+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if withoutResults(before+tableBegin+render(t, nil, "")+tableEnd+after) != withoutResults(string(page)) {
		t.Error("docs/wire.md is not made from the table: npm run wire")
	}
}

var (
	whichRun   = regexp.MustCompile(`(?m)^Results are of .*$`)
	withCounts = regexp.MustCompile("(passed|" + notYet + "), [^|\n[]*\\[`")
)

// notYet is what the page says of a test where there was no run.
const notYet = "not run yet"

// withoutResults takes from the page what only a run can tell.
func withoutResults(page string) string {
	return withCounts.ReplaceAllString(whichRun.ReplaceAllString(page, "Results are of a run."), "passed, [`")
}

// render writes the table as Markdown, with what the run said of each test. Nil: there was no run.
func render(t *testing.T, results map[string]*result, commit string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", aboutRun(results, commit))
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
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.slug, seen, c.here, strings.Join(c.shownBy(t, results), "<br>"))
		}
	}
	for _, s := range furtherSections {
		fmt.Fprintf(&b, "\n### %s\n\n| %s | shown by |\n|---|---|\n", s.title, s.what)
		for _, f := range s.rows {
			var ways []string
			for _, p := range f.shown {
				name, _, _ := strings.Cut(p.test, "/")
				ways = append(ways, fmt.Sprintf("%s, [`%s`](../%s)", said(t, results, p.dir, p.test), p.test, whereDeclared(t, p.dir, name)))
			}
			fmt.Fprintf(&b, "| %s | %s |\n", f.what, strings.Join(ways, "<br>"))
		}
	}
	return b.String() + "\n"
}

// aboutRun tells which run the results are of.
func aboutRun(results map[string]*result, commit string) string {
	if results == nil {
		return "Results are of no run: `npm run wire` makes one."
	}
	return fmt.Sprintf("Results are of one run of all %d tests, with subtests %d, on %s at commit %s, %s/%s. Large bodies: %s.",
		len(named()), passes(results), time.Now().UTC().Format("2 January 2006"), commit, runtime.GOOS, runtime.GOARCH, harness.SizeText(large()))
}

// describe names the commit that is checked out.
func describe() string {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(commit))
}

// shownBy lists how the case is shown, each way once with the protocols that it is for.
func (c *wireCase) shownBy(t *testing.T, results map[string]*result) []string {
	var ways []string
	protocols := map[string][]string{}
	for i, p := range c.proofs() {
		way := ""
		switch {
		case p.run != nil:
			name := "TestWire/" + c.slug
			way = fmt.Sprintf("%s, [`%s`](../%s)", verdict(t, results, "e2e/wire", name+"/"+string(harness.Protocols[i])), name, whereIs(p.run))
		case p.test != "":
			way = fmt.Sprintf("%s, [`%s`](../%s)", verdict(t, results, p.dir, p.test), p.test, whereDeclared(t, p.dir, p.test))
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

// result is what a run said of a test.
type result struct {
	action         string   // pass, fail or skip
	leaves, passed int      // its subtests that have none of their own
	figures        []string // what it logged as "shown: …"
}

// verdict is what the run said of a test, or a failure of this one where that is not "passed".
func verdict(t *testing.T, results map[string]*result, dir, test string) string {
	if results == nil {
		return notYet
	}
	r := results[dir+" "+test]
	if r == nil {
		t.Errorf("%s: %s did not run", dir, test)
		return "not run"
	}
	if r.action != "pass" || r.leaves != r.passed {
		t.Errorf("%s: %s did not pass, but %q, with %d of %d", dir, test, r.action, r.passed, r.leaves)
		return r.action
	}
	return "passed"
}

// said is the verdict with figures: how many subtests there were, and what the test told of itself.
func said(t *testing.T, results map[string]*result, dir, test string) string {
	text := verdict(t, results, dir, test)
	if r := results[dir+" "+test]; r != nil {
		if r.leaves > 0 {
			text += fmt.Sprintf(", %d of %d", r.passed, r.leaves)
		}
		for _, figure := range r.figures {
			text += ", " + figure
		}
	}
	return text
}

// passes counts the tests and subtests that the run says passed, those with subtests of their own left out.
func passes(results map[string]*result) (n int) {
	for _, r := range results {
		if r.leaves == 0 && r.action == "pass" {
			n++
		}
	}
	return n
}

// named are all tests of the page: directory and name.
func named() map[[2]string]bool {
	all := map[[2]string]bool{{"e2e/wire", "TestWire"}: true}
	add := func(p proof) {
		if name, _, _ := strings.Cut(p.test, "/"); name != "" {
			all[[2]string{p.dir, name}] = true
		}
	}
	for _, s := range table() {
		for _, c := range s.cases {
			for _, p := range c.proofs() {
				add(p)
			}
		}
	}
	for _, s := range furtherSections {
		for _, f := range s.rows {
			for _, p := range f.shown {
				add(p)
			}
		}
	}
	return all
}

// runAll runs every test that the page names, and returns what was said of each and of its subtests, by directory, a space and name.
func runAll(t *testing.T) map[string]*result {
	byDir := map[string][]string{}
	for key := range named() {
		byDir[key[0]] = append(byDir[key[0]], key[1])
	}
	// The whole-program tests take as long as all others, and wait a lot: they run beside them, as in the gate.
	results, beside := map[string]*result{}, map[string]*result{}
	var whole sync.WaitGroup
	whole.Go(func() { runGo(t, "e2e", byDir["e2e"], beside) })
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		switch tests := byDir[dir]; dir {
		case "e2e":
		case "e2e/browser":
			runBrowser(t, tests, results)
		default:
			runGo(t, dir, tests, results)
		}
	}
	whole.Wait()
	maps.Copy(results, beside)
	return results
}

// runGo runs tests of a package, and reads what `go test -json` says of them (go doc test2json).
func runGo(t *testing.T, dir string, tests []string, results map[string]*result) {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=20m", "-run=^("+strings.Join(tests, "|")+")$", "./"+dir)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	found := map[string]*result{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" {
			continue
		}
		if found[event.Test] == nil {
			found[event.Test] = &result{}
		}
		r := found[event.Test]
		switch event.Action {
		case "pass", "fail", "skip":
			r.action = event.Action
		case "output":
			if _, figure, ok := strings.Cut(event.Output, ": shown: "); ok {
				r.figures = append(r.figures, strings.TrimSpace(figure))
			} else if strings.Contains(event.Output, "_test.go:") {
				t.Logf("%s: %s", event.Test, strings.TrimSpace(event.Output))
			}
		}
	}
	// above is the test whose subtest this is, or nothing. Names of subtests may have slashes of their own.
	above := func(test string) string {
		for i := strings.LastIndexByte(test, '/'); i >= 0; i = strings.LastIndexByte(test[:i], '/') {
			if found[test[:i]] != nil {
				return test[:i]
			}
		}
		return ""
	}
	parents := map[string]bool{}
	for test := range found {
		parents[above(test)] = true
	}
	for test, r := range found {
		results[dir+" "+test] = r
		if parents[test] {
			continue
		}
		for up := above(test); up != ""; up = above(up) {
			found[up].leaves++
			if r.action == "pass" {
				found[up].passed++
			}
		}
	}
}

// runBrowser runs tests of e2e/browser by their titles, in which ${…} stands for anything, and reads what Playwright's JSON reporter says of them.
func runBrowser(t *testing.T, titles []string, results map[string]*result) {
	hole := regexp.MustCompile(`\\\$\\\{\w+\\\}`)
	patterns := make([]string, len(titles))
	for i, title := range titles {
		patterns[i] = hole.ReplaceAllString(regexp.QuoteMeta(title), ".+")
	}
	cmd := exec.Command("npx", "playwright", "test", "--config", "e2e", "--output", t.TempDir(), "--reporter", "json", "--grep", strings.Join(patterns, "|"))
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("browser: %v\n%s", err, out)
	}
	type suite struct {
		Suites []suite
		Specs  []struct {
			Title string
			Tests []struct{ Status string }
		}
	}
	var report suite
	if err := json.Unmarshal(out, &report); err != nil {
		t.Errorf("browser: %v", err)
	}
	var read func(suite)
	read = func(s suite) {
		for _, spec := range s.Specs {
			for i, title := range titles {
				if !regexp.MustCompile("^" + patterns[i] + "$").MatchString(spec.Title) {
					continue
				}
				r := results["e2e/browser "+title]
				if r == nil {
					r = &result{action: "pass"}
					results["e2e/browser "+title] = r
				}
				r.leaves++
				if len(spec.Tests) == 1 && spec.Tests[0].Status == "expected" {
					r.passed++
				} else {
					r.action = "fail"
				}
			}
		}
		for _, inner := range s.Suites {
			read(inner)
		}
	}
	read(report)
}
