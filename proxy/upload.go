package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"millpond/storage"
)

// upload is a request's body on its way upstream, beside the response.
type upload struct {
	done   chan struct{} // closed when nothing more is read from the client
	whole  atomic.Bool   // all of it went upstream
	wrote  time.Time     // when it had; set before whole
	fault  atomic.Pointer[fault]
	passed atomic.Int64 // writes, to see that it moves
}

// fault is why the sending of a request's body ended so that upstream's connection had to be closed, and the answer that the client gets for it.
type fault struct {
	status int
	why    string
	flag   string // for the session
}

// runUpload sends the request with its body. An error of upstream's ends only the sending: its response may be on the way, a refusal of the body among others.
func (r *request) runUpload(to *sink, v verdict) {
	u := r.upload
	defer close(u.done)
	p := &passage{ctx: r.ctx, from: r.c.r, to: to, rec: r.x.rec.Body(storage.Request), secure: speaksTLS(r.c.Conn), chunks: chunks{limit: r.p.cfg.Limits.Head, toProxy: r.toProxy()}, trailers: v.trailers}
	to.passed = &u.passed
	var err error
	if v.body == nil {
		err = p.run(r.body)
	} else if err = p.send(v.body, newFraming(v)); err == nil && r.x.reqBody != nil && !r.x.reqBody.ended() {
		_, err = io.Copy(io.Discard, r.x.in.body) // what the client still sends of the body that was replaced
		if err != nil {
			err = readError{err}
		}
	}
	r.x.chunked(storage.Request, &p.chunks)
	if err == nil {
		u.wrote = time.Now()
		u.whole.Store(true)
		r.leaving.start()
		return
	}
	r.sendErr = err
	var sending writeError
	var reading readError
	switch {
	case errors.As(err, &sending) && timedOut(err):
		r.endUpload(&fault{status: http.StatusGatewayTimeout, why: "upstream accepted no bytes of the request for " + r.p.cfg.Limits.StallTime.String()})
	case errors.As(err, &sending):
		// Upstream takes no more. The client is read again when the response was delivered.
	case timedOut(err):
		// stopUpload: the response is complete, or there is none.
	case v.body != nil && errors.As(err, &reading) && !r.reqBodyFailed():
		r.endUpload(&fault{status: http.StatusBadGateway, why: reading.Error()})
	case errors.As(err, &reading):
		r.leave()
	default:
		r.endUpload(&fault{
			status: http.StatusBadRequest, flag: storage.FlagAmbiguousFraming,
			why: err.Error() + ", so that two programs could read the request in two ways",
		})
	}
}

// endUpload ends the request for a fault that is not upstream's: it must not take what it got for complete.
func (r *request) endUpload(f *fault) {
	r.upload.fault.Store(f)
	r.up.Close()
}

// reqBodyFailed reports whether it was the client that ended a body which a modifier reads through.
func (r *request) reqBodyFailed() bool { return r.x.reqBody != nil && r.x.reqBody.failed() }

// faulty returns why the sending of the request's body ended, if that ended the exchange.
func (r *request) faulty() *fault {
	if r.upload == nil {
		return nil
	}
	return r.upload.fault.Load()
}

// finishUpload waits, after the response, for the end of the request's body. It reports whether all of it went upstream, so that the connections are in order.
// A client may send on after a response, or never: it goes on as long as bytes move and upstream stays.
func (r *request) finishUpload() bool {
	u := r.upload
	if u == nil {
		return r.sendErr == nil
	}
	select {
	case <-u.done:
		r.noteUpload()
		return u.whole.Load()
	default:
	}
	over := make(chan struct{})
	w := &watch{conn: r.up.Conn, r: r.up.r, eager: true, ended: func() { close(over) }}
	w.start()
	tick := time.NewTicker(r.p.cfg.Limits.IdleTime)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-u.done:
			w.stop()
			r.noteUpload()
			return u.whole.Load()
		case <-over:
		case <-tick.C:
			if now := u.passed.Load(); now != last {
				last = now
				continue
			}
		}
		w.stop()
		r.stopUpload()
		return false
	}
}

// noteUpload records when the request's last byte was written, if it was by now.
func (r *request) noteUpload() {
	if u := r.upload; u != nil && u.whole.Load() {
		r.x.requestSent = u.wrote
	}
}

// stopUpload ends the sending of the request's body.
func (r *request) stopUpload() {
	if r.upload == nil {
		return
	}
	r.up.Close()
	r.c.SetReadDeadline(longAgo)
	<-r.upload.done
	r.c.SetReadDeadline(time.Time{})
}
