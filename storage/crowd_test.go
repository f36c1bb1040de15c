package storage_test

import (
	"bytes"
	"testing"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// TestHeadsThatWaitAreBounded: sessions with large heads hold relays back before a disk that does not sync, long before they are many.
func TestHeadsThatWaitAreBounded(t *testing.T) {
	s, disk, _ := openFaulty(t, storage.Wait)
	release := disk.Stall(storagetest.Sync)
	defer release()
	head := bytes.Repeat([]byte("x"), 250_000)
	open := s.Begin(storage.Session{Method: "GET"})
	n := 0
	for ; open.Body(storage.Response).Full() == nil; n++ {
		if n > 200 {
			t.Fatalf("%d sessions of %d bytes wait, and nothing is held back", n, len(head))
		}
		r := s.Begin(storage.Session{Method: "GET", Sides: [2]storage.Message{{Head: head}}})
		r.End(storage.Done, "")
	}
	if n < 20 {
		t.Errorf("relays are held back by %d sessions", n)
	}
	release()
	eventually(t, "relays go on", func() bool { return open.Body(storage.Response).Full() == nil })
	open.End(storage.Done, "")
	eventually(t, "they are durable", durable(s, open.ID()+uint64(n)))
}
