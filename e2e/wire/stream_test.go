package wire

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"millpond/e2e/harness"
)

var streamCases = []wireCase{
	wireCase{
		slug: "events-at-once", sources: "mitmproxy/mitmproxy#4469 elazarl/goproxy#475",
		elsewhere: "Server-sent events are held back until the stream ends.",
		here:      "Each is at the client at once: within 100 ms at the median, and none waits for a later one.",
	}.each(shown("e2e", "TestEventsAreThereAtOnce")),
	{
		slug: "events-until-close", sources: "saucelabs/forwarder#154 saucelabs/forwarder#812 elazarl/goproxy#794",
		elsewhere: "Events without chunked coding stick in a buffer of 4 KiB.",
		here:      "An event stream that only its connection's end ends is relayed at once, too.",
		http:      shown("e2e", "TestEventsAreThereAtOnce"), https: shown("e2e", "TestEventsAreThereAtOnce"),
		http2: not("In HTTP/2 the end of a stream ends a body, never that of the connection; the case `events-at-once` is about that."),
	},
	wireCase{
		slug: "events-kept", sources: "mitmproxy/mitmproxy#7010",
		elsewhere: "A streamed response is shown as `content missing`.",
		here:      "It is kept, and its events are listed.",
	}.each(by(eventsKept)),
	wireCase{
		slug: "events-cut", sources: "httptoolkit/httptoolkit#312 httptoolkit/httptoolkit#649",
		elsewhere: "A long-lived response that the client ends shows nothing, or ends as an error.",
		here:      "What came is kept, and the session says that the client left.",
	}.each(by(eventsCut)),
	wireCase{
		slug: "events-grow", sources: "ProxymanApp/Proxyman#1323 ProxymanApp/proxyman-windows-linux#387",
		elsewhere: "A body with `text/event-stream; charset=utf8` is shown only after its end.",
		here:      "Size, duration, body and events are there while it comes.",
	}.each(by(eventsGrow)),
}

// events answers the run's path with an event stream that the test drives: each event sent to the channel, until it is closed.
func (r *run) events() chan<- string {
	events := make(chan string)
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf8")
		control := http.NewResponseController(w)
		_ = control.Flush()
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, e)
				_ = control.Flush()
			case <-q.Context().Done():
				return
			}
		}
	})
	return events
}

// get asks the shared origin for the run's path, with name, value, … as fields.
func (r *run) get(fields ...string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.origin.URL(r.protocol, r.path), nil)
	r.must(err)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := r.program.Client(r, r.protocol).Do(req)
	r.must(err)
	r.Cleanup(func() { res.Body.Close() })
	return res
}

func eventsKept(r *run) {
	events := r.events()
	body := r.get().Body
	var want strings.Builder
	for i := range 5 {
		e := fmt.Sprintf("id: %d\nevent: tick\ndata: caf\u00e9 %d\n\n", i, i)
		want.WriteString(e)
		events <- e
	}
	close(events)
	got, err := io.ReadAll(body)
	if err != nil || string(got) != want.String() {
		r.Errorf("client got %q, %v", got, err)
	}
	s := r.session()
	r.expectDone(s, 200)
	r.expectBody(s, "response", want.String())
	for i, m := range r.messages(s.ID, 5) {
		if m.Type != "event" || m.Event != "tick" || m.EventID != fmt.Sprint(i) || m.Preview != fmt.Sprintf("caf\u00e9 %d", i) {
			r.Errorf("event %d is listed as %+v", i, m)
		}
	}
}

func eventsCut(r *run) {
	events := r.events()
	body := r.get().Body
	const first = "data: 1\n\n"
	events <- first
	got := make([]byte, len(first))
	_, err := io.ReadFull(body, got)
	r.must(err)
	_ = body.Close()
	s := r.session()
	if s.State != "client_aborted" || s.Response.Body.Size != int64(len(first)) || s.Response.Body.Complete || s.Error == "" {
		r.Errorf("session is %s (%s), body %+v", s.State, s.Error, s.Response.Body)
	}
	if kept := r.body(s.ID, "response"); kept != first {
		r.Errorf("kept %q, want %q", kept, first)
	}
	r.messages(s.ID, 1)
}

func eventsGrow(r *run) {
	events := r.events()
	body := r.get().Body
	const event = "data: {\"n\":1}\n\n"
	got := make([]byte, len(event))
	last := 0.0
	for i := range 4 {
		events <- event
		_, err := io.ReadFull(body, got)
		r.must(err)
		s := r.program.Await(r, r.path, func(s harness.Summary) bool { return s.ResponseBytes == int64((i+1)*len(event)) })
		if s.State != "open" || s.Duration <= last || r.body(s.ID, "response") != strings.Repeat(event, i+1) {
			r.Errorf("after %d events: session is %s, after %v ms (before: %v)", i+1, s.State, s.Duration, last)
		}
		last = s.Duration
		r.messages(s.ID, i+1)
	}
	close(events)
	_, _ = io.ReadAll(body)
	r.expectDone(r.session(), 200)
}
