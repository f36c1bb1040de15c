package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// stallTime is how long a reader may take for one buffer before it is given up: some 550 bytes a second must be read.
const stallTime = 2 * time.Minute

var sendBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// send writes a span of body to w. It holds one buffer, and no lock or transaction, while the reader is slow. A body that cannot be read, and a
// reader that is too slow, end the connection, so that the answer is broken for the client, never short.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, body io.ReaderAt, part span) {
	buffer := sendBuffers.Get().(*[64 << 10]byte)
	defer sendBuffers.Put(buffer)
	out := http.NewResponseController(w)
	for at := part.from; at < part.to; {
		if ctx.Err() != nil { // the share died
			panic(http.ErrAbortHandler)
		}
		b := buffer[:min(int64(len(buffer)), part.to-at)]
		n, err := body.ReadAt(b, at)
		if n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			s.log.Error("break an answer off", "at", at+int64(n), "err", err)
			panic(http.ErrAbortHandler)
		}
		_ = out.SetWriteDeadline(time.Now().Add(s.stall))
		if _, err := w.Write(b); err != nil {
			panic(http.ErrAbortHandler) // the client left, or stalled
		}
		at += int64(n)
	}
	_ = out.SetWriteDeadline(time.Now().Add(s.stall)) // for what net/http still holds
}

// follow sends a body that grows, to its end. A body that ends before it is complete ends the connection.
func (s *Server) follow(ctx context.Context, w http.ResponseWriter, rep *representation) {
	buffer := sendBuffers.Get().(*[64 << 10]byte)
	defer sendBuffers.Put(buffer)
	out := http.NewResponseController(w)
	reader := rep.body.Follow(ctx)
	for {
		n, err := reader.Read(buffer[:])
		if err == io.EOF && rep.whole() {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_ = out.SetWriteDeadline(time.Now().Add(s.stall))
		_, err = w.Write(buffer[:n])
		if err == nil && reader.Offset() == rep.body.Size() {
			err = out.Flush() // the next byte may be long in coming
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
