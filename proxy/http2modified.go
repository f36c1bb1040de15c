package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/proxy/h2"
	"millpond/storage"
)

// turnTime is how long a modifier may hold up the other streams of its connection: streams are opened in the order of their ids. One that takes longer, or
// that reads the body, goes on by itself.
const turnTime = 100 * time.Millisecond

// offer runs modifiers and then act, in turn if they are quick. It is called from the goroutine that reads the side's
// sender, which must not wait for what it is to read itself. It releases the exchange when all is done.
func (e *http2Stream) offer(body *heldBody, run func() verdict, act func(v verdict, inTurn bool)) {
	body.wanted, body.taken = make(chan struct{}), make(chan struct{})

	var mu sync.Mutex
	detached := false
	result := make(chan verdict, 1)
	e.hc.work.Go(func() {
		v := run()
		mu.Lock()
		late := detached
		if !late {
			result <- v
		}
		mu.Unlock()
		if late {
			act(v, false)
			e.release()
		}
	})

	late := time.NewTimer(turnTime)
	defer late.Stop()
	select {
	case v := <-result:
		act(v, true)
		e.release()
		return
	case <-body.wanted:
	case <-late.C:
	}
	mu.Lock()
	select {
	case v := <-result:
		mu.Unlock()
		act(v, true)
		e.release()
	default:
		detached = true
		body.take()
		mu.Unlock()
	}
}

// heldBody is a side's body as the pipeline gets it. Reading it takes the side over, as long as it was not sent on.
type heldBody struct {
	e    *http2Stream
	side h2.Side

	once   sync.Once
	wanted chan struct{} // closed at the first read
	taken  chan struct{} // closed once in is set, or the body was sent on without
	in     *h2.Incoming
}

// take takes the side over. It is called by the goroutine that is in Exchange.Head, at most once.
func (b *heldBody) take() {
	b.in = b.e.stream.Take(b.side)
	close(b.taken)
}

// pass says that the relay sends the body on: a modifier that comes back to it finds nothing.
func (b *heldBody) pass() {
	if b != nil {
		close(b.taken)
	}
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.once.Do(func() {
		close(b.wanted)
		if <-b.taken; b.in != nil && b.side == h2.Request && b.e.expect { // else both would wait
			b.e.stream.Outgoing(h2.Response).Head([]hpack.HeaderField{{Name: ":status", Value: "100"}}, false)
		}
	})
	<-b.taken
	if b.in == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.in.Read(p)
}

// trailers returns those that followed the body, once Read has returned io.EOF.
func (b *heldBody) trailers() []field { return fromHPACK(b.in.Trailers()) }

// sendRequest does what the pipeline decided of a request. h is nil where the side was taken already.
func (e *http2Stream) sendRequest(v verdict, h *h2.Head, body *heldBody) {
	x := e.x
	if v.action == relay {
		x.via(e.hc.upstream())
	}
	switch {
	case v.action == relay && v.body == nil && h != nil:
		body.pass()
		if v.head != x.in.head {
			h.Fields = toHPACK(v.head.fields)
		}
	case v.action == relay:
		in := e.take(h2.Request, h, body)
		out := e.stream.Outgoing(h2.Request)
		empty := v.body == http.NoBody || v.body == nil && x.in.body == nil
		err := out.Head(toHPACK(v.head.fields), empty)
		switch {
		case errors.Is(err, h2.ErrTurn):
			e.work(func() { e.answer(e.elsewhere(), in) })
		case err == nil && !empty:
			e.work(func() { e.send(h2.Request, v, in, out) })
		default:
			in.Close()
		}
	default:
		in := e.take(h2.Request, h, body)
		e.work(func() {
			if v.action == elsewhere {
				v = x.elsewhere()
			}
			e.answer(v, in)
		})
	}
}

// elsewhere sends a request that lost its turn on a connection of its own.
func (e *http2Stream) elsewhere() verdict {
	e.x.moved = true
	return e.x.elsewhere()
}

// take returns the side's incoming, taking it over where that was not done yet.
func (e *http2Stream) take(side h2.Side, h *h2.Head, body *heldBody) *h2.Incoming {
	if body == nil {
		return e.stream.Take(side)
	}
	if h != nil {
		body.take()
	}
	return body.in
}

// sendResponse does what the pipeline decided of a response.
func (e *http2Stream) sendResponse(v verdict, h *h2.Head, body *heldBody) {
	x := e.x
	if v.action == relay && v.body == nil && h != nil {
		e.toClient.owes(x.in.head.method, v.head)
		body.pass()
		if v.head != x.back.head {
			h.Fields = toHPACK(v.head.fields)
		}
		if v.head.status/100 == 2 && x.in.head.method == http.MethodConnect {
			x.flag(storage.FlagUpgraded)
		}
		return
	}
	in := e.take(h2.Response, h, body)
	e.work(func() { e.answer(v, in) })
}

// work runs fn, which uses the exchange, beside the relay.
func (e *http2Stream) work(fn func()) {
	e.use() // as the caller does, so it has not ended
	e.hc.work.Go(func() {
		defer e.release()
		fn()
	})
}

// answer sends a response in upstream's place: the one that v holds, or the body that in goes on to bring.
func (e *http2Stream) answer(v verdict, in *h2.Incoming) {
	out := e.stream.Outgoing(h2.Response)
	if v.action == refuse {
		in.Close()
		e.refuse(v, out)
		return
	}
	e.toClient.owes(e.x.in.head.method, v.head)
	empty := v.body == http.NoBody || v.body == nil && e.x.back.body == nil || bodyless(e.x.in.head.method, v.head.status)
	switch err := out.Head(toHPACK(v.head.fields), empty); {
	case err == nil && !empty:
		e.send(h2.Response, v, in, out)
	case err == nil && e.x.answered:
		e.drain(in)
	default:
		in.Close()
	}
}

// drain records what a modifier answered without reading, as it would be had it gone upstream.
func (e *http2Stream) drain(in *h2.Incoming) {
	defer in.Close()
	if body := e.x.reqBody; body != nil && !body.ended() && (!e.expect || body.touched()) {
		io.Copy(io.Discard, &recordedBody{e.ctx, body, e.x.rec.Body(storage.Request)})
	}
}

// send sends a body of a modifier's, or the one that in brings with its trailers, and records it.
func (e *http2Stream) send(side h2.Side, v verdict, in *h2.Incoming, out *h2.Outgoing) {
	if side == h2.Response && e.x.answered {
		defer e.drain(in)
	} else {
		defer in.Close()
	}
	var from io.Reader = in
	if v.body != nil {
		from = v.body
	}
	w := e.bodies[side]
	b := storage.NewBuffer()
	defer b.Free()
	left := v.length
	for {
		n, err := from.Read(b.B)
		if v.body != nil && v.length >= 0 {
			if left -= int64(n); left < 0 || err == io.EOF && left > 0 {
				err = fmt.Errorf("a modifier's body is not of the %d bytes it promised", v.length)
				n = max(0, n+int(min(left, 0)))
			}
		}
		if _, werr := out.Write(b.B[:n]); werr != nil {
			return // the stream is over, and its end says why
		}
		w.Write(b.B[:n])
		if side == h2.Response {
			e.passed(n)
		}
		w.Wait(e.ctx)
		switch {
		case err == nil:
			continue
		case err != io.EOF:
			e.stream.Reset(http2.ErrCodeInternal, err)
		default:
			e.sendTrailers(side, trailersAfter(v, in), out)
		}
		return
	}
}

// trailersAfter returns what follows a body that was sent to its end.
func trailersAfter(v verdict, in *h2.Incoming) []hpack.HeaderField {
	switch {
	case v.body == nil:
		return in.Trailers()
	case v.trailers == nil:
		return nil
	}
	return toHPACK(v.trailers())
}

// sendTrailers ends a side with the trailers, if there are any, and records them.
func (e *http2Stream) sendTrailers(side h2.Side, trailers []hpack.HeaderField, out *h2.Outgoing) {
	if len(trailers) == 0 {
		out.Close()
		return
	}
	e.x.trailers(storage.Side(side), h2.Text(trailers))
	out.Trailers(trailers)
}

// refuse sends the proxy's own answer.
func (e *http2Stream) refuse(v verdict, out *h2.Outgoing) {
	text := "Millpond: " + v.why + ".\n"
	h := newHead2([]field{
		{name: ":status", value: strconv.Itoa(v.status)},
		{name: "content-type", value: "text/plain; charset=utf-8"},
		{name: "x-content-type-options", value: "nosniff"},
		{name: "content-length", value: strconv.Itoa(len(text))},
	})
	e.x.rec.Change(func(s *storage.Session) {
		s.Status, s.ContentType = v.status, "text/plain; charset=utf-8"
		s.Sides[storage.Response].Head = h.raw
	})
	e.mu.Lock()
	e.failed = v.why
	e.mu.Unlock()
	e.toClient.owes(e.x.in.head.method, h)
	none := e.x.in.head.method == http.MethodHead
	if out.Head(toHPACK(h.fields), none) != nil || none {
		return
	}
	if _, err := io.WriteString(out, text); err == nil {
		io.WriteString(e.bodies[h2.Response], text)
		e.passed(len(text))
		out.Close()
	}
}
