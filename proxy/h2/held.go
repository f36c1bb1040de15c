package h2

import (
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxHeld bounds the field lists that the open streams of one connection hold when another is to be opened, in bytes as RFC 9113, section 6.5.2,
// counts them; of what responses and trailers add the other streams may hold twice as much, so that requests that were let in can be answered. A field of 4 KiB takes one byte on the wire once it is in the compression table: within unfoldBurst, a
// MB sent is over a hundred. 8 MiB are 8 KiB for each of a thousand streams, more than servers allow.
const maxHeld = 8 << 20

// maxCrowded is how many requests of a connection are refused for maxHeld before it is ended: each one is a row, and costs its sender some 100 bytes.
const maxCrowded = 100

// crowded reports whether the fields that other streams hold leave no room for s to add some; nil stands for a new stream. relay.mu is held.
func (r *relay) crowded(s *Stream) bool {
	if s == nil {
		return r.held > maxHeld
	}
	return r.held-s.held > 2*maxHeld
}

// keep books a list of n bytes as held by s until it is over. What is recorded of a stream is a request's head, a response's with all 1xx before it, and
// the trailers of both, so that more lists than that take the place of others. relay.mu is held.
func (r *relay) keep(s *Stream, n int) {
	n = min(n, 5*r.cfg.MaxList-s.held)
	s.held += n
	r.held += n
}

// refuseCrowded refuses a request for which maxHeld leaves no room, and ends the connection of a client that goes on.
func (r *relay) refuseCrowded(p *peer, id uint32, h *Head) error {
	why := fmt.Sprintf("the fields of the open streams are beyond %d bytes", maxHeld)
	if p.crowded++; p.crowded > maxCrowded {
		return &protocolError{http2.ErrCodeEnhanceYourCalm, fmt.Sprintf("%d requests more while %s", maxCrowded, why)}
	}
	return r.refuse(p, id, h, why, nil)
}

// beginning returns the first fields of a list, up to n bytes of names and values; the last is cut short.
func beginning(fields []hpack.HeaderField, n int) []hpack.HeaderField {
	for i := range fields {
		f := &fields[i]
		if len(f.Name)+len(f.Value) < n {
			n -= len(f.Name) + len(f.Value)
			continue
		}
		short := append(fields[:i:i], *f)
		last := &short[i]
		last.Name = last.Name[:min(len(last.Name), n)]
		last.Value = last.Value[:min(len(last.Value), n-len(last.Name))]
		return short
	}
	return fields
}
