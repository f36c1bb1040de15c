package proxy

// The pipeline, as the relays use it. HTTP/1 and HTTP/2 each do, for every request:
//
//	x, v := p.begin(ctx, c.under, session, authority, offer{…})  // request modifiers, then capture: the recording has begun
//	switch v.action {
//	case relay:              dial; x.via(up); send v.head, then the sender's bytes or v.body; x.wrote()
//	case elsewhere:          v = x.elsewhere()                     // answered without upstream, or by another host
//	case refuse:             send v.status and v.why as text
//	}
//	v = x.response(offer{…})  // response modifiers, then capture; not after elsewhere
//	send v.head, then upstream's bytes or v.body
//	x.end(state, why)
//
// Bodies that are relayed go to x.rec.Body(side), each piece after it was forwarded, and Complete when the sender finished. A v.body is read by the relay, framed
// anew and recorded in the same way. x.informational and x.trailers record what stands around them. One goroutine at a time uses an exchange.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	martian "github.com/google/martian/v3"

	"millpond/storage"
)

// offer is a message as the pipeline gets it.
type offer struct {
	head     *head     // what is sent on where no modifier changes it
	received []byte    // the head's bytes as they came, where the relay has altered head; else nil
	body     io.Reader // the body without framing, read only if a modifier wants it, or the exchange goes elsewhere; nil: the message has none
	length   int64     // of body, in bytes; -1: not known beforehand
	framing  storage.Framing
	trailers func() []field // those that followed the body, once it was read to its end; nil: there can be none
}

// action says what a relay is to do with a message.
type action uint8

const (
	relay     action = iota // send it on: head, then the sender's bytes, or body where that is set
	elsewhere               // a request that does not go to its upstream: ask exchange.elsewhere for the response
	refuse                  // a modifier failed: send status and why; the peer sees nothing of the message
)

// verdict is the pipeline's word on a message.
type verdict struct {
	action   action
	head     *head          // to be sent; the offered one unless a modifier changed something
	body     io.ReadCloser  // to be sent instead of the sender's bytes; nil: relay those
	length   int64          // of body, in bytes; -1: not known, until its end. A body of another length than promised breaks the message off
	trailers func() []field // that follow body, asked at its end; nil: none do
	status   int            // for refuse
	why      string         // for refuse, for people
}

// begin offers a request to the modifiers and begins its recording. authority (host:port) is where it would go. client owns the connection it came on.
func (p *Proxy) begin(ctx context.Context, c *client, s storage.Session, authority string, o offer) (*exchange, verdict) {
	x := &exchange{p: p, client: c, session: s, in: o, sent: verdict{head: o.head}}
	x.viewRequest(ctx, authority)
	mctx, unlink, err := martian.TestContext(x.req, nil, nil)
	if err != nil {
		x.unlink = func() {}
		return x, x.refused(fmt.Errorf("link the request: %w", err))
	}
	x.martian, x.unlink = mctx, unlink
	if s.Scheme == "https" {
		mctx.Session().MarkSecure()
	}
	mctx.Set(exchangeKey, x)

	if m := p.cfg.RequestModifier; m != nil {
		err = x.guard(m, func() error { return m.ModifyRequest(x.req) })
	}
	if err == nil {
		err = p.capture().ModifyRequest(x.req)
	}
	if err != nil {
		return x, x.refused(err)
	}
	if x.answered || x.moved {
		x.sent.action = elsewhere
	}
	return x, x.sent
}

// response offers the response that came for x to the modifiers, and records its head.
func (x *exchange) response(o offer) verdict {
	x.responseHead = time.Now()
	x.back = o
	x.got = verdict{head: o.head}
	x.viewResponse()
	return x.modifyResponse()
}

// elsewhere gets a response for a request that does not go upstream: an empty 200 for the modifiers to fill, or another host's. It has passed the
// response modifiers, and its body is always a new one.
func (x *exchange) elsewhere() verdict {
	if x.answered {
		x.res = &http.Response{
			Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: x.req,
		}
	} else {
		res, err := x.roundTrip()
		if err != nil {
			return x.refused(fmt.Errorf("send to %s, where a modifier moved it: %w", x.req.URL.Host, err))
		}
		x.res = res
		res.Request = x.req
	}
	x.responseHead = time.Now()
	return x.modifyResponse()
}

func (x *exchange) modifyResponse() verdict {
	var err error
	if m := x.p.cfg.ResponseModifier; m != nil {
		err = x.guard(m, func() error { return m.ModifyResponse(x.res) })
	}
	if err == nil {
		err = x.p.capture().ModifyResponse(x.res)
	}
	if err != nil {
		return x.refused(err)
	}
	return x.got
}

// refused turns a failure of the pipeline into its defined answer, 502: a rule that cannot be followed lets nothing through.
func (x *exchange) refused(err error) verdict {
	x.record()
	return verdict{action: refuse, status: http.StatusBadGateway, why: err.Error()}
}

// guard runs one modifier. Its error names it; a panic is an error.
func (x *exchange) guard(m any, run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			x.p.log.Error("a modifier panicked", "modifier", fmt.Sprintf("%T", m), "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the modifier %T panicked: %v", m, v)
		}
	}()
	if err := run(); err != nil {
		return fmt.Errorf("the modifier %T failed: %w", m, err)
	}
	return nil
}
