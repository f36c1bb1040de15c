package storage

import (
	"context"
	"io"
	"sync/atomic"
)

// BodyWriter takes one side's bytes in order, from one goroutine.
type BodyWriter struct {
	rec    *Recording
	side   Side
	reader atomic.Pointer[io.WriteCloser] // nil: nobody reads along

	announced bool // Passing gave reader the bytes that come next
}

// Give hands over the first n bytes of b, already forwarded, without a copy; b is the store's from here on. It never blocks.
func (w *BodyWriter) Give(b *Buffer, n int) {
	w.readAlong(b.B[:n])
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.take(n, cap(b.B)) {
		b.Free()
		return
	}
	w.enqueue(piece{buf: b, n: n})
}

// Write copies p, already forwarded; small writes are gathered. It never blocks and always returns len(p), nil.
func (w *BodyWriter) Write(p []byte) (int, error) {
	w.readAlong(p)
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	for rest := p; len(rest) > 0; {
		if n := w.gather(rest); n > 0 {
			rest = rest[n:]
			continue
		}
		n := min(len(rest), BufferSize)
		if !w.take(n, BufferSize) {
			rest = rest[n:]
			continue
		}
		b := NewBuffer()
		copy(b.B, rest[:n])
		w.enqueue(piece{buf: b, n: n, open: true})
		rest = rest[n:]
	}
	return len(p), nil
}

// gather adds to the last buffer, where Write made it and no worker has it yet. It returns how many bytes fitted.
func (w *BodyWriter) gather(p []byte) int {
	r := w.rec
	b := &r.bodies[w.side]
	last := len(b.queue) - 1
	if last < b.busy || !b.queue[last].open || b.final(r.ended) {
		return 0
	}
	q := &b.queue[last]
	n := copy(q.buf.B[q.n:], p)
	q.n += n
	b.passed += uint64(n)
	b.kept += uint64(n)
	b.wake()
	r.note()
	return n
}

// take counts n bytes as forwarded, and reports whether they are to be kept, in memory of the given size. r.mu is held.
func (w *BodyWriter) take(n, memory int) bool {
	r := w.rec
	b := &r.bodies[w.side]
	if r.ended || b.complete {
		return false
	}
	b.passed += uint64(n)
	r.note()
	if n == 0 || b.missing != "" {
		return false
	}
	if !r.share.add(memory) {
		r.cut(w.side, r.share.cutReason())
		return false
	}
	return true
}

// cut ends the capture of a body. r.mu is held.
func (r *Recording) cut(side Side, why string) {
	r.bodies[side].cut(why)
	r.session.SetFlag(FlagCut)
	r.unsaved = true
	r.note()
}

func (w *BodyWriter) enqueue(p piece) {
	r := w.rec
	b := &r.bodies[w.side]
	b.queue = append(b.queue, p)
	b.kept += uint64(p.n)
	b.wake()
	r.schedule()
}

// Full is nil while the recording holds no more memory than its share. Else it is a channel closed when it again does not, or when the capture was cut:
// the relay should take no more from the sender until then.
// It is not nil either while very many ended sessions wait for the disk, unless that makes no progress.
func (w *BodyWriter) Full() <-chan struct{} {
	if full := w.rec.share.full(); full != nil {
		return full
	}
	return w.rec.store.crowded()
}

// Wait blocks while Full, or until ctx is done.
func (w *BodyWriter) Wait(ctx context.Context) {
	for {
		full := w.Full()
		if full == nil {
			return
		}
		select {
		case <-full:
		case <-ctx.Done():
			return
		}
	}
}

// Complete says that the sender finished the body.
func (w *BodyWriter) Complete() {
	r := w.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.bodies[w.side]
	if r.ended || b.complete {
		return
	}
	b.complete = true
	r.unsaved = true
	b.wake()
	if b.kept > 0 {
		r.schedule()
	}
	r.note()
}
