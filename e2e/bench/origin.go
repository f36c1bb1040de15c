package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"millpond/e2e/harness"
)

// smallSize is the size of a small response's body, in bytes.
const smallSize = 10_000

// small holds what all small bodies have in common. Each begins with the number of its request, so that none is like another:
// a proxy that keeps equal bodies once gains nothing here.
var small = func() []byte {
	p := make([]byte, smallSize)
	_, _ = harness.NewBody(1, smallSize).ReadAt(p, 0)
	return p
}()

// stampSize is the length of the number in a small body.
const stampSize = 8

// smallDigest is the digest of a small body with number 0.
var smallDigest = func() string {
	p := bytes.Clone(small)
	clear(p[:stampSize])
	digest := sha256.Sum256(p)
	return hex.EncodeToString(digest[:])
}()

// smallPath is where the origin gives the small body with the number.
func smallPath(n uint64) string { return "/small/" + strconv.FormatUint(n, 10) }

// checkSmall reports whether p is the small body with the number. It hashes p, as a client that wants to be sure would, and changes it.
func checkSmall(p []byte, n uint64) error {
	if len(p) != smallSize {
		return fmt.Errorf("small body %d has %d bytes", n, len(p))
	}
	got := binary.BigEndian.Uint64(p)
	clear(p[:stampSize])
	if digest := sha256.Sum256(p); got != n || hex.EncodeToString(digest[:]) != smallDigest {
		return fmt.Errorf("small body %d has another content", n)
	}
	return nil
}

// runOrigin is the origin: net/http, as a plain Go server would be.
func runOrigin(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("origin", flag.ExitOnError)
	dir := flags.String("dir", "", "where to put the certificate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	origin, err := harness.NewOrigin()
	if err != nil {
		return err
	}
	defer origin.Close()
	origin.HandleFunc("GET /small/", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, "/small/"), 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(smallSize))
		var stamp [stampSize]byte
		binary.BigEndian.PutUint64(stamp[:], n)
		_, _ = w.Write(stamp[:])
		_, _ = w.Write(small[stampSize:])
	})
	ca, err := origin.Authority.WriteFile(*dir)
	if err != nil {
		return err
	}
	for _, p := range harness.Protocols {
		fmt.Fprintln(out, p, origin.Addr(p))
	}
	fmt.Fprintln(out, "ca", ca)
	<-ctx.Done()
	return nil
}
