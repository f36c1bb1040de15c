package proxy

import (
	"time"

	"millpond/storage"
)

// upgrade relays an exchange that became another protocol (RFC 9110, section 7.8), or inside a tunnel another tunnel: what both sides send after
// the response's head passes unread and is recorded as the two bodies.
func (r *request) upgrade(res *head) bool {
	v := r.x.response(offer{head: res, framing: storage.FramingClose})
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
	state, why := relayRaw(r.ctx, c, up, rec, r.p.cfg.Limits.StallTime, goneProbe)
	r.drop()
	r.x.end(state, why)
	return false
}
