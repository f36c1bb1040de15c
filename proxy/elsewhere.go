package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"

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
		if trailers := x.reqBody.trailers(x.in.trailers); trailers != nil && r.ContentLength < 0 {
			r.Trailer = announced(r.Header)
			r.Body = &trailedBody{r.Body, func() { x.moveTrailers(r, trailers()) }}
		}
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

// announced returns the names that a Trailer field tells of, as net/http wants them before the body is sent.
func announced(header http.Header) http.Header {
	names := make(http.Header)
	for _, value := range header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); trailing(name) {
				names[http.CanonicalHeaderKey(name)] = nil
			}
		}
	}
	return names
}

// trailing reports whether net/http takes the field for a trailer. RFC 9110, section 6.5.1.
func trailing(name string) bool {
	return isToken(name) && !framingField(name) && !strings.EqualFold(name, "Trailer")
}

// moveTrailers adds the trailers that came to those of r, the body of which has just been read to its end.
func (x *exchange) moveTrailers(r *http.Request, trailers []field) {
	for _, f := range trailers {
		if trailing(f.name) {
			r.Trailer.Add(f.name, f.value)
		}
	}
	switch {
	case len(trailers) == 0:
	case x.in.head.proto == "HTTP/2":
		x.trailers(storage.Request, newHead2(trailers).raw)
	default:
		x.trailers(storage.Request, trailerLines(trailers))
	}
}

// trailedBody calls ended at its end, before its reader learns of it.
type trailedBody struct {
	io.ReadCloser
	ended func()
}

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.ended != nil {
		b.ended()
		b.ended = nil
	}
	return n, err
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
