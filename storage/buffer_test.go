package storage

import (
	"runtime"
	"sync"
	"testing"
)

func TestBufferSizes(t *testing.T) {
	small, large := NewBuffer(), NewLargeBuffer()
	if len(small.B) != BufferSize || len(large.B) != LargeBufferSize {
		t.Errorf("lengths are %d, %d", len(small.B), len(large.B))
	}
	small.Free()
	large.Free()
}

func TestBufferFreedTwicePanics(t *testing.T) {
	b := NewBuffer()
	b.Free()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Free()
}

func TestLargeBuffersAreBounded(t *testing.T) {
	var taken []*Buffer
	for range maxLargeBuffers {
		taken = append(taken, NewLargeBuffer())
	}
	if got := len(taken[maxLargeBuffers-1].B); got != LargeBufferSize {
		t.Errorf("the last one within the limit has %d bytes", got)
	}
	beyond := NewLargeBuffer()
	if got := len(beyond.B); got != BufferSize {
		t.Errorf("one beyond the limit has %d bytes, want %d", got, BufferSize)
	}
	beyond.Free()
	taken[0].Free()
	taken[0] = NewLargeBuffer()
	if got := len(taken[0].B); got != LargeBufferSize {
		t.Errorf("after one came back the next has %d bytes", got)
	}
	for _, b := range taken {
		b.Free()
	}
}

// TestBufferMemoryFallsAfterBurst holds 64 MiB, frees them, and looks whether the heap is small again.
func TestBufferMemoryFallsAfterBurst(t *testing.T) {
	inUse := func() uint64 {
		runtime.GC() // what a sync.Pool holds lives through one collection
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	var burst []*Buffer
	for range 64 << 20 / BufferSize {
		burst = append(burst, NewBuffer())
	}
	for _, b := range burst {
		b.Free()
	}
	burst = nil
	kept := uint64(buffers.keep * buffers.size)
	if after := inUse(); after > before+kept+1<<20 {
		t.Errorf("the heap went from %d to %d bytes, want at most %d more", before, after, kept)
	}
}

// TestBufferSurvivesCollection shows why the stack is there: a steady user allocates nothing, however often the heap is collected.
func TestBufferSurvivesCollection(t *testing.T) {
	a, b := NewBuffer(), NewBuffer()
	a.Free()
	b.Free()
	runtime.GC()
	runtime.GC()
	runtime.GC()
	if c := NewBuffer(); c != a && c != b {
		t.Error("the pool lost its buffers")
	} else {
		c.Free()
	}
}

func TestBufferHasOneOwner(t *testing.T) {
	var work sync.WaitGroup
	for owner := range byte(8) {
		work.Go(func() {
			for range 2000 {
				b := NewBuffer()
				b.B[0], b.B[BufferSize-1] = owner, owner
				runtime.Gosched()
				if b.B[0] != owner || b.B[BufferSize-1] != owner {
					t.Error("two owners")
				}
				b.Free()
			}
		})
	}
	work.Wait()
}

func BenchmarkBuffer(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			NewBuffer().Free()
		}
	})
}
