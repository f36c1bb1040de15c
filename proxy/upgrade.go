package proxy

import (
	"context"
	"time"

	"millpond/storage"
)

// upgrade relays an exchange that became another protocol (RFC 9110, section 7.8), or inside a tunnel another tunnel: what both sides send after
// the response's head passes unread and is recorded as the two bodies.
func (r *request) upgrade(res *head) bool {
	v := r.x.response(offer{head: res})
	if v.action == refuse {
		return r.refuse(v.status, v.why, storage.Failed)
	}
	if r.upload != nil {
		<-r.upload.done
	}
	if r.leaving.stop() {
		r.c.reads.at = time.Time{}
	}
	r.c.reads.clear()
	c, up, rec := r.c, r.up, r.x.rec
	r.x.flag(storage.FlagUpgraded)
	c.writes.within(r.p.cfg.Limits.StallTime)
	if _, err := c.Write(v.head.raw); err != nil || v.head.status != res.status {
		return r.breakClient(storage.ClientAborted, "the client left before the protocol was switched")
	}
	clientSide, upstreamSide := peer{"the client", storage.ClientAborted}, peer{"upstream", storage.UpstreamAborted}
	stall := r.p.cfg.Limits.StallTime
	out := &flow{from: clientSide, to: upstreamSide, src: c.bare(), dst: up, writes: &up.writes, stall: stall, body: rec.Body(storage.Request)}
	back := &flow{from: upstreamSide, to: clientSide, src: &bufferedConn{Conn: up.Conn, r: up.r}, dst: c, writes: &c.writes, stall: stall, body: rec.Body(storage.Response)}
	defer context.AfterFunc(r.ctx, func() { bottom(c).Close(); bottom(up).Close() })()
	state, why := relayBoth(r.ctx, out, back, goneProbe)
	r.drop()
	r.x.end(state, why)
	return false
}
