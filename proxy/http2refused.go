package proxy

import (
	"fmt"
	"time"

	"golang.org/x/net/http2/hpack"

	"millpond/proxy/h2"
	"millpond/storage"
)

// maxRefused is how many refused requests of one HTTP/2 connection are rows: each costs its sender a few bytes, and may leave 8 KiB.
const maxRefused = 100

// refused are the requests of a connection that the relay itself answered or reset. Those beyond maxRefused are counted, on one row that is open until the connection
// ends. It belongs to the goroutine that reads the client, and then to the one that waited for it.
type refused struct {
	n       int
	last    string // why the last was
	counted *storage.Recording
}

// Refused implements h2.Handler: a request that went nowhere is a row all the same.
func (hc *http2Conn) Refused(id uint32, fields []hpack.HeaderField, c h2.Close) {
	hc.seen = true
	r := &hc.refused
	r.n++
	r.last = c.Err.Error()
	if r.n > maxRefused+1 {
		return
	}
	s := hc.session(time.Now())
	h := newHead2(fromHPACK(fields))
	hc.describe(&s, h)
	s.Sides[storage.Request].Head = shortened(h.raw)
	begun := hc.facts.begun(id)
	s.HTTP2 = hc.facts.ended(&begun, c)
	if r.n <= maxRefused {
		hc.p.record(s, storage.Failed, r.last)
		return
	}
	s.Error = fmt.Sprintf("%d requests of this connection were refused; from this one on they are only counted", maxRefused)
	r.counted = hc.p.cfg.Store.Begin(s)
}

// end ends the row that counts.
func (r *refused) end() {
	if r.counted != nil {
		r.counted.End(storage.Failed, fmt.Sprintf("%d requests of this connection were refused, of which the last %d are counted here alone; the last one: %s", r.n, r.n-maxRefused, r.last))
	}
}
