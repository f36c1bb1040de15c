package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	martian "github.com/google/martian/v3"
	"github.com/google/martian/v3/body"
	"github.com/google/martian/v3/fifo"
	_ "github.com/google/martian/v3/header"
	"github.com/google/martian/v3/parse"
	"github.com/google/martian/v3/skip"
	_ "github.com/google/martian/v3/status"

	"millpond/storage"
)

type (
	onRequest  = martian.RequestModifierFunc
	onResponse = martian.ResponseModifierFunc
)

// rules parses Martian's own JSON.
func rules(t *testing.T, json string) (martian.RequestModifier, martian.ResponseModifier) {
	t.Helper()
	r, err := parse.FromJSON([]byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return r.RequestModifier(), r.ResponseModifier()
}

// TestModifiersChangeOnlyTheirLines changes, adds and removes fields through rules in Martian's JSON.
func TestModifiersChangeOnlyTheirLines(t *testing.T) {
	request, response := rules(t, `{"fifo.Group": {"scope": ["request", "response"], "modifiers": [
		{"header.Modifier": {"scope": ["request", "response"], "name": "X-Changed", "value": "new"}},
		{"header.Modifier": {"scope": ["request", "response"], "name": "X-Added", "value": "1"}},
		{"header.Blacklist": {"scope": ["request", "response"], "names": ["X-Removed"]}}
	]}}`)
	h := startHarness(t, Config{RequestModifier: request, ResponseModifier: response})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/%zz HTTP/1.1\r\nhoST:  " + o.addr + "\r\nx-changed: old\r\nX-Removed: a\r\nx-ODD:caf\xe9\r\nX-CHANGED: older\r\nfold: a\r\n b\r\ntransfer-ENCODING: chunked\r\n\r\n2;x\r\nhi\r\n0\r\nT: 1\r\n\r\n")
	up := o.accept()
	want := "POST /%zz HTTP/1.1\r\nhoST:  " + o.addr + "\r\nx-changed: new\r\nx-ODD:caf\xe9\r\nfold: a\r\n b\r\ntransfer-ENCODING: chunked\r\nX-Added: 1\r\n\r\n"
	up.expect(want + "2;x\r\nhi\r\n0\r\nT: 1\r\n\r\n")
	const answer = "HTTP/1.1 200 Gut\xe9\r\nx-removed: a\r\nx-changed: a\r\ncontent-LENGTH: 2\r\n\r\n"
	up.send(answer + "ho")
	const wantAnswer = "HTTP/1.1 200 Gut\xe9\r\nx-changed: new\r\ncontent-LENGTH: 2\r\nX-Added: 1\r\n\r\n"
	c.expect(wantAnswer + "ho")
	s := h.session(1)
	if s.State != storage.Done || !s.HasFlag(storage.FlagModified) || string(s.Sides[storage.Request].Head) != want ||
		!strings.HasPrefix(string(s.Sides[storage.Request].Received), "POST http://") ||
		string(s.Sides[storage.Response].Head) != wantAnswer || string(s.Sides[storage.Response].Received) != answer {
		t.Errorf("got %v %q %+v", s.State, s.Flags, s.Sides)
	}
	h.expectBody(s, storage.Request, "hi")
	h.expectBody(s, storage.Response, "ho")
}

func TestModifiersThatChangeNothingChangeNothing(t *testing.T) {
	group := fifo.NewGroup()
	group.AddRequestModifier(onRequest(func(r *http.Request) error {
		if r.ContentLength != 2 || r.URL.Path != "/a" || r.URL.RawQuery != "b" || r.Method != "POST" || martian.NewContext(r) == nil {
			return fmt.Errorf("got %+v", r)
		}
		return nil
	}))
	group.AddResponseModifier(onResponse(func(r *http.Response) error {
		if r.ContentLength != 3 || r.StatusCode != 200 || r.Status != "200 Gut" || martian.NewContext(r.Request) == nil {
			return fmt.Errorf("got %+v", r)
		}
		return nil
	}))
	h := startHarness(t, Config{RequestModifier: group, ResponseModifier: group})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/a?b HTTP/1.1\r\nhost: " + o.addr + "\r\nCONTENT-length: 2\r\n\r\nhi")
	up := o.accept()
	up.expect("POST /a?b HTTP/1.1\r\nhost: " + o.addr + "\r\nCONTENT-length: 2\r\n\r\nhi")
	up.send("HTTP/1.1 200 Gut\r\nB: 2\r\na: 1\r\nContent-Length: 3\r\n\r\nabc")
	c.expect("HTTP/1.1 200 Gut\r\nB: 2\r\na: 1\r\nContent-Length: 3\r\n\r\nabc")
	if s := h.session(1); s.HasFlag(storage.FlagModified) {
		t.Errorf("flags %q", s.Flags)
	}
}

func TestModifiersReplaceBodies(t *testing.T) {
	replaced := body.NewModifier([]byte("a new body"), "text/x-new")
	for _, tt := range []struct {
		name             string
		request          onRequest
		response         onResponse
		wantUp, wantDown string
		bodies           [2]string
	}{
		{
			"by Martian's body modifier", replaced.ModifyRequest, replaced.ModifyResponse,
			"POST / HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 10\r\nContent-Type: text/x-new\r\n\r\na new body",
			"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nA: b\r\nContent-Type: text/x-new\r\n\r\na new body",
			[2]string{"a new body", "a new body"},
		},
		{
			"wrapped, as a stream",
			func(r *http.Request) error { r.Body = upper(r.Body); return nil },
			func(r *http.Response) error { r.Body = upper(r.Body); return nil },
			"POST / HTTP/1.1\r\nHost: ADDR\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHELLO\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n5\r\nWORLD\r\n0\r\n\r\n",
			[2]string{"HELLO", "WORLD"},
		},
		{
			"read and put back",
			func(r *http.Request) error {
				b, err := io.ReadAll(r.Body)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(append(b, '!'))), int64(len(b)+1)
				return err
			},
			func(r *http.Response) error {
				b, err := io.ReadAll(r.Body)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(append(b, '!'))), int64(len(b)+1)
				return err
			},
			"POST / HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 6\r\n\r\nhello!",
			"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nA: b\r\n\r\nworld!",
			[2]string{"hello!", "world!"},
		},
		{
			"removed",
			func(r *http.Request) error { r.Body = http.NoBody; return nil },
			func(r *http.Response) error { r.Body = nil; return nil },
			"POST / HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n\r\n",
			[2]string{"", ""},
		},
		{
			"by a status without a body",
			func(*http.Request) error { return nil },
			func(r *http.Response) error { r.StatusCode = 204; return nil },
			"POST / HTTP/1.1\r\nHost: ADDR\r\nContent-Length: 5\r\n\r\nhello",
			"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
			[2]string{"hello", ""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := startHarness(t, Config{RequestModifier: tt.request, ResponseModifier: tt.response})
			o := startOrigin(t)
			c := h.dial()
			var up *peerConn
			for i := range uint64(2) { // the second shows that both connections are in order
				c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 5\r\n\r\nhello")
				if up == nil {
					up = o.accept()
				}
				up.expect(strings.Replace(tt.wantUp, "ADDR", o.addr, 1))
				up.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nworld")
				c.expect(tt.wantDown)
				s := h.session(i + 1)
				if s.State != storage.Done || !s.HasFlag(storage.FlagModified) {
					t.Errorf("got %v %q %q", s.State, s.Error, s.Flags)
				}
				h.expectBody(s, storage.Request, tt.bodies[0])
				h.expectBody(s, storage.Response, tt.bodies[1])
			}
		})
	}
}

// upper wraps a body, as a modifier may.
func upper(r io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{upperReader{r}, r}
}

type upperReader struct{ r io.Reader }

func (u upperReader) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	copy(p, bytes.ToUpper(p[:n]))
	return n, err
}

// TestModifierThatReadsTheBodyTellsTheClientToSendIt would wait for ever if nobody said 100.
func TestModifierThatReadsTheBodyTellsTheClientToSendIt(t *testing.T) {
	h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(b))
		return err
	})})
	o := startOrigin(t)
	c := h.dial()
	c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	c.expect("HTTP/1.1 100 Continue\r\n\r\n")
	c.send("hello")
	up := o.accept()
	up.head()
	up.expect("5\r\nhello\r\n0\r\n\r\n")
	up.send("HTTP/1.1 204 No Content\r\n\r\n")
	c.expect("HTTP/1.1 204 No Content\r\n\r\n")
}

// TestModifiedBodyStreams sees a wrapped body pass as it comes.
func TestModifiedBodyStreams(t *testing.T) {
	h := startHarness(t, Config{ResponseModifier: onResponse(func(r *http.Response) error {
		r.Body = io.NopCloser(upperReader{r.Body})
		return nil
	})})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/"))
	up := o.accept()
	up.head()
	up.send("HTTP/1.1 200 OK\r\n\r\n")
	c.expect("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 5 {
		up.send("event")
		c.expect("5\r\nEVENT\r\n")
	}
	up.Close()
	c.expect("0\r\n\r\n")
}

func TestModifierAnswersWithoutUpstream(t *testing.T) {
	h := startHarness(t, Config{
		RequestModifier: skip.NewRoundTrip(),
		ResponseModifier: onResponse(func(r *http.Response) error {
			r.StatusCode = 418
			r.Header.Set("X-Mock", "yes")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("tea")), 3
			return nil
		}),
	})
	o := startOrigin(t)
	c := h.dial()
	for i := range uint64(2) {
		c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 5\r\n\r\nhello")
		c.expect("HTTP/1.1 418 I'm a teapot\r\nX-Mock: yes\r\nContent-Length: 3\r\n\r\ntea")
		s := h.session(i + 1)
		if s.State != storage.Done || !s.HasFlag(storage.FlagAnswered) || s.Status != 418 || s.Upstream != "" {
			t.Errorf("got %v %q %q %d %q", s.State, s.Error, s.Flags, s.Status, s.Upstream)
		}
		h.expectBody(s, storage.Request, "hello")
		h.expectBody(s, storage.Response, "tea")
	}
	if len(o.conns) > 0 {
		t.Error("upstream was asked")
	}
}

func TestModifierMovesToAnotherHost(t *testing.T) {
	asked, other := startOrigin(t), startOrigin(t)
	h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error {
		r.URL.Host = other.addr
		return nil
	})})
	c := h.dial()
	var up *peerConn
	for i := range uint64(2) {
		c.send("POST http://" + asked.addr + "/a%2Fb?c HTTP/1.1\r\nHost: " + asked.addr + "\r\nContent-Length: 5\r\n\r\nhello")
		if up == nil {
			up = other.accept()
		}
		if got, want := up.head(), "POST /a%2Fb?c HTTP/1.1\r\nHost: "+asked.addr+"\r\nContent-Length: 5\r\n\r\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		up.expect("hello")
		up.send("HTTP/1.1 200 OK\r\nZ: 1\r\nContent-Length: 5\r\n\r\nworld")
		c.expect("HTTP/1.1 200 OK\r\nZ: 1\r\nContent-Length: 5\r\n\r\nworld")
		s := h.session(i + 1)
		if s.State != storage.Done || !s.HasFlag(storage.FlagMoved) || s.Upstream != other.addr || s.Host != asked.addr {
			t.Errorf("got %v %q %q, upstream %q, host %q", s.State, s.Error, s.Flags, s.Upstream, s.Host)
		}
		h.expectBody(s, storage.Request, "hello")
		h.expectBody(s, storage.Response, "world")
	}
	c.Close()
	up.expectEnd()
	if len(asked.conns) > 0 {
		t.Error("the host that was asked for got a connection")
	}
}

func TestModifierThatFailsOrPanicsIsA502(t *testing.T) {
	fail := func() error { return errors.New("no such rule") }
	panics := func() error { panic("no such rule") }
	for _, tt := range []struct {
		name     string
		run      func() error
		response bool
		want     string
	}{
		{"a request's modifier fails", fail, false, "RequestModifierFunc failed: no such rule"},
		{"a request's modifier panics", panics, false, "RequestModifierFunc panicked: no such rule"},
		{"a response's modifier fails", fail, true, "ResponseModifierFunc failed: no such rule"},
		{"a response's modifier panics", panics, true, "ResponseModifierFunc panicked: no such rule"},
		{"a modifier sets a field that would end it", nil, false, "X-A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{}
			switch {
			case tt.run == nil:
				cfg.RequestModifier = onRequest(func(r *http.Request) error { r.Header.Set("X-A", "a\r\nB: c"); return nil })
			case tt.response:
				cfg.ResponseModifier = onResponse(func(*http.Response) error { return tt.run() })
			default:
				cfg.RequestModifier = onRequest(func(*http.Request) error { return tt.run() })
			}
			h := startHarness(t, cfg)
			o := startOrigin(t)
			c := h.dial()
			c.send(get(o.addr, "/"))
			if tt.response {
				up := o.accept()
				up.head()
				up.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			}
			got, _ := c.rest()
			if !strings.HasPrefix(got, "HTTP/1.1 502 Bad Gateway\r\n") || !strings.Contains(got, tt.want) || strings.Contains(got, "hello") {
				t.Errorf("got %q", got)
			}
			if s := h.session(1); s.State != storage.Failed || s.Status != 502 || !strings.Contains(s.Error, tt.want) {
				t.Errorf("got %v %d %q", s.State, s.Status, s.Error)
			}
			if !tt.response && len(o.conns) > 0 {
				t.Error("the origin was asked")
			}
		})
	}
}

func TestModifiedRequestLineHostAndStatus(t *testing.T) {
	h := startHarness(t, Config{
		RequestModifier: onRequest(func(r *http.Request) error {
			r.Method, r.URL.Path, r.URL.RawQuery, r.Host = "PUT", "/new path", "q=1", "other.example"
			return nil
		}),
		ResponseModifier: onResponse(func(r *http.Response) error { r.StatusCode = 404; return nil }),
	})
	o := startOrigin(t)
	c := h.dial()
	c.send(get(o.addr, "/old"))
	up := o.accept()
	up.expect("PUT /new%20path?q=1 HTTP/1.1\r\nHost: other.example\r\n\r\n")
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	c.expect("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi")
	if s := h.session(1); s.Status != 404 || s.Path != "/old" || !strings.HasPrefix(string(s.Sides[storage.Response].Received), "HTTP/1.1 200") {
		t.Errorf("got %d %q %q", s.Status, s.Path, s.Sides[storage.Response].Received)
	}
}

// TestModifierBodiesThatFail gives messages bodies that break or panic when the relay reads them, which it does beside the pipeline.
func TestModifierBodiesThatFail(t *testing.T) {
	for _, panics := range []bool{false, true} {
		bad := func() io.ReadCloser {
			return io.NopCloser(io.MultiReader(strings.NewReader("begun"), readerFunc(func([]byte) (int, error) {
				if panics {
					panic("no more")
				}
				return 0, errors.New("no more")
			})))
		}
		t.Run(fmt.Sprintf("request, panics %v", panics), func(t *testing.T) {
			h := startHarness(t, Config{RequestModifier: onRequest(func(r *http.Request) error { r.Body = bad(); return nil })})
			o := startOrigin(t)
			c := h.dial()
			c.send("POST http://" + o.addr + "/ HTTP/1.1\r\nHost: " + o.addr + "\r\nContent-Length: 2\r\n\r\nhi")
			up := o.accept()
			up.head()
			if got, _ := up.rest(); strings.Contains(got, "0\r\n\r\n") {
				t.Errorf("upstream got %q", got)
			}
			if got, _ := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "no more") {
				t.Errorf("got %q", got)
			}
			if s := h.session(1); s.State != storage.Failed || !strings.Contains(s.Error, "no more") {
				t.Errorf("got %v %q", s.State, s.Error)
			}
		})
		t.Run(fmt.Sprintf("response, panics %v", panics), func(t *testing.T) {
			h, c, up := startGet(t, Config{ResponseModifier: onResponse(func(r *http.Response) error { r.Body = bad(); return nil })})
			up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			c.head()
			c.expect("5\r\nbegun\r\n")
			if rest, _ := c.rest(); rest != "" {
				t.Errorf("then came %q", rest)
			}
			if s := h.session(1); s.State != storage.Failed || !strings.Contains(s.Error, "no more") {
				t.Errorf("got %v %q", s.State, s.Error)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
