package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	martian "github.com/google/martian/v3"
	"golang.org/x/net/http2"

	"millpond/storage"
)

// mirrorHandler answers with what it got: the fields that begin with x- as fields, the body as body.
func mirrorHandler(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range req.Header {
		if strings.HasPrefix(name, "X-") {
			w.Header()[name] = values
		}
	}
	w.Header().Set("X-Length", strconv.FormatInt(req.ContentLength, 10))
	w.Write(body)
}

func (r *http2Rig) post(body string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.origin.URL+"/post", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Old", "1")
	return r.do(req)
}

func TestHTTP2ModifierChangesFields(t *testing.T) {
	h := startHTTP2(t, Config{
		RequestModifier: onRequest(func(req *http.Request) error {
			req.Header.Set("X-Old", "2")
			req.Header.Set("X-New", "3")
			return nil
		}),
		ResponseModifier: onResponse(func(res *http.Response) error {
			res.Header.Set("X-Back", "4")
			res.StatusCode = 202
			return nil
		}),
	}, mirrorHandler)
	sent := pattern(100_000)
	res, got := h.post(sent)
	if res.StatusCode != 202 || res.Header.Get("X-Old") != "2" || res.Header.Get("X-New") != "3" || res.Header.Get("X-Back") != "4" || got != sent {
		t.Errorf("got %d %v, %d bytes", res.StatusCode, res.Header, len(got))
	}
	s := h.session(1)
	req := s.Sides[storage.Request]
	if !s.HasFlag(storage.FlagModified) || !strings.Contains(string(req.Head), "x-old: 2\n") || !strings.Contains(string(req.Received), "x-old: 1\n") || s.Status != 202 {
		t.Errorf("session %+v", s)
	}
	h.expectBody(s, storage.Request, sent)
	h.expectBody(s, storage.Response, sent)
}

func TestHTTP2ModifierReplacesBodies(t *testing.T) {
	for _, length := range []int64{5, -1} {
		h := startHTTP2(t, Config{
			RequestModifier: onRequest(func(req *http.Request) error {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader("fresh")), length
				return nil
			}),
			ResponseModifier: onResponse(func(res *http.Response) error {
				old := res.Body
				r, w := io.Pipe()
				go func() { // as the body comes
					body, err := io.ReadAll(old)
					w.Write(bytes.ToUpper(body))
					w.CloseWithError(err)
				}()
				res.Body, res.ContentLength = r, length
				return nil
			}),
		}, mirrorHandler)
		for range 2 {
			res, got := h.post(pattern(300_000))
			if got != "FRESH" || res.Header.Get("X-Length") != strconv.FormatInt(length, 10) {
				t.Errorf("got %q, %v", got, res.Header)
			}
		}
		s := h.session(2)
		if s.State != storage.Done || !s.HasFlag(storage.FlagModified) {
			t.Errorf("session %+v", s)
		}
		h.expectBody(s, storage.Request, "fresh")
		h.expectBody(s, storage.Response, "FRESH")
	}
}

// A modifier that reads the body must get it, though it comes by the connection on which the modifier was called.
func TestHTTP2ModifierReadsTheBody(t *testing.T) {
	for _, n := range []int{0, 10, 2 << 20} {
		h := startHTTP2(t, Config{
			RequestModifier: onRequest(func(req *http.Request) error {
				body, err := io.ReadAll(req.Body)
				req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(append(body, '!'))), int64(len(body)+1)
				return err
			}),
			ResponseModifier: onResponse(func(res *http.Response) error {
				body, err := io.ReadAll(res.Body)
				res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(append(body, '?'))), int64(len(body)+1)
				return err
			}),
		}, mirrorHandler)
		want := pattern(n) + "!?"
		if _, got := h.post(pattern(n)); got != want {
			t.Errorf("%d bytes: got %d, want %d", n, len(got), len(want))
		}
		s := h.session(1)
		h.expectBody(s, storage.Request, pattern(n)+"!")
		h.expectBody(s, storage.Response, want)
	}
}

func answering() Config {
	return Config{
		RequestModifier: onRequest(func(req *http.Request) error {
			martian.NewContext(req).SkipRoundTrip()
			return nil
		}),
		ResponseModifier: onResponse(func(res *http.Response) error {
			res.StatusCode = 418
			res.Header.Set("X-Mine", "1")
			res.Body = io.NopCloser(strings.NewReader("short and stout"))
			res.ContentLength = -1
			return nil
		}),
	}
}

func TestHTTP2ModifierAnswers(t *testing.T) {
	h := startHTTP2(t, answering(), func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") })
	for _, n := range []int{0, 200_000} { // of which the client sends what it has not given up
		res, got := h.post(pattern(n))
		if res.StatusCode != 418 || got != "short and stout" || res.Header.Get("X-Mine") != "1" {
			t.Errorf("got %d %q", res.StatusCode, got)
		}
	}
	s := h.session(2)
	if s.State != storage.Done || !s.HasFlag(storage.FlagAnswered) || s.Status != 418 {
		t.Errorf("session %+v", s)
	}
	h.expectBody(s, storage.Response, "short and stout")
}

func TestHTTP2AnsweredRequestIsKept(t *testing.T) {
	h := startHarness(t, answering())
	client, _, _ := http2Tunnel(t, h)
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83, 0x84, 0x86}, EndHeaders: true})
	sent := pattern(60_000)
	for from := 0; from < len(sent); from += 10_000 {
		client.WriteData(1, from+10_000 == len(sent), []byte(sent[from:from+10_000]))
	}
	s := h.session(1)
	if s.State != storage.Done || s.Status != 418 {
		t.Errorf("session %+v", s)
	}
	h.expectBody(s, storage.Request, sent)
}

func TestHTTP2ModifierMovesTheRequest(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Other", req.Host)
		io.Copy(w, req.Body)
	}))
	t.Cleanup(other.Close)
	h := startHTTP2(t, Config{
		RequestModifier: onRequest(func(req *http.Request) error {
			if req.Method == "POST" {
				req.URL.Scheme, req.URL.Host = "http", other.Listener.Addr().String()
			}
			return nil
		}),
	}, mirrorHandler)
	sent := pattern(300_000)
	res, got := h.post(sent)
	if got != sent || res.Header.Get("X-Other") == "" {
		t.Errorf("got %d bytes, %v", len(got), res.Header)
	}
	s := h.session(1)
	if s.State != storage.Done || !s.HasFlag(storage.FlagMoved) || s.Upstream != other.Listener.Addr().String() {
		t.Errorf("session %+v", s)
	}
	h.expectBody(s, storage.Request, sent)
	h.expectBody(s, storage.Response, sent)
	if _, got := h.get("/"); got != "" {
		t.Errorf("then got %q", got)
	}
}

func TestHTTP2ModifierFails(t *testing.T) {
	boom := errors.New("no such rule")
	for name, cfg := range map[string]Config{
		"request fails":   {RequestModifier: onRequest(func(*http.Request) error { return boom })},
		"response fails":  {ResponseModifier: onResponse(func(*http.Response) error { return boom })},
		"request panics":  {RequestModifier: onRequest(func(*http.Request) error { panic(boom) })},
		"response panics": {ResponseModifier: onResponse(func(*http.Response) error { panic(boom) })},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHTTP2(t, cfg, mirrorHandler)
			res, got := h.post(pattern(1000))
			if res.StatusCode != 502 || !strings.Contains(got, "no such rule") {
				t.Errorf("got %d %q", res.StatusCode, got)
			}
			s := h.session(1)
			if s.State != storage.Failed || !strings.Contains(s.Error, "no such rule") || s.Status != 502 {
				t.Errorf("session %+v", s)
			}
		})
	}
}

// A modifier that takes its time holds up its own stream only.
func TestHTTP2SlowModifier(t *testing.T) {
	slow := make(chan struct{})
	h := startHTTP2(t, Config{RequestModifier: onRequest(func(req *http.Request) error {
		if req.URL.Path == "/slow" {
			<-slow
			req.Header.Set("X-Slow", "1")
		}
		return nil
	})}, mirrorHandler)
	got := make(chan string, 1)
	go func() {
		res, err := h.client.Get(h.origin.URL + "/slow")
		if err != nil {
			got <- err.Error()
			return
		}
		defer res.Body.Close()
		got <- res.Header.Get("X-Slow")
	}()
	for h.get("/fast"); h.sessions() < 2; h.get("/fast") { // the slow one has begun only after one of these, perhaps
		time.Sleep(time.Millisecond)
	}
	h.get("/fast")
	close(slow)
	if g := <-got; g != "1" {
		t.Errorf("the slow request got %q", g)
	}
}

func TestHTTP2ModifierBreaksItsPromise(t *testing.T) {
	for _, promise := range []int64{3, 100} {
		h := startHTTP2(t, Config{ResponseModifier: onResponse(func(res *http.Response) error {
			res.Body, res.ContentLength = io.NopCloser(strings.NewReader("twelve bytes")), promise
			return nil
		})}, mirrorHandler)
		res, err := h.client.Get(h.origin.URL)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if err == nil {
			t.Errorf("the client took the body for whole")
		}
		if s := h.session(1); s.State == storage.Done {
			t.Errorf("session %+v", s)
		}
	}
}

// A request that waits for another host, or for a modifier, is cancelled with its client.
func TestHTTP2ClientLeavesAModifiedRequest(t *testing.T) {
	waiting, cancelled := make(chan struct{}, 2), make(chan struct{}, 2)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		waiting <- struct{}{}
		<-req.Context().Done()
		cancelled <- struct{}{}
	}))
	t.Cleanup(other.Close)
	h := startHTTP2(t, Config{RequestModifier: onRequest(func(req *http.Request) error {
		switch req.URL.Path {
		case "/moved":
			req.URL.Scheme, req.URL.Host = "http", other.Listener.Addr().String()
		case "/slow":
			waiting <- struct{}{}
			<-req.Context().Done()
			cancelled <- struct{}{}
			return req.Context().Err()
		}
		return nil
	})}, mirrorHandler)
	h.get("/")
	for i, path := range []string{"/moved", "/slow"} {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", h.origin.URL+path, nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := h.client.Do(req); err == nil {
				res.Body.Close()
				t.Errorf("%s: got an answer", path)
			}
		}()
		<-waiting
		cancel()
		<-cancelled
		<-done
		if s := h.session(uint64(i + 2)); s.State != storage.ClientAborted {
			t.Errorf("%s: session %+v", path, s)
		}
	}
	h.get("/")
}

// Trailers follow a body that a slow modifier let through or that one wrapped, and are gone where the body was replaced.
func TestHTTP2ModifierAndTrailers(t *testing.T) {
	for name, change := range map[string]func(*http.Response){
		"slow":     func(*http.Response) { time.Sleep(2 * turnTime) }, // longer than its turn
		"wrapped":  func(res *http.Response) { res.Body = upper(res.Body) },
		"replaced": func(res *http.Response) { res.Body, res.ContentLength = io.NopCloser(strings.NewReader("fresh")), 5 },
	} {
		t.Run(name, func(t *testing.T) {
			h := startHTTP2(t, Config{ResponseModifier: onResponse(func(res *http.Response) error {
				change(res)
				return nil
			})}, func(w http.ResponseWriter, req *http.Request) {
				io.WriteString(w, "body")
				w.Header().Set(http.TrailerPrefix+"X-End", "1")
			})
			res, got := h.get("/")
			want, trailers := map[string]string{"slow": "body", "wrapped": "BODY", "replaced": "fresh"}[name], "x-end: 1\n"
			if name == "replaced" {
				trailers = ""
			}
			if got != want || (res.Trailer.Get("X-End") != "") != (trailers != "") {
				t.Errorf("got %q, %v", got, res.Trailer)
			}
			s := h.session(1)
			h.expectBody(s, storage.Response, want)
			if got := string(s.Sides[storage.Response].Trailers); got != trailers {
				t.Errorf("recorded trailers %q, want %q", got, trailers)
			}
		})
	}
}

// A request's trailers go with a body that a modifier wrapped, and with one that it moved to another host, whose trailers come back.
func TestHTTP2RequestTrailers(t *testing.T) {
	told := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s", body, req.Trailer.Get("X-End"))
		http.NewResponseController(w).Flush() // else HTTP/1 has a length, and no trailers
		w.Header().Set(http.TrailerPrefix+"X-Back", "2")
	})
	other := httptest.NewServer(told)
	t.Cleanup(other.Close)
	for name, change := range map[string]func(*http.Request){
		"wrapped": func(req *http.Request) { req.Body = upper(req.Body) },
		"moved":   func(req *http.Request) { req.URL.Scheme, req.URL.Host = "http", other.Listener.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			h := startHTTP2(t, Config{RequestModifier: onRequest(func(req *http.Request) error {
				change(req)
				return nil
			})}, told)
			req := must(http.NewRequest(http.MethodPost, h.origin.URL, io.MultiReader(strings.NewReader("body"))))
			req.Trailer = http.Header{"X-End": {"1"}}
			res, got := h.do(req)
			want := map[string]string{"wrapped": "BODY 1", "moved": "body 1"}[name]
			if got != want || res.Trailer.Get("X-Back") != "2" {
				t.Errorf("got %q, want %q; trailers %v", got, want, res.Trailer)
			}
			s := h.session(1)
			if sent, back := s.Sides[storage.Request].Trailers, s.Sides[storage.Response].Trailers; string(sent) != "x-end: 1\n" || string(back) != "x-back: 2\n" {
				t.Errorf("recorded trailers %q and %q", sent, back)
			}
		})
	}
}
