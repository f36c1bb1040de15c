package main

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millpond/e2e/harness"
)

// upstream is an origin that knows each exchange, and so what is to come and what to answer.
type upstream struct {
	*harness.Origin
	exchanges sync.Map // path to *exchange
}

func startUpstream() (*upstream, error) {
	origin, err := harness.NewOrigin()
	if err != nil {
		return nil, err
	}
	u := &upstream{Origin: origin}
	origin.HandleFunc("/x/", u.serve)
	return u, nil
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	v, ok := u.exchanges.Load(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	e := v.(*exchange)
	if err := compare(r.Body, e.up, &e.sent); err != nil {
		panic(http.ErrAbortHandler)
	}
	if !e.chunked {
		w.Header().Set("Content-Length", strconv.FormatInt(e.down.Size, 10))
	}
	control := http.NewResponseController(w)
	_ = control.Flush()
	size := int64(64 << 10)
	if e.kind == slow {
		size = 4 << 10
	}
	p := make([]byte, size)
	for off := int64(0); off < e.down.Size; {
		if e.pace > 0 {
			select {
			case <-time.After(e.pace):
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		n, _ := e.down.ReadAt(p, off)
		if _, err := w.Write(p[:n]); err != nil {
			panic(http.ErrAbortHandler)
		}
		off += int64(n)
		if e.pace > 0 {
			_ = control.Flush()
		}
	}
}

var errOther = errors.New("other bytes than were sent")

// compare reads r to its end, and adds to n what came of the body.
func compare(r io.Reader, b harness.Body, n interface{ Add(int64) int64 }) error {
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	off := int64(0)
	for {
		read, err := r.Read(got)
		expected, _ := b.ReadAt(want[:read], off)
		if expected < read || string(got[:read]) != string(want[:read]) {
			return errOther
		}
		off += int64(read)
		n.Add(int64(read))
		if err == io.EOF && off < b.Size {
			return io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
