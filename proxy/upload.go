package proxy

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"millpond/storage"
)

// upload is a request's body on its way upstream, beside the response.
type upload struct {
	done   chan struct{} // closed when nothing more is read from the client
	whole  atomic.Bool   // all of it went upstream
	broken atomic.Bool   // its framing is broken
	passed atomic.Int64  // writes, to see that it moves
}

// runUpload sends the request with its body. An error of upstream's ends only the sending: its response may be on the way, a refusal of the body among others.
func (r *request) runUpload(to *sink, v verdict) {
	u := r.upload
	defer close(u.done)
	p := &passage{ctx: r.ctx, from: r.c.r, to: to, rec: r.x.rec.Body(storage.Request), chunks: chunks{limit: r.p.cfg.Limits.Head}}
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
	if err == nil {
		u.whole.Store(true)
		if p.chunks.trailers != nil {
			r.x.trailers(storage.Request, p.chunks.trailers)
		}
		r.leaving.start()
		return
	}
	r.sendErr = err
	var sending writeError
	switch {
	case errors.As(err, &sending):
		// Upstream takes no more. The client is read again when the response was delivered.
	case timedOut(err):
		// stopUpload: the response is complete, or there is none.
	default:
		// The client broke off, or its framing is broken: upstream must not take the request for complete.
		if isRead(err) {
			r.leave()
		} else {
			u.broken.Store(true)
			r.up.Close()
		}
	}
}

// brokenBody says what is wrong with the framing of a request's body, for which the sending ended and upstream's connection was closed; nil: nothing.
func (r *request) brokenBody() error {
	if r.upload == nil || !r.upload.broken.Load() {
		return nil
	}
	<-r.upload.done
	return r.sendErr
}

func isRead(err error) bool {
	var reading readError
	return errors.As(err, &reading)
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

// noteUpload records the moment when the request's last byte was written.
func (r *request) noteUpload() {
	if r.upload.whole.Load() {
		r.x.wrote()
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
