package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Imports go one way: main -> proxy, server -> settings -> storage, content -> migrations. Each rule says what a package must not come to depend on, directly or through
// others, and why.
func TestImportsGoOneWay(t *testing.T) {
	for _, rule := range []struct {
		of   string // the package, and those below it
		not  []string
		lest string
	}{
		{"millpond/proxy", []string{"millpond/server", "millpond/web"}, "the relay must not come to depend on being watched: a dashboard that fails would take the traffic with it"},
		{"millpond/server", []string{"millpond/proxy", "github.com/google/martian/v3"}, "the dashboard shows what storage holds, also of sessions that no relay of this process saw"},
		{"millpond/storage", []string{"millpond/proxy", "millpond/server", "millpond/content", "millpond/web", "net/http"}, "what is kept must not depend on how it was captured or how it is shown"},
		{"millpond/settings", []string{"millpond/proxy", "millpond/server", "millpond/web"}, "what is set must not depend on who sets it or who keeps to it"},
		{"millpond/content", []string{"millpond/storage", "millpond/proxy", "millpond/server", "millpond/web"}, "content is made of pure functions over readers, so that anything can be read with them"},
		{"millpond/migrations", []string{"millpond/storage", "millpond/content", "millpond/proxy", "millpond/server"}, "an old format is read as it was written, not as today's code would write it"},
		{"millpond/web", []string{"millpond/storage", "millpond/proxy", "millpond/server", "net/http"}, "the app's files are only files; how they are served is the server's"},
	} {
		packages := listed(t, rule.of+"/...")
		if len(packages) == 0 {
			t.Errorf("the rule for %s is about no package", rule.of)
		}
		for _, pkg := range packages {
			deps := listed(t, "-deps", pkg)
			for _, not := range rule.not {
				if slices.Contains(deps, not) {
					t.Errorf("%s depends on %s, but %s", pkg, not, rule.lest)
				}
			}
		}
	}
}

// listed returns the packages that `go list` prints for the arguments; none where a pattern matches nothing.
func listed(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-f", "{{.ImportPath}}"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Fields(string(out))
}
