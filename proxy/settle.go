package proxy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// settleRequest compares the request's view with the request as it was offered, and sets what is to be sent.
func (x *exchange) settleRequest() error {
	x.answered = x.martian.SkippingRoundTrip()
	if x.p.cfg.RequestModifier == nil {
		return nil
	}
	r, h := x.req, x.in.head
	x.moved = !x.answered && (r.URL.Scheme != x.reqURL.Scheme || r.URL.Host != x.reqURL.Host)
	fields, changed, err := mergeFields(h, r.Header)
	if err != nil {
		return err
	}
	method, target := h.method, h.target
	if r.Method != method {
		method, changed = r.Method, true
	}
	if u := *r.URL; u.Path != x.reqURL.Path || u.RawPath != x.reqURL.RawPath || u.RawQuery != x.reqURL.RawQuery {
		target, changed = r.URL.RequestURI(), true
	}
	if !isToken(method) || target == "" || strings.ContainsAny(target, " \t\r\n") {
		return errors.New("a modifier set a method or target that cannot stand in a request line")
	}
	if r.Host != x.reqHost {
		if !validValue(r.Host) {
			return errors.New("a modifier set a Host that would end its line")
		}
		changed = true
		if h.proto == "HTTP/2" {
			fields = setField(fields, ":authority", r.Host)
		} else {
			fields = setField(fields, "Host", r.Host)
		}
	}
	body, length, replaced := x.settleBody(x.reqBody, r.Body, x.in.length, r.ContentLength)
	if replaced && body != http.NoBody && length < 0 && h.proto == "HTTP/1.0" {
		return errors.New("a modifier gave an HTTP/1.0 request a body of unknown length, which cannot be sent")
	}
	if replaced && !x.moved && !x.answered {
		fields, changed = reframe(h, fields, length, body == http.NoBody && x.reqBody == nil), true
		x.sent.body, x.sent.length, x.sent.trailers = body, length, x.reqBody.trailers(x.in.trailers)
	}
	if !changed {
		return nil
	}
	start := method + " " + target + " " + h.proto
	if h.proto == "HTTP/2" {
		start = ""
		fields = setField(setField(fields, ":method", method), ":path", target)
	}
	x.sent.head = h.with(start, fields)
	x.sent.head.method, x.sent.head.target = method, target
	return nil
}

// settleResponse does the same for the response. A response from elsewhere has no head yet, and gets one.
func (x *exchange) settleResponse() error {
	res, h := x.res, x.back.head
	if h == nil {
		return x.settleForeign()
	}
	if x.p.cfg.ResponseModifier == nil {
		return nil
	}
	fields, changed, err := mergeFields(h, res.Header)
	if err != nil {
		return err
	}
	start := h.start
	if res.StatusCode != h.status || res.Status != statusText(h) && h.proto != "HTTP/2" {
		if start, err = statusLine(h.proto, h.status, statusText(h), res); err != nil {
			return err
		}
		changed = true
	}
	body, length, replaced := x.settleBody(x.resBody, res.Body, x.back.length, res.ContentLength)
	was, is := bodyless(x.req.Method, h.status), bodyless(x.req.Method, res.StatusCode)
	switch {
	case is && !was: // the status allows no body: what came is dropped
		body, length, replaced = http.NoBody, 0, true
		fields = dropFraming(fields)
	case is:
		replaced = false
	case was && !replaced: // the status needs a body, or to say that there is none
		body, length, replaced = http.NoBody, 0, true
		fields = reframe(h, fields, 0, false)
	case replaced:
		fields = reframe(x.forClient(h), fields, length, false)
	}
	if replaced {
		changed = true
		x.got.body, x.got.length, x.got.trailers = body, length, x.resBody.trailers(x.back.trailers)
	}
	if !changed {
		return nil
	}
	if h.proto == "HTTP/2" {
		start = ""
		fields = setField(fields, ":status", strconv.Itoa(res.StatusCode))
	}
	x.got.head = h.with(start, fields)
	x.got.head.status = res.StatusCode
	return nil
}

// settleForeign makes the head of a response that did not come from the request's upstream. Its fields have no order: they are sorted.
func (x *exchange) settleForeign() error {
	res := x.res
	h := &head{proto: "HTTP/1.1", eol: "\r\n"}
	if x.in.head.proto == "HTTP/2" {
		h = &head{proto: "HTTP/2", fields: []field{{name: ":status", value: strconv.Itoa(res.StatusCode)}}}
	}
	fields, _, err := mergeFields(h, res.Header)
	if err != nil {
		return err
	}
	start := ""
	if h.proto != "HTTP/2" {
		if start, err = statusLine(h.proto, 0, "", res); err != nil {
			return err
		}
	}
	body, length := res.Body, res.ContentLength
	switch {
	case bodyless(x.req.Method, res.StatusCode):
		// HEAD and 304 tell the length of what they do not carry.
		if length > 0 && res.StatusCode != http.StatusNoContent {
			fields = reframe(h, fields, length, false)
		}
		body, length = http.NoBody, 0
	case body == nil || body == http.NoBody:
		body, length = http.NoBody, 0
		fields = reframe(h, fields, 0, false)
	default:
		if length == 0 && x.answered {
			length = -1 // a modifier that set a body and did not say how long it is
		}
		fields = reframe(x.forClient(h), fields, length, false)
		if names := slices.Sorted(maps.Keys(res.Trailer)); length < 0 && len(names) > 0 && x.in.head.proto != "HTTP/1.0" {
			if slices.ContainsFunc(names, func(name string) bool { return !isToken(name) }) {
				return errors.New("a modifier set a trailer whose name is no token")
			}
			fields = append(fields, field{name: h.fieldName("Trailer"), value: strings.Join(names, ", ")})
		}
	}
	h = h.with(start, fields)
	h.status = res.StatusCode
	if body != http.NoBody {
		body = &guardedBody{x, body}
	}
	x.got = verdict{head: h, body: body, length: length, trailers: func() []field {
		fields, _, err := mergeFields(&head{proto: h.proto}, res.Trailer)
		if err != nil {
			return nil // of a modifier's: what it set is no trailer
		}
		return fields
	}}
	return nil
}

// forClient is h as the client's version of HTTP lets it be framed: HTTP/1.0 knows no chunked coding. RFC 9112, section 6.1.
func (x *exchange) forClient(h *head) *head {
	if x.in.head.proto != "HTTP/1.0" {
		return h
	}
	old := *h
	old.proto = x.in.head.proto
	return &old
}

// settleBody says whether a view's body was replaced, or read from, and by what. A length that the modifier did not set is not believed.
func (x *exchange) settleBody(was *viewBody, now io.ReadCloser, lengthWas, lengthNow int64) (body io.ReadCloser, length int64, replaced bool) {
	if now == nil {
		now = http.NoBody
	}
	switch {
	case was == nil && now == http.NoBody:
		return nil, 0, false
	case was != nil && now == io.ReadCloser(was) && !was.touched():
		return nil, 0, false
	case now == http.NoBody:
		return now, 0, true
	case lengthNow > 0 && lengthNow != lengthWas:
		return &guardedBody{x, now}, lengthNow, true
	}
	return &guardedBody{x, now}, -1, true
}

// guardedBody is a modifier's body. It may be read beside the pipeline, where a panic would end the process: here it becomes an error.
type guardedBody struct {
	x *exchange
	io.ReadCloser
}

func (b *guardedBody) Read(p []byte) (n int, err error) {
	failed := b.x.guard(b.ReadCloser, func() error {
		n, err = b.ReadCloser.Read(p)
		return nil
	})
	if failed != nil {
		return 0, failed
	}
	return n, err
}

// mergeFields returns h's fields as header has them: lines whose values did not change stay as they are, changed values stand at the place of the
// first old line, new names follow at the end in alphabetical order. Framing fields are the relay's: what header says of them is ignored.
func mergeFields(h *head, header http.Header) (fields []field, changed bool, err error) {
	was := headerOf(h.fields)
	done := make(map[string]bool)
	fields = make([]field, 0, len(h.fields))
	for _, f := range h.fields {
		key := textproto.CanonicalMIMEHeaderKey(f.name)
		if !inHeader(f.name) || framingField(f.name) || slices.Equal(was[key], header[key]) {
			fields = append(fields, f)
			continue
		}
		changed = true
		if done[key] {
			continue
		}
		done[key] = true
		for _, v := range header[key] {
			fields = append(fields, field{name: f.name, value: v, sensitive: f.sensitive})
			if !validValue(v) {
				return nil, false, fmt.Errorf("a modifier set the field %s to what would end its line", f.name)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(header)) {
		if _, ok := was[textproto.CanonicalMIMEHeaderKey(key)]; ok || !inHeader(key) || framingField(key) {
			continue
		}
		name := h.fieldName(key)
		for _, v := range header[key] {
			if !isToken(key) {
				return nil, false, errors.New("a modifier set a field whose name is no token")
			}
			if !validValue(v) {
				return nil, false, fmt.Errorf("a modifier set the field %s to what would end its line", key)
			}
			changed = true
			fields = append(fields, field{name: name, value: v})
		}
	}
	return fields, changed, nil
}

// fieldName is the name of a field that a modifier made, as h's version of HTTP writes it.
func (h *head) fieldName(name string) string {
	if h.proto == "HTTP/2" {
		return strings.ToLower(name) // RFC 9113, section 8.2
	}
	return name
}

// validValue reports whether v can stand in a field without ending it.
func validValue(v string) bool { return !strings.ContainsAny(v, "\r\n\x00") }

// setField replaces the first field of that name and drops the others; where there is none, it comes first. A value that stands already is left alone.
func setField(fields []field, name, value string) []field {
	out := make([]field, 0, len(fields)+1)
	found := false
	for _, f := range fields {
		if !strings.EqualFold(f.name, name) {
			out = append(out, f)
			continue
		}
		if !found {
			if f.value != value {
				f.value, f.line = value, ""
			}
			out = append(out, f)
			found = true
		}
	}
	if !found {
		out = slices.Insert(out, 0, field{name: name, value: value})
	}
	return out
}

// reframe returns fields with the framing that a new body needs, at the place of the old: Content-Length, or chunked coding where length is -1.
// With none, the message has no body and needs no framing. Announced trailers do not come any more where the framing has no place for them.
func reframe(h *head, fields []field, length int64, none bool) []field {
	at := slices.IndexFunc(fields, func(f field) bool { return framingField(f.name) })
	if none || length >= 0 || h.proto == "HTTP/1.0" {
		fields = dropFraming(fields)
	} else {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return framingField(f.name) })
	}
	if at < 0 || at > len(fields) {
		at = len(fields)
	}
	switch {
	case none, length < 0 && h.proto == "HTTP/2", length < 0 && h.proto == "HTTP/1.0":
		return fields
	case length < 0:
		return slices.Insert(fields, at, field{name: "Transfer-Encoding", value: "chunked"})
	case h.proto == "HTTP/2":
		return slices.Insert(fields, at, field{name: "content-length", value: strconv.FormatInt(length, 10)})
	}
	return slices.Insert(fields, at, field{name: "Content-Length", value: strconv.FormatInt(length, 10)})
}

func dropFraming(fields []field) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool {
		return framingField(f.name) || strings.EqualFold(f.name, "Trailer")
	})
}

// statusLine is the status line for what a modifier made of the response.
func statusLine(proto string, codeWas int, textWas string, res *http.Response) (string, error) {
	if res.StatusCode < 200 || res.StatusCode > 999 {
		return "", fmt.Errorf("a modifier set the status %d", res.StatusCode)
	}
	code := strconv.Itoa(res.StatusCode)
	reason := http.StatusText(res.StatusCode)
	if rest, ok := strings.CutPrefix(res.Status, code+" "); ok && res.Status != textWas && validValue(rest) {
		reason = rest
	}
	return proto + " " + code + " " + reason, nil
}
