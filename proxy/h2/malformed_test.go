package h2

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// forged are fields that would be several, or others, for whoever reads the list as lines. RFC 9113, section 8.2.1.
var forged = []hpack.HeaderField{
	{Name: "cookie", Value: "a\r\nb: c"},
	{Name: "cookie", Value: "a\nb: c"},
	{Name: "cookie", Value: "a\rb"},
	{Name: "cookie", Value: "a\x00b"},
	{Name: "x\r\ncookie", Value: "a"},
	{Name: "x\x00", Value: "a"},
	{Name: "content-length\x0b", Value: "3"},
	{Name: "x\x7f", Value: "a"},
	{Name: "x: y\ncookie", Value: "a"},
	{Name: "x:cookie", Value: "a"},
	{Name: ":x:cookie", Value: "a"},
	{Name: " cookie", Value: "a"},
	{Name: "", Value: "cookie: a"},
	{Name: ":path", Value: "/\nb: c"},
}

// send sends a field list, the end of which is a field that both compression contexts keep.
func (e *end) send(id uint32, endStream bool, text string, more ...hpack.HeaderField) {
	e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: e.encode(append(append(fields(text), more...), hpack.HeaderField{Name: "x-kept", Value: fmt.Sprint(id)})), EndStream: endStream, EndHeaders: true})
}

func TestMalformedRequestIsReset(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	id := uint32(1)
	for _, f := range forged {
		r.client.send(id, true, get, f)
		r.client.want(fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id))
		id += 2
	}
	r.watch.until(t, "the refusals", func() bool { return len(r.watch.refused) == len(forged) })
	for i, why := range r.watch.refused {
		if !strings.Contains(why, "the client sent") || strings.Contains(why, "b: c") {
			t.Errorf("%q: %s", forged[i], why)
		}
	}
	// The compression state is right, and what is not malformed in this sense passes.
	r.client.send(id, false, get+" x-kept=1 x-kept=3 x=\x01")
	r.upstream.want(fmt.Sprintf("HEADERS %d %s x-kept=1 x-kept=3 x=\x01 x-kept=%d", id, get, id))
	r.client.send(id, true, "", forged[0]) // trailers
	r.client.want(fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id))
	r.upstream.want(fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id))
	r.watch.until(t, "the end", func() bool { return r.watch.streams[0].closed != nil })
	if c := r.watch.streams[0].closed; c.By != Client || !strings.Contains(c.Err.Error(), "the client sent a CR, LF or NUL in the value of the field cookie") || r.watch.streams[0].trailers[Request] != "" {
		t.Errorf("closed by %v: %v", c.By, c.Err)
	}
}

func TestMalformedResponseIsReset(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	id := uint32(1)
	for i, f := range forged {
		r.client.headers(id, true, get)
		r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
		switch i % 3 {
		case 0:
			r.upstream.send(id, false, ":status=200", f)
		case 1:
			r.upstream.send(id, false, ":status=103", f)
		case 2:
			r.upstream.headers(id, false, ":status=200")
			r.client.want(fmt.Sprintf("HEADERS %d :status=200", id))
			r.upstream.send(id, true, "", f)
		}
		r.client.want(fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id))
		r.upstream.want(fmt.Sprintf("RST_STREAM %d PROTOCOL_ERROR", id))
		r.watch.until(t, "the end", func() bool { return r.watch.streams[i].closed != nil })
		if c := r.watch.streams[i].closed; c.By != Upstream || !strings.Contains(c.Err.Error(), "upstream sent") || r.watch.streams[i].trailers[Response] != "" {
			t.Errorf("%q: closed by %v: %v", f, c.By, c.Err)
		}
		id += 2
	}
	r.client.headers(id, true, get)
	r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
	r.upstream.send(id, true, ":status=200 x-kept=1")
	r.client.want(fmt.Sprintf("HEADERS %d end :status=200 x-kept=1 x-kept=%d", id, id))
}

func TestLegible(t *testing.T) {
	for _, f := range forged {
		text := string(Text(Legible([]hpack.HeaderField{{Name: "a", Value: "b"}, f})))
		if strings.Count(text, "\n") != 2 || strings.ContainsAny(text, "\r\x00\x0b\x7f") || strings.Contains(text, "\n ") {
			t.Errorf("%q: got %q", f, text)
		}
	}
	if got, want := Legible([]hpack.HeaderField{{Name: "x y:z", Value: "a\r\nb: c"}})[0], (hpack.HeaderField{Name: `x\x20y\x3az`, Value: `a\r\nb: c`}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
