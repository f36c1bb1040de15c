package proxy

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"millpond/storage"
)

// desync is an attempt to make the client, the proxy and the origin disagree on where a message ends. In send an @ is what a target begins with: the origin's
// URL, or nothing inside a tunnel; the origin never gets it. ADDR is the origin's address.
type desync struct {
	name string
	why  string // what goes wrong elsewhere

	send   string
	origin []exchanged // by turn
	cut    string      // what the origin gets after that, before its connection ends
	held   string      // the end of cut that does not go on where the request is to the proxy itself: its trailers wait until all came
	client string      // what the client gets; "" where it is refused
	refuse string      // the client gets a 400, or a 502 after what client says, with this in it

	flag  bool // a session is flagged as ambiguous
	close bool // the client's connection ends with it; else it serves another request
	last  bool // the connection to the origin ends with it, and a tunnel's client has no other
}

// exchanged is what the origin gets, and then answers.
type exchanged struct {
	got, answer string
	ends        bool // the origin closes the connection after it
}

const (
	ok      = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	post    = "POST @/a HTTP/1.1\r\nHost: ADDR\r\n"
	smuggle = "GET /evil HTTP/1.1\r\nHost: evil\r\n\r\n"
)

// scene is an origin that takes part in a vector, and writes down every byte that it gets.
type scene struct {
	addr     string
	conns    sync.WaitGroup
	accepted chan string // from which address, one after the other

	mu     sync.Mutex
	script []exchanged
	turn   int
	got    string
}

func startScene(t *testing.T) *scene {
	s := &scene{accepted: make(chan string, 64)}
	l := listenLocal(t)
	s.addr = l.Addr().String()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() {
				s.serve(newPeer(t, nc))
				nc.Close()
			})
			s.accepted <- nc.RemoteAddr().String()
		}
	}()
	return s
}

// serve reads what the script says comes next, and answers it; whatever comes after the last turn it reads to the end.
func (s *scene) serve(c *peerConn) {
	for {
		s.mu.Lock()
		want := -1
		if s.turn < len(s.script) {
			want = len(s.script[s.turn].got)
		}
		s.mu.Unlock()
		from := io.Reader(c.r)
		if want >= 0 {
			from = io.LimitReader(c.r, int64(want))
		}
		b, _ := io.ReadAll(from)
		s.mu.Lock()
		s.got += string(b)
		if len(b) != want {
			s.mu.Unlock()
			return
		}
		e := s.script[s.turn]
		s.turn++
		s.mu.Unlock()
		io.WriteString(c.Conn, e.answer)
		if e.ends {
			return
		}
	}
}

// drained waits until every connection that was made has been served to its end.
func (s *scene) drained(t *testing.T) {
	last, err := net.Dial("tcp", s.addr) // connections are accepted in their order
	if err != nil {
		t.Fatal(err)
	}
	last.Close()
	for from := range s.accepted {
		if from == last.LocalAddr().String() {
			break
		}
	}
	s.conns.Wait()
}

func TestDesync(t *testing.T) {
	if n := len(requestDesyncs) + len(uploadDesyncs) + len(passingDesyncs) + len(responseDesyncs); n < 40 {
		t.Errorf("%d vectors", n)
	}
	for _, mode := range []string{"proxied", "in a tunnel"} {
		t.Run(mode, func(t *testing.T) {
			h := startHarness(t, Config{})
			for _, list := range [][]desync{requestDesyncs, uploadDesyncs, passingDesyncs, responseDesyncs} {
				for _, v := range list {
					t.Run(v.name, func(t *testing.T) { v.play(t, h, mode == "in a tunnel") })
				}
			}
		})
	}
}

// play sends the vector, and then a request that shows whether all three still agree.
func (v desync) play(t *testing.T, h *harness, tunnel bool) {
	s := startScene(t)
	probe := exchanged{"GET @/probe HTTP/1.1\r\nHost: ADDR\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nprobe", false}
	before := h.sessions()
	target := "http://" + s.addr
	if tunnel {
		target = ""
	}
	forClient := strings.NewReplacer("@", target, "ADDR", s.addr).Replace
	forOrigin := strings.NewReplacer("@", "", "ADDR", s.addr).Replace
	ends := v.close || v.refuse != "" || v.last && tunnel
	want := ""
	s.mu.Lock()
	for _, e := range append(append([]exchanged(nil), v.origin...), probe) {
		s.script = append(s.script, exchanged{forOrigin(e.got), e.answer, e.ends})
		want += forOrigin(e.got)
	}
	if ends {
		s.script = s.script[:len(v.origin)]
		cut := v.cut
		if !tunnel {
			cut = strings.TrimSuffix(cut, v.held)
		}
		want = strings.TrimSuffix(want, forOrigin(probe.got)) + forOrigin(cut)
	}
	s.mu.Unlock()
	nc, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := newPeer(t, nc)
	defer c.Close()
	if tunnel {
		c.send("CONNECT " + s.addr + " HTTP/1.1\r\n\r\n")
		c.expect(established)
	}
	c.send(forClient(v.send))
	c.expect(forClient(v.client))
	switch {
	case v.refuse != "":
		status := "HTTP/1.1 400 Bad Request\r\n"
		if len(v.origin) > 0 {
			status = "HTTP/1.1 502 Bad Gateway\r\n"
		}
		if rest, _ := c.rest(); !strings.HasPrefix(rest, status) || !strings.Contains(rest, v.refuse) || strings.Count(rest, "HTTP/1.1 ") != 1 {
			t.Errorf("the client got %q, want %q with %q", rest, status, v.refuse)
		}
	case ends:
		c.expectEnd()
	default:
		c.send(forClient(probe.got))
		c.expect(probe.answer)
	}
	c.Close()
	s.drained(t)
	s.mu.Lock()
	got := s.got
	s.mu.Unlock()
	if got != want {
		t.Errorf("the origin got %q\nwant           %q", got, want)
	}
	flagged := false
	for n := before + 1; n <= h.sessions(); n++ {
		session := (&harness{t: t, p: h.p, store: h.store}).session(uint64(n))
		flagged = flagged || session.HasFlag(storage.FlagAmbiguousFraming)
	}
	if flagged != v.flag {
		t.Errorf("flagged as ambiguous: %v", flagged)
	}
}

// requestDesyncs are requests that are refused before anything goes to the origin.
var requestDesyncs = func() (list []desync) {
	add := func(name, why, head, refuse string) {
		ambiguous := strings.Contains(refuse, "Content-Length") || strings.Contains(refuse, "Transfer-Encoding")
		list = append(list, desync{name: name, why: why, send: head + "\r\n" + smuggle, refuse: refuse, flag: ambiguous && !strings.Contains(refuse, "line") && !strings.Contains(refuse, "to who")})
	}
	const both, differ, bad, end = "both Transfer-Encoding and Content-Length", "the Content-Lengths differ", "a Content-Length is not a length", "the Transfer-Encoding does not end in chunked"
	add("CL.TE", "whoever reads the length first takes the rest for a request", post+"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", both)
	add("TE.CL", "the same, the other way round", post+"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", both)
	add("CL.TE with a bad length", "a length that is none does not make the coding the only one", post+"Transfer-Encoding: chunked\r\nContent-Length: x\r\n", bad)
	add("two lengths", "some take the first, some the last", post+"Content-Length: 0\r\nContent-Length: 33\r\n", differ)
	add("two lengths in one field", "some read the first number", post+"Content-Length: 0, 33\r\n", differ)
	add("length with a plus", "strtol takes it", post+"Content-Length: +33\r\n", bad)
	add("length below zero", "as an unsigned number it is huge", post+"Content-Length: -1\r\n", bad)
	add("length in hex", "strtol of base 0 takes it, base 10 reads 0", post+"Content-Length: 0x21\r\n", bad)
	add("length with a space inside", "some read 3, some 33", post+"Content-Length: 3 3\r\n", bad)
	add("length with text behind it", "atoi stops there", post+"Content-Length: 33;x\r\n", bad)
	add("length beyond 64 bits", "it wraps to 33", post+"Content-Length: 18446744073709551649\r\n", bad)
	add("empty length", "it is 0 to some, absent to others", post+"Content-Length:\r\n", bad)
	add("length behind a vertical tab", "some trim it", post+"Content-Length: \x0b33\r\n", bad)
	add("TE.TE, a second field", "some take the first, some the last", post+"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", end)
	add("TE.TE, one list", "chunked is not the last coding", post+"Transfer-Encoding: chunked, identity\r\n", end)
	add("chunked twice", "some take off one, some both", post+"Transfer-Encoding: chunked, chunked\r\n", end)
	add("identity", "it is no coding any more, and to some it means the length", post+"Transfer-Encoding: identity\r\n", end)
	add("xchunked", "a search for the word finds it", post+"Transfer-Encoding: xchunked\r\n", end)
	add("chunked in quotes", "some unquote", post+"Transfer-Encoding: \"chunked\"\r\n", end)
	add("chunked with a parameter", "some cut it off", post+"Transfer-Encoding: chunked;q=1\r\n", end)
	add("chunked with a vertical tab", "some trim it", post+"Transfer-Encoding: chunked\x0b\r\n", end)
	add("chunked behind a no-break space", "some trim it", post+"Transfer-Encoding: \xa0chunked\r\n", end)
	add("empty coding", "to some the field is absent", post+"Transfer-Encoding:\r\n", end)
	add("chunked in HTTP/1.0", "it knows no chunks", strings.Replace(post, "1.1", "1.0", 1)+"Transfer-Encoding: chunked\r\n", "an HTTP/1.0 request cannot have a Transfer-Encoding")
	add("folded coding", "some do not unfold", post+"Transfer-Encoding:\r\n chunked\r\n", "folded over two lines")
	add("folded length", "some do not unfold", post+"Content-Length: 3\r\n 3\r\n", "folded over two lines")
	add("space before the coding's colon", "to some the name is another", post+"Transfer-Encoding : chunked\r\n", "a space stands before the colon in line 3")
	add("tab before the length's colon", "to some the name is another", post+"Content-Length\t: 33\r\n", "a space stands before the colon in line 3")
	add("control byte behind the name", "some trim it", post+"Transfer-Encoding\x0b: chunked\r\n", "a control byte stands in the name of line 3")
	add("space before the first field", "some take it for a part of the request line", strings.Replace(post, "Host", " Transfer-Encoding: chunked\r\nHost", 1), "the first field line begins with a space")
	add("a line without colon", "some skip it, some stop there", post+"Transfer-Encoding\r\n", "line 3 of the head has no name and colon")
	add("a line with an empty name", "some skip it", post+": chunked\r\n", "line 3 of the head has no name and colon")
	add("CR that ends a line for some", "behind it stands a field", post+"X: a\rTransfer-Encoding: chunked\r\n", "a carriage return stands inside line 3")
	add("CR before the line's end", "the line is empty to some, and the head over", post+"X: a\r\n\r\r\n", "a carriage return stands inside line 4")
	add("CR in the request line", "behind it stands a field", strings.Replace(post, "/a", "/a\rTransfer-Encoding:chunked", 1), "a carriage return stands inside the first line")
	add("NUL", "some end the value there", post+"Transfer-Encoding: chunked\x00x\r\n", "a NUL byte stands in line 3")
	add("folded Host", "it would be replaced in its first line only", strings.Replace(post, "ADDR", "ADDR\r\n .evil", 1), "the field Host is folded")
	add("a second version", "some split at the first space, some at the last", strings.Replace(post, "/a", "/a HTTP/1.1\tx", 1), "the request line does not have one target")
	add("no version", "an HTTP/0.9 request ends with its line, and what follows is another", "GET @/a\r\n", "the request line has no HTTP version")
	return list
}()

// uploadDesyncs are requests whose chunks go wrong after their head was sent on. The origin must not take what it got for a whole request, and nothing behind it
// must reach it.
var uploadDesyncs = func() (list []desync) {
	add := func(name, why, body, passed, refuse string) {
		const head = post + "Transfer-Encoding: chunked\r\n\r\n"
		list = append(list, desync{name: name, why: why, send: head + body + "0\r\n\r\n" + smuggle, cut: head + passed, refuse: refuse, flag: true})
	}
	add("LF ends a size", "to some the line goes on to the CR", "3\nabc\r\n", "3", "a line feed without carriage return")
	add("LF in an extension", "to some the line goes on to the CR (TERM.EXT)", "3;a\nabc\r\n", "3;a", "a line feed without carriage return")
	add("CR in an extension", "to some it ends the line", "3;a\rb\r\nabc\r\n", "3;a\r", "a carriage return without line feed")
	add("CR ends a size", "to some it is enough", "3\rabc\r\n", "3\r", "a carriage return without line feed")
	add("size beyond 64 bits", "it wraps to 3", "10000000000000003\r\nabc\r\n", "1000000000000000", "larger than 2^63")
	add("size beyond 63 bits", "as a signed number it is below zero", "8000000000000000\r\nabc\r\n", "800000000000000", "larger than 2^63")
	add("size below zero", "as an unsigned number it is huge", "-3\r\nabc\r\n", "", `the byte '-'`)
	add("size with a plus", "strtol takes it", "+3\r\nabc\r\n", "", `the byte '+'`)
	add("size with 0x", "strtol takes it, others read 0 and the end", "0x3\r\nabc\r\n", "0", `the byte 'x'`)
	add("size behind a space", "strtol skips it", " 3\r\nabc\r\n", "", `the byte ' '`)
	add("size and text", "some cut it off, some read 30", "3 0\r\nabc\r\n", "3 ", `followed by the byte '0'`)
	add("no size", "some take it for the end", "\r\nabc\r\n", "\r", "a chunk has no size")
	add("no line end behind the data", "some skip two bytes, whatever they are", "3\r\nabc0\r\n\r\n", "3\r\nabc", "does not end where its size says")
	add("LF behind the data", "some skip two bytes, whatever they are (TERM.SPILL)", "3\r\nabc\n", "3\r\nabc", "a line feed without carriage return")
	add("data longer than its size", "some look for the line's end", "3\r\nabcd\r\n", "3\r\nabc", "does not end where its size says")
	add("LF ends the last line", "to some the request is over", "0\r\n\n", "0\r\n", "a line feed without carriage return")
	add("LF ends a trailer", "to some the request is over at the next", "0\r\nX: y\n\n", "0\r\nX: y", "a line feed without carriage return")
	list[len(list)-1].held = "X: y"
	return list
}()
