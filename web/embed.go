// Package web holds the browser app, as `npm run build` left it in dist.
package web

import (
	"embed"
	"io/fs"
)

// dist is committed with nothing but .keep in it, so that the Go program builds without Node.
//
//go:embed all:dist
var dist embed.FS

//go:embed missing
var missing embed.FS

// Built reports whether the app was in dist when the program was compiled.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html")
	return err == nil
}

// Files returns the app:
//
//	index.html      the dashboard, served at /
//	s/index.html    the page of one share, served at /s/{id}; it refers to ../assets/
//	assets/         scripts, styles and icons; each name holds a hash of its content, so they never change
//
// Every reference in them is relative, so the app works below any path. In a program compiled without the app
// the two pages say how to build it, and assets/ is empty.
func Files() fs.FS {
	from, root := dist, "dist"
	if !Built() {
		from, root = missing, "missing"
	}
	files, err := fs.Sub(from, root)
	if err != nil {
		panic(err) // only for an invalid path, and both are constants
	}
	return files
}
