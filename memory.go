package main

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// The resident size that is promised: 64 MiB and 256 KiB for each open client connection.
	memoryBase      = 64 << 20
	memoryForClient = 256 << 10

	// memoryOutside is the part of it that the Go heap's limit does not count: the program's own pages, and the index's as far as they are read.
	memoryOutside = 28 << 20
)

// memoryLimit is the soft limit of Go's memory (debug.SetMemoryLimit) for a number of client connections.
func memoryLimit(clients int) int64 {
	return memoryBase - memoryOutside + int64(clients)*memoryForClient
}

// keepMemory has the garbage collector keep to the promised size while clients come and go, until ctx is done.
func keepMemory(ctx context.Context, clients func() int) {
	// A change stops the program for some microseconds, so it is made seldom: in steps, and not at each connection.
	const step = 16
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for last := -1; ; {
		if n := (clients() + step - 1) / step * step; n != last {
			debug.SetMemoryLimit(memoryLimit(n))
			last = n
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
