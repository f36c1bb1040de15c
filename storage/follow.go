package storage

import (
	"context"
	"errors"
	"io"
)

// Follower reads a body from its start to its end, and waits where it still grows. It returns io.EOF at the end also of a body that is not
// complete, and the context's error where that is done once all there is was read.
type Follower struct {
	ctx  context.Context
	body *BodyReader
	at   int64
}

// Follow returns a reader of the whole body. It is for one goroutine.
func (b *BodyReader) Follow(ctx context.Context) *Follower { return &Follower{ctx: ctx, body: b} }

// Offset returns how much was read.
func (f *Follower) Offset() int64 { return f.at }

// Size returns the body's length where nothing will be added to it, and 0 else: content.Decode judges by it what a body may become.
func (f *Follower) Size() int64 {
	if !f.body.Final() {
		return 0
	}
	return f.body.Size()
}

// Read implements io.Reader.
func (f *Follower) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		final, grown := f.body.Final(), f.body.Grown() // before Size, so that no growth is missed
		if left := f.body.Size() - f.at; left > 0 {
			n, err := f.body.ReadAt(p[:min(int64(len(p)), left)], f.at)
			f.at += int64(n)
			if n > 0 && errors.Is(err, io.EOF) {
				err = nil
			} else if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // Size promised more
			}
			return n, err
		}
		if final {
			return 0, io.EOF
		}
		select {
		case <-grown:
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		}
	}
}
