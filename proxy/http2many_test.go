package proxy

import (
	"bufio"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millpond/storage"
)

// TestHTTP2ManyRequestsOnOneConnection has one connection carry 50,000 requests, of which some are reset, all of them recorded. Between the 10,000th and the last
// memory grows by what the index keeps of a session.
func TestHTTP2ManyRequestsOnOneConnection(t *testing.T) {
	first, n := 10_000, 50_000
	if testing.Short() {
		first, n = 5000, 15_000
	}
	const batch = 100 // as many as servers let be open at once
	// Some 100 bytes for each session in the index, and what pools hold. A leak of 200 bytes for each of 40,000 is beyond that.
	slack := int64(2<<20 + 100*(n-first))
	h := startHarness(t, Config{})
	client, conn, origin, up := http2Ends(t, h)
	go func() {
		for {
			f, err := origin.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamID%16 != 15 {
				origin.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true})
				origin.WriteData(h.StreamID, true, []byte("answer"))
			}
			if d, ok := f.(*http2.DataFrame); ok && d.Length > 0 {
				origin.WriteWindowUpdate(0, d.Length)
			}
		}
	}()
	w := bufio.NewWriter(conn)
	out := http2.NewFramer(w, nil)
	heap := func(sessions int) int64 { // the least of several: the store still lets go of what it wrote
		h.session(uint64(sessions))
		least := holdings().heap
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			least = min(least, holdings().heap)
		}
		return int64(least)
	}
	var before int64
	for from := 0; from < n; from += batch {
		ended := 0
		conn.SetDeadline(time.Now().Add(3 * patience))
		up.SetDeadline(time.Now().Add(3 * patience))
		for i := from; i < from+batch; i++ {
			id := uint32(1 + 2*i)
			out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x83, 0x84, 0x86}, EndHeaders: true})
			if id%16 == 15 {
				out.WriteRSTStream(id, http2.ErrCodeCancel)
				ended++
				continue
			}
			out.WriteData(id, true, []byte("asked"))
		}
		w.Flush()
		for ended < batch {
			f, err := client.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := f.(*http2.DataFrame); ok {
				out.WriteWindowUpdate(0, d.Length)
				if d.StreamEnded() {
					ended++
				}
			}
		}
		if from+batch == first {
			before = heap(first)
		}
	}
	grown := heap(n) - before
	for deadline := time.Now().Add(patience); grown > slack && time.Now().Before(deadline); { // a busy disk takes longer; what leaks stays
		grown = heap(n) - before
	}
	t.Logf("shown: %d requests, %d bytes of memory for each beyond the first %d", n, grown/int64(n-first), first)
	if grown > slack {
		t.Errorf("memory grew by %d bytes over %d requests", grown, n-first)
	}
	states := make(map[storage.State]int)
	h.store.Scan(0, 1<<62, func(r *storage.Row) bool { states[r.State]++; return true })
	if reset := n / 8; states[storage.Done] != n-reset || states[storage.ClientAborted] != reset {
		t.Errorf("sessions by state: %v", states)
	}
}
