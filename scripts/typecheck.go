//go:build ignore

// Checks that the program's packages and all they import have right types on the platforms named. Compiling takes ten times as long; what a type
// check does not see, a release's build does.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	for _, platform := range os.Args[1:] {
		system, architecture, _ := strings.Cut(platform, "/")
		fmt.Println(platform)
		config := &packages.Config{
			Mode: packages.LoadAllSyntax,
			Env:  append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture),
		}
		found, err := packages.Load(config, ".")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if packages.PrintErrors(found) > 0 {
			os.Exit(1)
		}
	}
}
