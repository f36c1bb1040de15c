// Millpond is a capture proxy with a web dashboard.
package main

import (
	"os"

	"millpond/server"
)

func main() {
	doc, err := server.OpenAPI()
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(doc)
}
