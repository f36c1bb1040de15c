package wire

import (
	"slices"
	"strings"

	"golang.org/x/net/http2"
)

const lowerCase = "Names are in lower case on the wire of HTTP/2 (RFC 9113, section 8.2.1); no relay can keep what is not there."

var fieldCases = []wireCase{
	wireCase{
		slug: "names-keep-their-case", sources: "ProxymanApp/proxyman-windows-linux#501 denandz/glorp#23 golang/go#21868",
		elsewhere: "Names come out in lower case, or in a case that the library likes.",
		here:      "Names, the spaces around values, and the order of fields pass byte for byte.",
		http2:     not(lowerCase),
	}.http1(nameCase),
	wireCase{
		slug: "set-cookie", sources: "ProxymanApp/Proxyman#213 mitmproxy/mitmproxy#1143",
		elsewhere: "Of several Set-Cookie fields one is left, or they are joined by commas, which dates hold too.",
		here:      "Each is a field of its own, in its place.",
		http2:     by(setCookies2),
	}.http1(setCookies),
	wireCase{
		slug: "latin-1", sources: "mitmproxy/mitmproxy#784 mitmproxy/mitmproxy#7561 mitmproxy/mitmproxy#1849",
		elsewhere: "A byte beyond ASCII in a value or in a reason phrase is an error.",
		here:      "It passes, and the session holds it as one character.",
		http2:     by(latinOne2),
	}.http1(latinOne),
	wireCase{
		slug: "empty-value", sources: "mitmproxy/mitmproxy#957",
		elsewhere: "A field without a value is answered with 502.",
		here:      "It passes.",
		http2:     by(emptyValue2),
	}.http1(emptyValue),
	wireCase{
		slug: "bad-name", sources: "mitmproxy/mitmproxy#7345",
		elsewhere: "A name that is no token makes the proxy refuse the message.",
		here:      "It passes, and the session is flagged. Over HTTP/2 the message is malformed: its stream is reset, as its receiver would do without a proxy, and the session says why.",
		http2:     by(badName2),
	}.http1(badName),
	wireCase{
		slug: "control-byte", sources: "joeferner/node-http-mitm-proxy#139",
		elsewhere: "A 0x01 in a cookie ends the process.",
		here:      "It passes. What HTTP/1 and HTTP/2 forbid because it would be read as two fields, CR, LF and NUL, does not.",
		http2:     by(controlByte2),
	}.http1(controlByte),
}

func nameCase(r *run) {
	const fields = "x-some-header: 1\r\nETag:\"a\"\r\nX-REQUEST-id:   two  spaces\t\r\nx-Some-Header: 2\r\nWWW-authenticate: Basic\r\n"
	s := r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\n" + fields + "\r\n",
		response: "HTTP/1.1 200 oK then\r\n" + fields + "content-length: 0\r\n\r\n",
	})
	r.expectDone(s, 200)
	if !strings.Contains(s.Request.Head, fields) || s.Response.Head != "HTTP/1.1 200 oK then\r\n"+fields+"content-length: 0\r\n\r\n" {
		r.Errorf("heads are %q and %q", s.Request.Head, s.Response.Head)
	}
}

var cookies = []string{
	"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2; Expires=Thu, 22 Oct 2026 07:28:00 GMT; Path=/", "c=3",
}

func setCookies(r *run) {
	fields := ""
	for _, c := range cookies {
		fields += "Set-Cookie: " + c + "\r\n"
	}
	s := r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + fields + "Content-Length: 0\r\n\r\n",
	})
	r.expectDone(s, 200)
	r.expectCookies(s.Response.Fields)
}

func setCookies2(r *run) {
	var fields []string
	for _, c := range cookies {
		fields = append(fields, "set-cookie", c)
	}
	s := r.pass2(stream2{request: []string{"cookie", "a=1", "cookie", "b=2"}, response: fields})
	r.expectDone(s, 200)
	r.expectCookies(s.Response.Fields)
}

func (r *run) expectCookies(fields [][2]string) {
	r.Helper()
	var got []string
	for _, f := range fields {
		if strings.EqualFold(f[0], "set-cookie") {
			got = append(got, f[1])
		}
	}
	if !slices.Equal(got, cookies) {
		r.Errorf("session tells the cookies %q, want %q", got, cookies)
	}
}

func latinOne(r *run) {
	s := r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX: caf\xe9\r\n\r\n",
		response: "HTTP/1.1 401 Non-Autoris\xe9\r\nX: caf\xe9\r\nY: na\xc3\xafve\r\nContent-Length: 0\r\n\r\n",
	})
	r.expectDone(s, 401)
	if want := latin1("HTTP/1.1 401 Non-Autoris\xe9\r\nX: caf\xe9\r\nY: na\xc3\xafve\r\nContent-Length: 0\r\n\r\n"); s.Response.Head != want {
		r.Errorf("head is %q, want %q", s.Response.Head, want)
	}
	if !slices.Contains(s.Request.Fields, [2]string{"X", latin1("caf\xe9")}) {
		r.Errorf("request fields are %q", s.Request.Fields)
	}
}

func latinOne2(r *run) {
	s := r.pass2(stream2{request: []string{"x", "caf\xe9"}, response: []string{"x", "caf\xe9"}})
	r.expectDone(s, 200)
	if !slices.Contains(s.Response.Fields, [2]string{"x", latin1("caf\xe9")}) {
		r.Errorf("response fields are %q", s.Response.Fields)
	}
}

func emptyValue(r *run) {
	r.expectDone(r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\nPragma:\r\nX-Space: \r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nPragma:\r\nContent-Length: 0\r\n\r\n",
	}), 200)
}

func emptyValue2(r *run) {
	r.expectDone(r.pass2(stream2{request: []string{"pragma", ""}, response: []string{"pragma", ""}}), 200)
}

func badName(r *run) {
	s := r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\nX-\xc3\xa4: 1\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\na=b; c Server: x\r\nContent-Length: 2\r\n\r\nhi",
	})
	r.expectDone(s, 200)
	r.expectBody(s, "response", "hi")
	r.expectFlag(s, "odd_name", true)
	if !slices.Contains(s.Response.Fields, [2]string{"a=b; c Server", "x"}) {
		r.Errorf("response fields are %q", s.Response.Fields)
	}
}

// badName2 expects what a client without a proxy does with such a response, too: its stream is reset (RFC 9113, section 8.1.1).
func badName2(r *run) {
	addr := r.listen2(func(p *peer2) error {
		m, err := p.message()
		if err != nil {
			return err
		}
		p.send(m.stream, []string{":status", "200", "a=b; c server", "x"}, "hi", nil)
		_, err = p.message()
		return expectReset(err, http2.ErrCodeProtocol)
	})
	c := r.dial2(addr)
	c.send(1, pseudo("GET", addr, r.path), "", nil)
	_, err := c.message()
	r.must(expectReset(err, http2.ErrCodeProtocol))
	if s := r.session(); s.State != "upstream_aborted" && s.State != "failed" || s.Error == "" {
		r.Errorf("session is %s (%s)", s.State, s.Error)
	}
}

func controlByte(r *run) {
	r.expectDone(r.pass(exchange{
		request:  "GET TARGET HTTP/1.1\r\nHost: HOST\r\nCookie: a=\x01\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nSet-Cookie: a=\x01\x7f; Path=/\r\nContent-Length: 0\r\n\r\n",
	}), 200)
}

func controlByte2(r *run) {
	r.expectDone(r.pass2(stream2{request: []string{"cookie", "a=\x01"}, response: []string{"set-cookie", "a=\x01\x7f; Path=/"}}), 200)
}
