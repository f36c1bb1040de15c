package proxy

import "slices"

// maxIdleUpstreams bounds the upstream connections that one client connection keeps: a browser opens six to a proxy and speaks with a few hosts on each.
const maxIdleUpstreams = 8

// upstreams are the idle upstream connections of one client connection, at most one for each scheme and authority. No other client uses them.
type upstreams struct {
	list    []keptUpstream // the longest unused first
	tunnel  *conn          // of a tunnel, the client's connection: it is closed when upstream closes its own
	resting bool
}

type keptUpstream struct {
	scheme, authority string
	up                *upstreamConn
}

// put keeps a connection for the next exchange with its host, and closes the longest unused beyond the bound.
func (u *upstreams) put(scheme, authority string, up *upstreamConn) {
	u.list = append(u.list, keptUpstream{scheme, authority, up})
	if len(u.list) > maxIdleUpstreams {
		u.list[0].up.Close()
		u.list = slices.Delete(u.list, 0, 1)
	}
}

// take returns the connection that is kept for a host, which is kept no longer; nil if there is none that upstream has not closed.
func (u *upstreams) take(scheme, authority string) *upstreamConn {
	for i, k := range u.list {
		if k.scheme != scheme || k.authority != authority {
			continue
		}
		u.list = slices.Delete(u.list, i, i+1)
		if k.up.ended.Load() {
			k.up.Close()
			return nil
		}
		return k.up
	}
	return nil
}

// rest begins the time between two exchanges: upstream may close its connections, and is seen to.
func (u *upstreams) rest() {
	u.resting = true
	for _, k := range u.list {
		up := k.up
		if up.watch == nil {
			up.watch = &watch{conn: up.Conn, r: up.r, after: watchUpstreamAfter, eager: true, ended: func() { u.lost(up) }}
		}
		up.watch.start()
	}
}

// lost is called when an idle connection was closed by upstream, or has bytes that nobody asked for. In a tunnel the client's is closed too, so that it knows.
func (u *upstreams) lost(up *upstreamConn) {
	up.ended.Store(true)
	up.Close()
	if u.tunnel != nil {
		u.tunnel.Close()
	}
}

// wake ends the time between two exchanges.
func (u *upstreams) wake() {
	if !u.resting {
		return
	}
	u.resting = false
	for _, k := range u.list {
		k.up.watch.stop()
	}
}

func (u *upstreams) close() {
	u.wake()
	for _, k := range u.list {
		k.up.Close()
	}
	u.list = nil
}
