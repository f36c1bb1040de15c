package server

import (
	"bytes"
	"os"
	"testing"
)

// The browser app's types are generated from the committed document: it must be what the Go types give.
func TestOpenAPIDocumentIsCurrent(t *testing.T) {
	want, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("web/openapi.json is not current: run `go run . openapi > web/openapi.json`")
	}
}
