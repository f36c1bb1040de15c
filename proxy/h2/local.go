package h2

import (
	"fmt"
	"io"

	"golang.org/x/net/http2/hpack"
)

// Incoming is a side that a hook receives in the place of its receiver. The sender gets credit as it is read; what it was granted before and is
// not read yet is kept in memory up to spoolMemory, and beyond that in a temporary file: nobody else waits for a slow reader.
type Incoming struct {
	s     *Stream
	side  Side
	spool *spool
}

// Read reads the body. It ends with io.EOF where the sender ended it, and otherwise with a *StreamError.
func (in *Incoming) Read(p []byte) (int, error) {
	n, err := in.spool.Read(p)
	in.s.r.repay(in.s, in.side, int64(n))
	return n, err
}

// Trailers returns the fields after the body, once Read returned io.EOF.
func (in *Incoming) Trailers() []hpack.HeaderField { return in.spool.trailersNow() }

// Close drops what was not read, and what will come. It has to be called. Once the response was sent too, a sender that has not
// ended is told to stop.
func (in *Incoming) Close() error {
	in.s.r.repay(nil, in.side, in.spool.drop())
	in.s.r.settle(in.s)
	return nil
}

func (in *Incoming) put(p []byte) bool                   { return in.spool.put(p) }
func (in *Incoming) finish(trailers []hpack.HeaderField) { in.spool.end(io.EOF, trailers) }
func (in *Incoming) unwanted() bool                      { return in.spool.isDropped() }

// fail ends the reading with the stream. What was not read is given up, so that the connection's window does not shrink by it.
func (in *Incoming) fail(c Close) {
	if c.By != Nobody {
		in.spool.end(&StreamError{c}, nil)
	}
}

// StreamError says how a stream, or the whole connection, ended early. It is what reading in the place of an end then comes to.
type StreamError struct{ Close Close }

func (e *StreamError) Error() string { return fmt.Sprintf("ended early: %v", e.Close.Err) }
func (e *StreamError) Unwrap() error { return e.Close.Err }

// Outgoing sends a side in the place of its sender, within the receiver's windows.
type Outgoing struct {
	s    *Stream
	side Side
}

// Head sends a head: a request's, an informational or a final response's. For a request it opens the stream at upstream, in its turn
// (ErrTurn when that has passed).
func (o *Outgoing) Head(fields []hpack.HeaderField, end bool) error {
	if o.side == Request {
		if err := o.s.r.open(o.s, fields, end, nil, -1, true); err != nil {
			return fmt.Errorf("open stream %d at upstream: %w", o.s.ID, err)
		}
		return o.ended(end)
	}
	return o.fields(fields, end)
}

// Trailers sends the fields after the body, and ends the side.
func (o *Outgoing) Trailers(fields []hpack.HeaderField) error { return o.fields(fields, true) }

// Close ends the side.
func (o *Outgoing) Close() error {
	if err := o.write(func(w *writer) { w.data(o.s.ID, nil, true, -1) }); err != nil {
		return err
	}
	return o.ended(true)
}

// Write sends p as DATA, waiting for the receiver's credit where it has to.
func (o *Outgoing) Write(p []byte) (int, error) {
	sent := 0
	for len(p) > 0 {
		n, err := o.credit(len(p))
		if err != nil {
			return sent, err
		}
		if err := o.write(func(w *writer) { w.data(o.s.ID, p[:n], false, -1) }); err != nil {
			o.uncredit(n)
			return sent, err
		}
		sent, p = sent+n, p[n:]
	}
	return sent, nil
}

// credit waits for some, and books it as used.
func (o *Outgoing) credit(want int) (int, error) {
	r, side := o.s.r, &o.s.sides[o.side]
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if o.s.over || r.dead || side.sent || side.gone {
			return 0, errOver
		}
		n := min(int64(want), frameSize, r.peers[o.side.other()].initial+side.window.real)
		if n = r.windows[o.side].spare(n); n > 0 {
			side.window.forward(n)
			r.windows[o.side].forward(n)
			return int(n), nil
		}
		r.credit.Wait()
	}
}

// uncredit gives back the connection's credit for n bytes that were not sent, as the stream was over. Its receiver would never give it.
func (o *Outgoing) uncredit(n int) {
	r := o.s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows[o.side].forward(-int64(n))
	r.credit.Broadcast()
}

func (o *Outgoing) fields(fields []hpack.HeaderField, end bool) error {
	if err := o.write(func(w *writer) { w.headers(o.s.ID, fields, end, nil, -1) }); err != nil {
		return err
	}
	return o.ended(end)
}

func (o *Outgoing) write(fn func(w *writer)) error {
	r, to := o.s.r, o.s.r.peers[o.side.other()]
	to.w.lock()
	r.mu.Lock()
	over := o.s.over || r.dead || o.s.sides[o.side].sent || !o.s.opened && o.side == Request
	r.mu.Unlock()
	if !over {
		fn(to.w)
	}
	err := to.w.unlock(true)
	if over {
		return errOver
	}
	if err != nil {
		return &writeError{to.party, err}
	}
	return nil
}

func (o *Outgoing) ended(end bool) error {
	if !end {
		return nil
	}
	r := o.s.r
	o.s.exchange.Sent(o.side) // before it is booked, as in received
	r.mu.Lock()
	o.s.sides[o.side].sent = true
	r.mu.Unlock()
	r.settle(o.s)
	return nil
}
