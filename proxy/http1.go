package proxy

import "context"

// maxIdleUpstreams bounds the upstream connections that one client connection keeps.
const maxIdleUpstreams = 8

func (p *Proxy) serveHTTP1(ctx context.Context, c *conn, o *origin) { panic("outline") } // o nil: not inside a tunnel
