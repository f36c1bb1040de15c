package wire

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

// wireCase is something that went wrong in a program of this kind, and what is right here.
type wireCase struct {
	slug      string
	sources   string // public issues, owner/repository#number, separated by spaces
	elsewhere string // what was seen there
	here      string // what is right

	http, https, http2 proof // over HTTP/1.1 in the clear, HTTP/1.1 over TLS, and HTTP/2 over TLS
}

// proof shows that a case is right over one protocol. Exactly one of its fields is set.
type proof struct {
	run  func(*run) // a test of this package
	dir  string     // of an existing test elsewhere, from the repository's root
	test string     // its name
	not  string     // why the case does not apply
}

func by(fn func(*run)) proof             { return proof{run: fn} }
func shown(dir, test string) proof       { return proof{dir: dir, test: test} }
func not(why string) proof               { return proof{not: why} }
func (c *wireCase) proofs() [3]proof     { return [...]proof{c.http, c.https, c.http2} }
func (c wireCase) each(p proof) wireCase { c.http, c.https, c.http2 = p, p, p; return c }

// section is a part of the table.
type section struct {
	title string
	cases []wireCase
}

// table is all of it, in the order of docs/wire.md.
func table() []section {
	return []section{
		{"Large bodies, memory, speed", largeCases},
		{"Streams and server-sent events", streamCases},
		{"WebSocket", webSocketCases},
		{"HTTP framing", framingCases},
		{"Fields", fieldCases},
		{"URLs and hosts", urlCases},
		{"TLS, CONNECT, certificates", tlsCases},
		{"Connections, limits, loops", engineCases},
	}
}

// TestWire runs the cases that this package shows itself, as TestWire/slug/protocol, against one program.
func TestWire(t *testing.T) {
	w := startWorld(t)
	for _, s := range table() {
		for i := range s.cases {
			c := &s.cases[i]
			t.Run(c.slug, func(t *testing.T) {
				for i, p := range c.proofs() {
					if p.run == nil {
						continue
					}
					protocol := harness.Protocols[i]
					t.Run(string(protocol), func(t *testing.T) {
						p.run(&run{T: t, world: w, protocol: protocol, path: "/" + c.slug + "/" + string(protocol)})
					})
				}
			})
		}
	}
}

// The table names each case once, says of each protocol how it is shown, and points to no test that does not exist.
func TestTable(t *testing.T) {
	source := regexp.MustCompile(`^[\w.-]+/[\w.-]+#\d+$`)
	slugs := map[string]bool{}
	for _, s := range table() {
		for _, c := range s.cases {
			if slugs[c.slug] || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(c.slug) {
				t.Errorf("%q names a case twice, or is no slug", c.slug)
			}
			slugs[c.slug] = true
			if c.elsewhere == "" || c.here == "" {
				t.Errorf("%s lacks what was seen, or what is right", c.slug)
			}
			for issue := range strings.FieldsSeq(c.sources) {
				if !source.MatchString(issue) {
					t.Errorf("%s: %q is not owner/repository#number", c.slug, issue)
				}
			}
			for i, p := range c.proofs() {
				n := 0
				for _, is := range []bool{p.run != nil, p.test != "", p.not != ""} {
					if is {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s over %s is shown in %d ways; want one", c.slug, harness.Protocols[i], n)
				}
				if p.test != "" && whereDeclared(t, p.dir, p.test) == "" {
					t.Errorf("%s: no file of %s has %s", c.slug, p.dir, p.test)
				}
			}
		}
	}
	for _, s := range furtherSections {
		for _, f := range s.rows {
			if f.what == "" || len(f.shown) == 0 {
				t.Errorf("%q is shown by nothing", f.what)
			}
			for _, p := range f.shown {
				name, _, _ := strings.Cut(p.test, "/")
				if whereDeclared(t, p.dir, name) == "" {
					t.Errorf("%s: no file of %s has %s", f.what, p.dir, p.test)
				}
				if slug, inTable := strings.CutPrefix(p.test, "TestWire/"); inTable && !slugs[slug] {
					t.Errorf("%s: there is no case %s", f.what, slug)
				}
			}
		}
	}
}

// whereDeclared returns the file of a directory that declares the test, from the repository's root, or nothing: Go's by its function, Playwright's by
// its title.
func whereDeclared(t *testing.T, dir, test string) (file string) {
	t.Helper()
	for _, pattern := range []string{"*_test.go", "*.spec.ts"} {
		paths, err := filepath.Glob(filepath.Join(root(), dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if declares(t, path, test) {
				return dir + "/" + filepath.Base(path)
			}
		}
	}
	return ""
}

func declares(t *testing.T, path, test string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".spec.ts") {
		return bytes.Contains(text, []byte("test(\""+test+"\"")) || bytes.Contains(text, []byte("test(`"+test+"`"))
	}
	if !bytes.Contains(text, []byte("func "+test+"(")) || !strings.HasPrefix(test, "Test") {
		return false // parsing each file for each name takes long
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == test {
			return true
		}
	}
	return false
}

// root is the repository's. Tests run in their package's directory.
func root() string { return filepath.Join("..", "..") }

// whereIs returns the file of a test of this package, from the repository's root.
func whereIs(fn func(*run)) (file string) {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	path, _ := f.FileLine(f.Entry())
	return "e2e/wire/" + filepath.Base(path)
}
