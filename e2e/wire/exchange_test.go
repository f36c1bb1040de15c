package wire

import (
	"fmt"
	"strings"

	"millpond/e2e/harness"
)

// exchange is a request and its response as bytes of HTTP/1. In both, TARGET stands for how the request names the path, and HOST for the origin.
// What each receiver gets is compared byte by byte with what was sent, or with what is said to differ.
type exchange struct {
	request, response string
	arrives           string // the request as the origin gets it; as sent, where it is empty
	delivered         string // the response as the client gets it; as sent, where it is empty
	closes            bool   // the origin closes after the response, and the client's connection must end with it
}

// pass passes an exchange and, where the connection goes on, a second one behind it, which finds bytes that are too many or too few.
// It returns the first one's session.
func (r *run) pass(x exchange) harness.Session {
	r.Helper()
	const nextBody = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"
	fill := func(text, target, host string) string {
		return strings.NewReplacer("TARGET", target, "HOST", host).Replace(text)
	}
	if x.arrives == "" {
		x.arrives = x.request
	}
	if x.delivered == "" {
		x.delivered = x.response
	}
	next := "GET TARGET/next HTTP/1.1\r\nHost: HOST\r\n\r\n"
	var addr string
	addr = r.listen(func(c *conn) error {
		if err := c.expect(fill(x.arrives, r.path, addr)); err != nil {
			return err
		}
		c.send(x.response)
		if x.closes {
			return nil
		}
		if err := c.expect(fill(next, r.path, addr)); err != nil {
			return err
		}
		c.send(nextBody)
		return c.expectEnd()
	})
	c := r.dial(addr)
	c.send(fill(x.request, r.target(addr, r.path), addr))
	if err := c.expect(x.delivered); err != nil {
		r.Fatalf("client: %v", err)
	}
	if x.closes {
		r.must(c.expectEnd())
		return r.session()
	}
	c.send(fill(next, r.target(addr, r.path), addr))
	if err := c.expect(nextBody); err != nil {
		r.Fatalf("client, second response: %v", err)
	}
	s := r.program.Await(r, r.path+"/next", harness.Ended)
	r.expectDone(s, 200)
	r.expectFlag(s, "reused", true)
	return r.firstSession()
}

// firstSession returns the oldest session of the run's path.
func (r *run) firstSession() harness.Session {
	r.Helper()
	found := r.program.Sessions(r, r.path)
	if len(found) == 0 {
		r.Fatal("there is no session")
	}
	return r.program.Session(r, found[len(found)-1].ID)
}

// stream2 is a request and its response over HTTP/2. Fields are name, value, …; pseudo-fields of the request are added, but for those given.
type stream2 struct {
	method   string // GET where empty
	request  []string
	body     string
	trailers []string
	status   string // 200 where empty
	response []string
	answer   string
	after    []string // trailers of the response
}

// pass2 passes it and a second one on the same connection, compares what arrives field by field, and returns the first one's session.
func (r *run) pass2(x stream2) harness.Session {
	r.Helper()
	if x.method == "" {
		x.method = "GET"
	}
	if x.status == "" {
		x.status = "200"
	}
	var addr string
	addr = r.listen2(func(p *peer2) error {
		got, err := p.message()
		if err != nil {
			return err
		}
		want := append(pseudo(x.method, addr, r.path), x.request...)
		if err := got.is(want, x.body, x.trailers); err != nil {
			return err
		}
		p.send(got.stream, append([]string{":status", x.status}, x.response...), x.answer, x.after)
		if got, err = p.message(); err != nil {
			return err
		}
		p.send(got.stream, []string{":status", "200"}, "next", nil)
		if got, err = p.message(); err == nil {
			return fmt.Errorf("got a third message: %q", got.fields)
		}
		return nil
	})
	c := r.dial2(addr)
	c.send(1, append(pseudo(x.method, addr, r.path), x.request...), x.body, x.trailers)
	got, err := c.message()
	r.must(err)
	r.must(got.is(append([]string{":status", x.status}, x.response...), x.answer, x.after))
	c.send(3, pseudo("GET", addr, r.path+"/next"), "", nil)
	got, err = c.message()
	r.must(err)
	r.must(got.is([]string{":status", "200"}, "next", nil))
	r.expectDone(r.program.Await(r, r.path+"/next", harness.Ended), 200)
	_ = c.Close()
	return r.firstSession()
}

func pseudo(method, authority, path string) []string {
	return []string{":method", method, ":scheme", "https", ":authority", authority, ":path", path}
}
