package storage

import (
	"sync"
	"sync/atomic"
)

const (
	// BufferSize is the capacity of a Buffer, in bytes.
	BufferSize = 64 << 10

	// LargeBufferSize is the capacity of a large Buffer. System calls are a good part of what a large body costs, and these are a quarter as many.
	LargeBufferSize = 256 << 10
)

// Buffer is a pooled block of memory, which travels from the relay to the disk without a copy. It has one owner at a time.
type Buffer struct {
	B     []byte // its length is BufferSize or LargeBufferSize
	freed atomic.Bool
}

// NewBuffer takes a buffer of BufferSize bytes from the pool. What it holds is left over from others.
func NewBuffer() *Buffer { return buffers.take() }

// NewLargeBuffer takes a buffer of LargeBufferSize bytes, for a body that has proved to be large. Where maxLargeBuffers are
// out already, memory is not plentiful, and the buffer is one of BufferSize: use len(b.B).
func NewLargeBuffer() *Buffer {
	if largeOut.Add(1) > maxLargeBuffers {
		largeOut.Add(-1)
		return buffers.take()
	}
	return largeBuffers.take()
}

// Free gives the buffer back. To free it twice would give it two owners and mix two bodies, so that panics.
func (b *Buffer) Free() {
	if b.freed.Swap(true) {
		panic("storage: Buffer freed twice")
	}
	if cap(b.B) == LargeBufferSize { // an owner may have cut its length
		largeOut.Add(-1)
		largeBuffers.give(b)
		return
	}
	buffers.give(b)
}

// maxLargeBuffers bounds the large buffers in use, to 16 MiB.
const maxLargeBuffers = 64

var (
	buffers      = bufferPool{size: BufferSize, keep: 64}
	largeBuffers = bufferPool{size: LargeBufferSize, keep: 16}
	largeOut     atomic.Int64
)

// bufferPool keeps free buffers in two places. A stack of at most keep of them (4 MiB of each size) stays for good: a sync.Pool alone loses
// those not in use at each garbage collection, which come often over a small heap. What a burst has made beyond that
// lies in a sync.Pool, and is collected when the burst is over.
type bufferPool struct {
	size, keep int

	mu    sync.Mutex
	stack []*Buffer

	more sync.Pool
}

func (p *bufferPool) take() *Buffer {
	b := p.pop()
	if b == nil {
		b, _ = p.more.Get().(*Buffer)
	}
	if b == nil {
		return &Buffer{B: make([]byte, p.size)}
	}
	b.freed.Store(false)
	return b
}

func (p *bufferPool) give(b *Buffer) {
	b.B = b.B[:p.size]
	if !p.push(b) {
		p.more.Put(b)
	}
}

func (p *bufferPool) pop() *Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.stack) - 1
	if last < 0 {
		return nil
	}
	b := p.stack[last] // the last one freed: its memory is the likeliest to be in the CPU's cache
	p.stack[last] = nil
	p.stack = p.stack[:last]
	return b
}

func (p *bufferPool) push(b *Buffer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stack) == p.keep {
		return false
	}
	p.stack = append(p.stack, b)
	return true
}
