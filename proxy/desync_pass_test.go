package proxy

import "strings"

// passingDesyncs are requests that look like an attack and have one meaning: they pass, byte for byte.
var passingDesyncs = []desync{
	{
		name: "a request inside a body", why: "it is the body's, whatever it looks like",
		send:   post + "Content-Length: 34\r\n\r\n" + smuggle,
		origin: []exchanged{{post + "Content-Length: 34\r\n\r\n" + smuggle, ok, false}}, client: ok,
	},
	{
		name: "a request inside a chunk", why: "the same",
		send:   post + "Transfer-Encoding: chunked\r\n\r\n22\r\n" + smuggle + "\r\n0\r\n\r\n",
		origin: []exchanged{{post + "Transfer-Encoding: chunked\r\n\r\n22\r\n" + smuggle + "\r\n0\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "GET with a body", why: "some think that GET has none, and read it as a request",
		send:   "GET @/a HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 34\r\n\r\n" + smuggle,
		origin: []exchanged{{"GET @/a HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 34\r\n\r\n" + smuggle, ok, false}}, client: ok,
	},
	{
		name: "HEAD with a body", why: "the request has one, though the response does not",
		send:   "HEAD @/a HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 34\r\n\r\n" + smuggle,
		origin: []exchanged{{"HEAD @/a HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 34\r\n\r\n" + smuggle, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false}}, client: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
	},
	{
		name: "no length and a body", why: "without framing a request ends with its head (CL.0): what follows is the next one, to whatever host it names",
		send:   post + "\r\n" + "GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n",
		origin: []exchanged{{post + "\r\n", ok, false}, {"GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n", ok, false}}, client: ok + ok,
	},
	{
		name: "a length of 0 and a body", why: "the same (0.CL)",
		send:   post + "Content-Length: 0\r\n\r\n" + "GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n",
		origin: []exchanged{{post + "Content-Length: 0\r\n\r\n", ok, false}, {"GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n", ok, false}}, client: ok + ok,
	},
	{
		name: "one length twice", why: "both say the same",
		send:   post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
		origin: []exchanged{{post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", ok, false}}, client: ok,
	},
	{
		name: "chunked in another case behind a tab", why: "codings are case-insensitive, and a tab is white space",
		send:   post + "transfer-encoding:\tCHUNKED \t\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		origin: []exchanged{{post + "transfer-encoding:\tCHUNKED \t\r\n\r\n2\r\nhi\r\n0\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "framing in trailers", why: "trailers frame nothing",
		send:   post + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 34\r\nTransfer-Encoding: chunked\r\n\r\n" + "GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n",
		origin: []exchanged{{post + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 34\r\nTransfer-Encoding: chunked\r\n\r\n", ok, false}, {"GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n", ok, false}}, client: ok + ok,
	},
	{
		name: "extensions that look like chunks", why: "an extension ends with its line, quotes or not",
		send:   post + "Transfer-Encoding: chunked\r\n\r\n2;a=\"0;\t5\"\r\nhi\r\n0;0\r\n\r\n",
		origin: []exchanged{{post + "Transfer-Encoding: chunked\r\n\r\n2;a=\"0;\t5\"\r\nhi\r\n0;0\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "sizes with zeros before them", why: "a reader of 16 digits would stop",
		send:   post + "Transfer-Encoding: chunked\r\n\r\n00000000000000000002\r\nhi\r\n000\r\n\r\n",
		origin: []exchanged{{post + "Transfer-Encoding: chunked\r\n\r\n00000000000000000002\r\nhi\r\n000\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "names that are nearly framing", why: "an underscore is a hyphen to CGI; that is the origin's affair",
		send:   post + "Content_Length: 34\r\nX-Transfer-Encoding: chunked\r\n\r\n",
		origin: []exchanged{{post + "Content_Length: 34\r\nX-Transfer-Encoding: chunked\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "lone line feeds in a head", why: "RFC 9112, section 2.2, lets them end a line; they pass as they are",
		send:   "GET @/a HTTP/1.1\nHost: ADDR\nA: b\n\n",
		origin: []exchanged{{"GET @/a HTTP/1.1\nHost: ADDR\nA: b\n\n", ok, false}}, client: ok,
	},
	{
		name: "empty lines before a request", why: "old clients send one behind a body; none is passed on",
		send:   post + "Content-Length: 2\r\n\r\nhi\r\n\r\n" + "GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n",
		origin: []exchanged{{post + "Content-Length: 2\r\n\r\nhi", ok, false}, {"GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n", ok, false}}, client: ok + ok,
	},
	{
		name: "Expect and the body at once", why: "100 is upstream's to say, and counts as no answer",
		send:   post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		origin: []exchanged{{post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 100 Continue\r\n\r\n" + ok, false}}, client: "HTTP/1.1 100 Continue\r\n\r\n" + ok,
	},
	{
		name: "Expect twice, and another", why: "a proxy that answers it may answer twice",
		send:   "GET @/a HTTP/1.1\r\nHost: ADDR\r\nExpect: y 100-continue\r\nExpect: 100-continue\r\n\r\n",
		origin: []exchanged{{"GET @/a HTTP/1.1\r\nHost: ADDR\r\nExpect: y 100-continue\r\nExpect: 100-continue\r\n\r\n", ok, false}}, client: ok,
	},
	{
		name: "Connection names Content-Length", why: "a proxy that removes what Connection names removes the framing",
		send:   post + "Connection: Content-Length, keep-alive\r\nContent-Length: 34\r\n\r\n" + smuggle,
		origin: []exchanged{{post + "Connection: Content-Length, keep-alive\r\nContent-Length: 34\r\n\r\n" + smuggle, ok, false}}, client: ok,
	},
}

const (
	asked   = "GET @/a HTTP/1.1\r\nHost: ADDR\r\n\r\n"
	asking2 = "HEAD @/a HTTP/1.1\r\nHost: ADDR\r\n\r\n"
	evil    = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
)

// responseDesyncs are responses whose end could be found elsewhere. What follows on the client's connection may be another origin's.
var responseDesyncs = func() (list []desync) {
	// raw passes to the connection's end; what the origin says after is part of it.
	raw := func(name, why, answer string) {
		list = append(list, desync{name: name, why: why, send: asked, origin: []exchanged{{asked, answer + evil, true}}, client: answer + evil, flag: true, close: true})
	}
	raw("two lengths in a response", "some take the first, some the last", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\nok")
	raw("a bad length in a response", "strtol takes it", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok")
	raw("a length beyond 64 bits in a response", "it wraps to 2", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nok")
	raw("chunked before the end", "who takes off chunks finds an end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n")
	raw("chunked in an HTTP/1.0 response", "it knows no chunks", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	raw("CR in a response's field", "to some it ends the head", "HTTP/1.1 200 OK\r\nX: a\r\r\nContent-Length: 2\r\n\r\nok")
	raw("NUL in a response's field", "some end the head there", "HTTP/1.1 200 OK\r\nX: a\x00\r\nContent-Length: 2\r\n\r\nok")
	raw("folded framing in a response", "some do not unfold", "HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok")
	raw("space before the colon in a response", "to some the name is another", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok")
	raw("a switch of protocols that nobody asked for", "the client's next request would go to this origin, whatever host it names", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")

	// ended is a response with one most likely end, and nothing behind it.
	ended := func(name, why, send, answer, client string) {
		list = append(list, desync{name: name, why: why, send: send, origin: []exchanged{{send, answer + evil, false}}, client: client, flag: true, close: true})
	}
	for _, v := range [][4]string{
		{"LF in a response's chunks", "to some the line goes on to the CR", asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nok\r\n0\r\n\r\n"},
		{"LF ends a response's chunks", "to some the response is not over", asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\n\n"},
		{"text behind a size in a response", "some read 20", asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 0\r\nok\r\n0\r\n\r\n"},
		{"identity and a length", "to some there is no length", asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"},
		{"CR in a head without a body", "to some the head is over before, and the rest another response", asking2, "HTTP/1.1 200 OK\r\nX: a\r\rHTTP/1.1 200 OK\r\n\r\n"},
	} {
		ended(v[0], v[1], v[2], v[3], v[3])
	}
	ended("CR in an interim response", "to some it is over before, and the rest the response", asked, "HTTP/1.1 103 Early Hints\r\nX: a\r\rHTTP/1.1 200 OK\r\n\r\n"+ok, "HTTP/1.1 103 Early Hints\r\nX: a\r\rHTTP/1.1 200 OK\r\n\r\n"+ok)

	// surplus is a response with one end, and bytes behind it: they reach nobody, and the connection that they came on is done with.
	surplus := func(name, why, send, answer string, client string) {
		list = append(list, desync{name: name, why: why, send: send, origin: []exchanged{{send, answer, false}}, client: client, flag: true, last: true})
	}
	surplus("a second response", "the next request would get it (response splitting)", asked, ok+evil, ok)
	surplus("a body after HEAD", "the next request would get it", asking2, ok, strings.TrimSuffix(ok, "ok"))
	surplus("a body after 204", "the next request would get it", asked, "HTTP/1.1 204 No Content\r\nContent-Length: 40\r\n\r\n"+evil, "HTTP/1.1 204 No Content\r\nContent-Length: 40\r\n\r\n")
	surplus("chunks after 204", "the same", asked, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n")
	surplus("a body after 304", "the next request would get it", asked, "HTTP/1.1 304 Not Modified\r\nContent-Length: 40\r\n\r\n"+evil, "HTTP/1.1 304 Not Modified\r\nContent-Length: 40\r\n\r\n")
	surplus("an empty line after a body", "the next response would begin with it", asked, ok+"\r\n", ok)

	return append(list,
		desync{
			name: "both framings in a response", why: "whoever reads the length finds another end: it is not passed on",
			send: asked, origin: []exchanged{{asked, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false}},
			client: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", flag: true,
		},
		desync{
			name: "HEAD with both framings", why: "it has no body, whatever its fields say, and they pass",
			send: asking2, origin: []exchanged{{asking2, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", false}},
			client: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		},
		desync{
			name: "a flood of 1xx", why: "each is no answer; the one after them is",
			send: asked, origin: []exchanged{{asked, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 100) + ok, false}},
			client: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 100) + ok,
		},
		desync{
			name: "1xx with a body", why: "it has none: what follows is no response",
			send: asked, origin: []exchanged{{asked, "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello" + ok, false}},
			client: "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", refuse: "upstream's answer is not HTTP",
		},
		desync{
			name: "two requests at once, the first answered with both framings", why: "the second must get its own answer",
			send:   asked + "GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n",
			origin: []exchanged{{asked, "HTTP/1.1 200 OK\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false}, {"GET @/b HTTP/1.1\r\nHost: ADDR\r\n\r\n", ok, false}},
			client: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + ok, flag: true,
		},
		desync{
			name: "an answer without a head", why: "HTTP/0.9 has none, and its end is the connection's",
			send: asked, origin: []exchanged{{asked, "<html>" + evil, true}}, refuse: "upstream's answer is not HTTP",
		},
		desync{
			name: "a chunk of a response that is too large", why: "it wraps to 2: the response is broken, not over",
			send: asked, origin: []exchanged{{asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nok\r\n0\r\n\r\n" + evil, false}},
			client: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000", close: true,
		},
		desync{
			name: "a chunk of a response that is longer than its size", why: "some skip two bytes, whatever they are",
			send: asked, origin: []exchanged{{asked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n" + evil, false}},
			client: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok", close: true,
		},
	)
}()
