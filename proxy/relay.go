package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"millpond/storage"
)

// request is a request on an HTTP/1 connection, and what is done for it.
type request struct {
	*http1
	head     *head   // as it is to be sent on
	received []byte  // as it came, where that differs
	body     framing // of the request
	target   target
	hops     []string // of other Millponds, see hopsField

	x       *exchange
	up      *upstreamConn
	sent    *head // as the modifiers left it
	begun   bool  // upstream has sent something for it
	sendErr error // why not all of it went upstream
	upload  *upload
	odd     bool // the response's end could be found elsewhere too: no other may follow it
}

// serve takes the request through the pipeline, to upstream and back. It reports whether the client's connection can carry another.
func (r *request) serve(s storage.Session) bool {
	o := offer{head: r.head, received: r.received, length: r.body.known(), framing: r.body.kind.stored()}
	if r.body.kind != noBody {
		body := r.bodyForModifiers()
		o.body, o.trailers = body, body.trailers
	}
	x, v := r.p.begin(r.ctx, r.c.under, s, r.target.authority, o)
	r.x, r.sent, r.open = x, v.head, x
	again := r.follow(v)
	r.open = nil
	return again
}

// follow does what the pipeline says of the request.
func (r *request) follow(v verdict) bool {
	switch v.action {
	case refuse:
		return r.refuse(v.status, v.why, storage.Failed)
	case elsewhere:
		return r.elsewhere()
	}
	if err := r.connect(); err != nil {
		return r.unreachable(err)
	}
	r.send(v)
	return r.receive()
}

// bodyForModifiers is the request's body for a modifier that reads it. Reading it before upstream has said anything means to be upstream: a client that waits for
// 100 (Continue) is told to go on.
func (r *request) bodyForModifiers() *bodyReader {
	b := newBodyReader(r.c.r, r.body, r.p.cfg.Limits.Head)
	b.chunks.toProxy = r.toProxy()
	b.before = func() {
		r.leaving.stop()
		r.c.reads.clear()
		if r.head.proto == "HTTP/1.1" && r.head.lists("Expect", "100-continue") {
			io.WriteString(r.c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
	}
	return b
}

// connect finds the connection to upstream: the one that served the last request to this host, or a new one; inside a tunnel the tunnel's.
func (r *request) connect() (err error) {
	r.up = r.kept.take(r.target.scheme, r.target.authority)
	if r.up == nil {
		if r.inside != nil {
			return errTunnelEnded
		}
		r.leaving.start() // a client that gives up on a slow dial ends it
		r.up, err = r.p.dialRequest(withHops(r.ctx, r.hops), r.target.scheme, r.target.authority)
		if r.leaving.stop() {
			r.c.reads.at = time.Time{}
		}
		if err != nil {
			return err
		}
	}
	r.use(r.up)
	r.x.via(r.up)
	return nil
}

// errNoNotify is not broken off by a reset: the client's TLS ends as upstream's did, and it judges for itself.
var errNoNotify = errors.New("TLS ended without a close_notify, so that nothing tells whether this was all")

var errTunnelEnded = errors.New("upstream closed the tunnel")

// unreachable answers a request for which there is no connection to upstream.
func (r *request) unreachable(err error) bool {
	refused := &upstreamError{status: http.StatusBadGateway, reason: err.Error()}
	errors.As(err, &refused)
	switch {
	case r.left():
		r.x.end(storage.ClientAborted, "the client left while Millpond connected to upstream")
		return false
	case r.ctx.Err() != nil:
		r.x.end(storage.Interrupted, "Millpond was stopped while it connected to upstream")
		return false
	case errors.Is(err, errTunnelEnded):
		r.x.end(storage.UpstreamAborted, "upstream closed the connection as the request came; the client can try again")
		return false
	case errors.Is(err, errLoop) && r.c.under.reverse == nil && r.p.listensOn(r.target.authority) && (r.sent.method == http.MethodGet || r.sent.method == http.MethodHead):
		return r.setup(r.sent, r.body, r.x)
	}
	return r.refuse(refused.status, refused.reason, storage.Failed)
}

// refuse answers the request in upstream's place, and ends the exchange and the connection.
func (r *request) refuse(status int, why string, state storage.State) bool {
	r.stopUpload()
	r.say(r.x.rec, r.head.method, status, why, state)
	r.drop()
	r.x.end(state, why)
	return false
}

// drop closes the connection to upstream.
func (r *request) drop() {
	r.use(nil)
	if r.up != nil {
		r.up.Close()
	}
}

// send sends the request. A body that is not at hand is sent beside the response, which need not wait for it.
func (r *request) send(v verdict) {
	to := &sink{conn: r.up, writes: &r.up.writes, stall: r.p.cfg.Limits.StallTime, head: v.head.raw}
	if r.up.absolute {
		to.head = r.p.toProxy(v.head, r.up, r.target, r.hops).raw
	}
	switch {
	case v.body == nil && r.body.kind == noBody, v.body == http.NoBody && r.x.reqBody == nil:
		r.sendErr = to.flush()
	case v.body == nil && r.body.kind == byLength && int64(r.c.r.Buffered()) >= r.body.length:
		p := &passage{ctx: r.ctx, from: r.c.r, to: to, rec: r.x.rec.Body(storage.Request), secure: speaksTLS(r.c.Conn)}
		r.sendErr = p.run(r.body)
	default:
		r.c.reads.clear()
		r.upload = &upload{done: make(chan struct{})}
		go r.runUpload(to, v)
		return
	}
	if r.sendErr == nil {
		r.x.wrote()
	}
	r.leaving.start()
}

// receive relays the responses to the request: any number of informational ones, then the one. It reports whether the client's connection can carry another request.
func (r *request) receive() bool {
	limit := r.p.cfg.Limits.Head
	for {
		raw, err := r.readResponse(limit)
		if err != nil {
			return r.noResponse(raw, err)
		}
		res, err := parseResponseHead(raw)
		if err != nil {
			return r.refuse(http.StatusBadGateway, "upstream's answer is not HTTP: "+err.Error(), storage.Failed)
		}
		r.begun = true
		r.odd = r.odd || res.ambiguous != ""
		if res.status == http.StatusProxyAuthRequired && r.up.absolute { // which the client would take for ours
			return r.refuse(http.StatusBadGateway, explainProxy(r.up.via, r.target.authority, proxyRefusal(res.status)).reason, storage.Failed)
		}
		if res.status >= 200 || res.status == http.StatusSwitchingProtocols {
			return r.respond(res)
		}
		if limit -= len(raw); limit <= 0 {
			return r.noResponse(raw, errHeadTooLarge)
		}
		r.x.informational(res)
		if r.head.proto == "HTTP/1.0" {
			continue // it knows no 1xx. RFC 9110, section 15.2
		}
		r.c.writes.within(r.p.cfg.Limits.StallTime)
		if _, err := r.c.Write(raw); err != nil {
			r.leave()
		}
	}
}

// readResponse reads the head of a response, informational or not, and notes when the first byte of the first of them was there.
func (r *request) readResponse(limit int) ([]byte, error) {
	if r.x.firstByte.IsZero() {
		if err := awaitHead(r.up.r); err != nil {
			return nil, err
		}
		r.x.firstByte = time.Now()
	}
	return readHead(r.up.r, limit)
}

// noResponse ends an exchange whose response did not come.
func (r *request) noResponse(raw []byte, err error) bool {
	switch {
	case r.left():
		return r.breakClient(storage.ClientAborted, "the client left before the response came")
	case r.ctx.Err() != nil:
		return r.breakClient(storage.Interrupted, "Millpond was stopped before the response came")
	case r.faulty() != nil:
		f := r.faulty()
		if f.flag != "" {
			r.x.flag(f.flag)
		}
		return r.refuse(f.status, f.why, storage.Failed)
	case errors.Is(err, errHeadTooLarge):
		return r.refuse(http.StatusBadGateway, "the head of upstream's response is larger than "+size(r.p.cfg.Limits.Head)+", the most that Millpond takes", storage.Failed)
	case r.up.used && len(raw) == 0 && !r.begun:
		// The request may have been acted on, so it is not sent again. A client that finds its connection closed before an answer knows that, and decides itself.
		return r.breakClient(storage.UpstreamAborted, "upstream closed the connection, which had served before, without a response; the client can try again")
	case len(raw) > 0:
		return r.refuse(http.StatusBadGateway, "upstream broke off in the middle of a response's head: "+ended(err), storage.UpstreamAborted)
	}
	return r.refuse(http.StatusBadGateway, "upstream took the request and closed the connection without a response: "+ended(err), storage.UpstreamAborted)
}

// breakClient ends the exchange and both connections.
func (r *request) breakClient(state storage.State, why string) bool {
	r.drop()
	r.leaving.stop()
	bottom(r.c).Close() // below TLS: a close_notify would say that all is well
	if r.upload != nil {
		<-r.upload.done
	}
	r.x.end(state, why)
	return false
}

// respond relays the response.
func (r *request) respond(res *head) bool {
	x := r.x
	_, asked := r.sent.value("Upgrade")
	if res.status == http.StatusSwitchingProtocols && asked || r.head.method == http.MethodConnect && res.status < 300 {
		return r.upgrade(res)
	}
	if r.upload == nil && r.sendErr == nil {
		x.rec.Body(storage.Request).Complete() // not before: an upgrade gives a request without a body one
	}
	f, ambiguous, dropLength := responseFraming(res, r.sent.method)
	if res.status == http.StatusSwitchingProtocols { // what the client sends next is another request, perhaps to another host
		f, ambiguous = framing{kind: untilClose}, "upstream switched to another protocol, which nobody had asked for"
	}
	o := offer{head: res, length: f.known(), framing: f.kind.stored()}
	if ambiguous != "" {
		marked := *res
		marked.ambiguous = ambiguous
		o.head, r.odd = &marked, r.odd || !dropLength
	}
	if dropLength {
		o.received = res.raw
		fields := make([]field, 0, len(res.fields))
		for _, fl := range o.head.fields {
			if !strings.EqualFold(fl.name, "Content-Length") {
				fields = append(fields, fl)
			}
		}
		o.head = o.head.with(res.start, fields)
	}
	var body *bodyReader
	if f.kind != noBody {
		body = newBodyReader(r.up.r, f, r.p.cfg.Limits.Head)
		body.chunks.lenient = true
		o.body, o.trailers = body, body.trailers
	}
	r.noteUpload()
	v := x.response(o)
	if v.action == refuse {
		return r.refuse(v.status, v.why, storage.Failed)
	}

	client, err := r.deliver(v, f)
	if r.odd {
		x.flag(storage.FlagAmbiguousFraming)
	}
	if err != nil {
		return r.brokenOff(client, err)
	}
	reusable := f.kind != untilClose && !r.odd && r.sent.keepsAlive() && res.keepsAlive()
	whole := v.body == nil || body == nil || body.finish()
	again := client.kind != untilClose && !r.odd && r.persistent() && v.head.keepsAlive()
	return r.finish(again, reusable && whole, whole && r.up.r.Buffered() > 0)
}

// persistent reports whether the client wants to send another request on its connection.
func (r *request) persistent() bool {
	return r.sent.keepsAlive() && !r.head.lists("Connection", "close")
}

// deliver sends a response to the client. It returns how the client finds its end.
func (r *request) deliver(v verdict, f framing) (framing, error) {
	p := &passage{
		ctx: r.ctx, rec: r.x.rec.Body(storage.Response),
		to: &sink{conn: r.c, writes: &r.c.writes, stall: r.p.cfg.Limits.StallTime, head: v.head.raw}, trailers: v.trailers,
	}
	if v.body != nil {
		f = newFraming(v)
		err := p.send(v.body, f)
		r.x.chunked(storage.Response, &p.chunks)
		return f, err
	}
	p.from, p.secure = r.up.r, r.up.tls != nil
	p.chunks = chunks{limit: r.p.cfg.Limits.Head, lenient: true}
	err := p.run(f)
	if err == nil && f.kind == untilClose && withoutNotify(r.up.Conn) {
		err = readError{errNoNotify} // RFC 9112, section 9.8
	}
	r.x.chunked(storage.Response, &p.chunks)
	r.odd = r.odd || p.chunks.odd
	return f, err
}

// newFraming is the framing of a body that a modifier made.
func newFraming(v verdict) framing {
	switch {
	case v.body == http.NoBody || v.length == 0:
		return framing{}
	case v.length > 0:
		return framing{kind: byLength, length: v.length}
	case v.head.lists("Transfer-Encoding", "chunked"):
		return framing{kind: byChunks}
	}
	return framing{kind: untilClose}
}

// brokenOff ends an exchange whose response did not reach the client whole.
func (r *request) brokenOff(f framing, err error) bool {
	var sending writeError
	if errors.As(err, &sending) {
		if timedOut(err) {
			return r.breakClient(storage.ClientAborted, "the client accepted no bytes for "+r.p.cfg.Limits.StallTime.String())
		}
		r.leave() // unless it was sent away
	}
	switch {
	case r.left():
		return r.breakClient(storage.ClientAborted, "the client left before the end of the response")
	case r.ctx.Err() != nil:
		return r.breakClient(storage.Interrupted, "Millpond was stopped before the end of the response")
	}
	if f := r.faulty(); f != nil {
		return r.breakClient(storage.ClientAborted, f.why)
	}
	// A client that counts bytes or chunks misses some. One that reads until the connection ends must see it break, not end.
	if f.kind == untilClose && !errors.Is(err, errNoNotify) {
		breakOff(r.c)
	}
	if r.x.got.body != nil && (r.x.resBody == nil || !r.x.resBody.failed()) {
		return r.breakClient(storage.Failed, "the body that a modifier gave the response broke off: "+ended(err))
	}
	return r.breakClient(storage.UpstreamAborted, "upstream broke off before the end of the response: "+ended(err))
}

// finish ends an exchange whose response was delivered whole. again and reusable say whether the messages allow to use the two connections again,
// more that upstream sent bytes after the response. Those are nobody's: they go no further, and the session tells of them.
func (r *request) finish(again, reusable, more bool) bool {
	why := ""
	if more {
		r.x.flag(storage.FlagAmbiguousFraming)
		why = "upstream sent more after the end of its response, which was not passed on: a second response, or a body where none can be"
	}
	if !r.finishUpload() {
		again, reusable = false, false
		r.drop()
		lingerClose(r.c)
	}
	if r.leaving.stop() {
		r.c.reads.at = time.Time{}
	}
	r.use(nil)
	if reusable = reusable && !more && r.sendErr == nil && r.up.r.Buffered() == 0; reusable {
		r.up.used = true
		r.kept.put(r.target.scheme, r.target.authority, r.up)
	} else {
		r.up.Close()
		again = again && r.inside == nil // in a tunnel there is no other
	}
	r.x.end(storage.Done, why)
	return again
}

// ended says in words how a connection ended.
func ended(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errNoHead):
		return "it closed the connection"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended too early"
	case errors.Is(err, context.Canceled):
		return "the exchange was cancelled"
	case strings.Contains(err.Error(), "no renegotiation"): // crypto/tls has no value for it
		return "it asked to negotiate TLS anew, which older servers do; --min-tls HOST=1.2 allows it for one host"
	}
	return innermost(err)
}

// elsewhere serves a request that a modifier answered or moved to another host.
func (r *request) elsewhere() bool {
	watched := r.body.kind == noBody
	if watched {
		r.leaving.start()
	}
	v := r.x.elsewhere()
	if v.action == refuse {
		if r.left() {
			return r.breakClient(storage.ClientAborted, "the client left before the response came")
		}
		return r.refuse(v.status, v.why, storage.Failed)
	}
	f, err := r.deliver(v, framing{})
	if r.leaving.stop() {
		r.c.reads.at = time.Time{}
	}
	if err != nil {
		return r.brokenOff(f, err)
	}
	again := f.kind != untilClose && r.persistent()
	if body := r.x.reqBody; body != nil && !body.ended() {
		// What a modifier answered without reading is still on its way. It is kept, as it would be had it gone upstream.
		_, err := io.Copy(io.Discard, &recordedBody{r.ctx, body, r.x.rec.Body(storage.Request)})
		again = again && err == nil && body.ended()
	}
	r.x.end(storage.Done, "")
	return again
}
