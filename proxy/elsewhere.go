package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"

	"millpond/storage"
)

// transport returns the client's own transport for exchanges that a modifier moved to another host, so that no connection is shared between clients.
func (c *client) transport(p *Proxy) *http.Transport {
	c.once.Do(func() {
		dial := func(scheme string) func(ctx context.Context, network, addr string) (net.Conn, error) {
			return func(ctx context.Context, _, addr string) (net.Conn, error) {
				up, err := p.dial(ctx, scheme, addr)
				if err != nil {
					return nil, err
				}
				return up, nil
			}
		}
		c.moved = &http.Transport{
			DisableCompression:  true,
			Proxy:               nil, // one that the environment names could be ourselves
			DialContext:         dial("http"),
			DialTLSContext:      dial("https"),
			MaxIdleConns:        maxIdleUpstreams,
			MaxIdleConnsPerHost: 1,
		}
	})
	return c.moved
}

// roundTrip sends the request to where a modifier moved it. The body that goes there is recorded as it is read.
func (x *exchange) roundTrip() (*http.Response, error) {
	r := x.req
	r.RequestURI = ""
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // net/http would add its own
	}
	if r.Body != nil && r.Body != http.NoBody {
		if body, length, replaced := x.settleBody(x.reqBody, r.Body, x.in.length, r.ContentLength); replaced {
			r.Body, r.ContentLength = body, length
		}
		r.Body = &recordedBody{r.Context(), r.Body, x.rec.Body(storage.Request)}
	}
	host := r.URL.Host
	x.rec.Change(func(s *storage.Session) { s.Upstream = host })
	res, err := x.client.transport(x.p).RoundTrip(r)
	var malformed textproto.ProtocolError
	if errors.As(err, &malformed) {
		err = errors.New("its answer is not HTTP") // net/http quotes the line, whatever it holds
	}
	return res, err
}

// recordedBody records what is read through it, and holds its reader back while the recording holds its share of memory.
type recordedBody struct {
	ctx context.Context // ends the waits
	io.ReadCloser
	w *storage.BodyWriter
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.w.Write(p[:n])
	b.w.Wait(b.ctx)
	if err == io.EOF {
		b.w.Complete()
	}
	return n, err
}
