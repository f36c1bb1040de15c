package proxy

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// viewRequest makes the *http.Request that modifiers see, by hand from the head: net/http's own reader refuses what a debugging proxy must show.
// As there, Host and Transfer-Encoding stand in fields of their own and not in Header.
func (x *exchange) viewRequest(ctx context.Context, authority string) {
	h := x.in.head
	host, ok := h.value("Host")
	if h.proto == "HTTP/2" {
		host, ok = h.value(":authority")
	}
	if !ok {
		host = authority
	}
	r := http.Request{
		Method:        h.method,
		Host:          host,
		Header:        headerOf(h.fields),
		ContentLength: x.in.length,
		Body:          http.NoBody,
		RequestURI:    h.target,
		RemoteAddr:    x.client.addr,
		Close:         !h.keepsAlive(),
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor = protoOf(h)
	r.URL = targetURL(x.session.Scheme, authority, h.target)
	if x.in.body != nil {
		x.reqBody = &viewBody{r: x.in.body}
		r.Body = x.reqBody
		if x.in.length < 0 {
			r.TransferEncoding = []string{"chunked"}
		}
	}
	x.reqURL, x.reqHost = *r.URL, host
	x.req = r.WithContext(ctx)
}

// viewResponse makes the *http.Response that modifiers see.
func (x *exchange) viewResponse() {
	h := x.back.head
	res := &http.Response{
		StatusCode:    h.status,
		Status:        statusText(h),
		Header:        headerOf(h.fields),
		ContentLength: x.back.length,
		Body:          http.NoBody,
		Request:       x.req,
		Close:         !h.keepsAlive(),
	}
	res.Proto, res.ProtoMajor, res.ProtoMinor = protoOf(h)
	if x.back.body != nil {
		x.resBody = &viewBody{r: x.back.body}
		res.Body = x.resBody
		if h.lists("Transfer-Encoding", "chunked") {
			res.TransferEncoding = []string{"chunked"}
		}
	}
	x.res = res
}

func protoOf(h *head) (proto string, major, minor int) {
	switch h.proto {
	case "HTTP/2":
		return "HTTP/2.0", 2, 0
	case "HTTP/1.0":
		return h.proto, 1, 0
	}
	return h.proto, 1, 1
}

// statusText is net/http's Status: the code and the reason phrase.
func statusText(h *head) string {
	if _, text, ok := strings.Cut(h.start, " "); ok {
		return text
	}
	return strconv.Itoa(h.status) + " " + http.StatusText(h.status)
}

// targetURL is the URL of a request's target, also where the target is no valid URL: then Path holds its bytes.
func targetURL(scheme, authority, target string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: authority}
	path, query, ok := strings.Cut(target, "?")
	u.RawQuery, u.ForceQuery = query, ok && query == ""
	u.Path = path
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			u.Path, u.RawPath = plain, path
		}
	}
	return u
}

// headerOf returns the fields as net/http keeps them, without those that it keeps elsewhere.
func headerOf(fields []field) http.Header {
	header := make(http.Header, len(fields))
	values := make([]string, len(fields))
	for i := range fields {
		f := &fields[i]
		if !inHeader(f.name) {
			continue
		}
		key := textproto.CanonicalMIMEHeaderKey(f.name)
		if have, ok := header[key]; ok {
			header[key] = append(have, f.value)
			continue
		}
		values[i] = f.value
		header[key] = values[i : i+1 : i+1]
	}
	return header
}

// inHeader reports whether a field stands in a view's Header.
func inHeader(name string) bool {
	return name != "" && name[0] != ':' && !strings.EqualFold(name, "Host") && !strings.EqualFold(name, "Transfer-Encoding")
}

// viewBody is the sender's body as modifiers see it. Untouched, the relay passes the sender's bytes on as they come.
type viewBody struct {
	mu     sync.Mutex
	r      io.Reader
	read   bool
	err    error // the last Read's, which every later one repeats: what follows on the connection is not the body's
	closed bool
}

func (b *viewBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	b.read = true
	n, err := b.r.Read(p)
	b.err = err
	return n, err
}

// Close lets nothing more be read through the view.
func (b *viewBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// touched reports whether anything was read through the view, so that the sender's bytes alone are no longer the body.
func (b *viewBody) touched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read
}

// trailers returns what tells the trailers that came after the body, if it was read to its end: a modifier that wraps the body lets them pass, one
// that replaces it does not. Both b and of may be nil.
func (b *viewBody) trailers(of func() []field) func() []field {
	if b == nil || of == nil {
		return nil
	}
	return func() []field {
		if !b.ended() {
			return nil
		}
		return of()
	}
}

// ended reports whether the body was read to its end.
func (b *viewBody) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF
}

// failed reports whether reading ended otherwise than with the body.
func (b *viewBody) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}
