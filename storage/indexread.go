package storage

import (
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// letAfter is after how many bytes of rows the pages of the index that were read are let go of.
	letAfter = 4 << 20

	// prereadLimit is how much of the index is read ahead of need at the start, in bytes: some four million sessions.
	prereadLimit = 1 << 30
)

// wasRead counts bytes of rows that a transaction read, and lets go of the index's pages after many: else all that a filter reads of the index would count as this
// process's resident size. They stay in the system's page cache, so reading them again costs little.
func (ix *index) wasRead(tx *bbolt.Tx, bytes int) {
	if n := ix.read.Add(uint64(bytes)); n%letAfter < uint64(bytes) && tx.Size() > checkAlways {
		letPages(tx)
	}
}

// lettingPages lets go of the index's pages again and again, until what it returns is called: for who reads all of a large index in one transaction.
func lettingPages(tx *bbolt.Tx) (stop func()) {
	if tx.Size() <= checkAlways {
		return func() {}
	}
	ended := make(chan struct{})
	var letting sync.WaitGroup
	letting.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				letPages(tx)
			case <-ended:
				tick.Stop()
				letPages(tx)
				return
			}
		}
	})
	return func() {
		close(ended)
		letting.Wait() // the map may go with the transaction
	}
}

// preread reads the file once from its beginning to its end, so that the first filter finds it in the page cache: the memory map is read in single pages, which a
// cold disk gives many times more slowly. It ends early with stop.
func (ix *index) preread(stop <-chan struct{}) {
	f, err := os.Open(ix.path)
	if err != nil {
		return // it will be read all the same, page by page
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for at := int64(0); at < prereadLimit; at += int64(len(buf)) {
		select {
		case <-stop:
			return
		default:
		}
		if n, err := f.ReadAt(buf, at); n == 0 || err != nil {
			return
		}
	}
}
