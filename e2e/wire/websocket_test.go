package wire

import (
	"fmt"
	"strings"

	"millpond/e2e/harness"
)

var webSocketCases = []wireCase{
	wireCase{
		slug: "websocket", sources: "google/martian#31 saucelabs/forwarder#338 lqqyt2423/go-mitmproxy#97 lqqyt2423/go-mitmproxy#71",
		elsewhere: "The upgrade fails, or loses its own and further fields on the way: Upgrade, Cookie, Origin.",
		here:      "Every field reaches the origin; frames of both sides pass and are listed. Over HTTP/2 by extended CONNECT (RFC 8441).",
	}.each(by(socketEcho)),
	wireCase{
		slug: "websocket-early-frame", sources: "elazarl/goproxy#801",
		elsewhere: "A frame that the client sends right behind its request is lost.",
		here:      "It reaches the origin, and is listed.",
	}.each(by(socketEarly)),
	wireCase{
		slug: "websocket-deflate", sources: "mitmproxy/mitmproxy#2447 hahwul/gori#518",
		elsewhere: "Messages by permessage-deflate are shown compressed.",
		here:      "They are listed inflated, also where each needs those before it; the frames are kept as they passed.",
	}.each(by(socketDeflate)),
	wireCase{
		slug: "websocket-deflate-broken", sources: "avwo/whistle#1048",
		elsewhere: "A compressed message that does not inflate shows nothing at all.",
		here:      "It passes, and is listed with its bytes and what is wrong.",
	}.each(by(socketDeflateBroken)),
	wireCase{
		slug: "websocket-kept", sources: "mitmproxy/mitmproxy#4165",
		elsewhere: "Messages are missing from what was saved.",
		here:      "They are all there after a restart.",
	}.each(by(socketKept)),
	wireCase{
		slug: "websocket-flood", sources: "avwo/whistle#247",
		elsewhere: "Of many small frames some are lost.",
		here:      "10,000 each way: all pass, and are listed in order.",
	}.each(by(socketFlood)),
}

func socketEcho(r *run) {
	c := r.socket(opening{}, func(s *socket) error {
		for _, m := range []string{"one", strings.Repeat("two", 50), strings.Repeat("three", 20_000)} {
			if err := s.expect(final|text, m); err != nil {
				return err
			}
			s.send(final|binaryData, m)
		}
		return s.goodbye()
	})
	sizes := []int64{}
	for _, m := range []string{"one", strings.Repeat("two", 50), strings.Repeat("three", 20_000)} {
		c.send(final|text, m)
		r.must(c.expect(final|binaryData, m))
		sizes = append(sizes, int64(len(m)))
	}
	r.close(c)
	s := r.session()
	if s.State != "done" || s.Error != "" {
		r.Errorf("session is %s (%s)", s.State, s.Error)
	}
	all := r.messages(s.ID, 8)
	for i, m := range all[:6] {
		kind, side := "text", "request"
		if i%2 == 1 {
			kind, side = "binary", "response"
		}
		if m.Type != kind || m.Side != side || m.Size != sizes[i/2] {
			r.Errorf("message %d is listed as %+v", i, m)
		}
	}
	for _, m := range all[6:] {
		if m.Type != "close" || m.Code != 1000 {
			r.Errorf("a close is listed as %+v", m)
		}
	}
}

func socketEarly(r *run) {
	c := r.socket(opening{early: frame(final|text, "early", true)}, func(s *socket) error {
		s.send(final|text, "at once")
		if err := s.expect(final|text, "early"); err != nil {
			return err
		}
		return s.goodbye()
	})
	r.must(c.expect(final|text, "at once"))
	r.close(c)
	found := ""
	for _, m := range r.messages(r.session().ID, 4)[:2] {
		found += m.Side + ":" + m.Preview + " "
	}
	if !strings.Contains(found, "request:early") || !strings.Contains(found, "response:at once") {
		r.Errorf("listed: %s", found)
	}
}

const takeover = "permessage-deflate"

func socketDeflate(r *run) {
	said := func(i int) string {
		return fmt.Sprintf(`{"number":%d,"text":"the same words again and again, in message %d"}`, i, i)
	}
	var wire [2]strings.Builder
	up, down := newDeflater(), newDeflater()
	var ups, downs []string
	for i := range 5 {
		ups, downs = append(ups, up.message(said(i))), append(downs, down.message(said(100+i)))
	}
	if len(ups[4]) > len(said(4))/2 {
		r.Fatalf("a message of %d bytes takes %d: the context was not taken over", len(said(4)), len(ups[4]))
	}
	c := r.socket(opening{extensions: takeover}, func(s *socket) error {
		for i := range ups {
			// In two fragments, with a ping between them.
			for _, f := range fragments(ups[i]) {
				if err := s.expect(f.first, f.payload); err != nil {
					return err
				}
			}
			s.send(final|compressed|text, downs[i])
		}
		return s.goodbye()
	})
	for i := range ups {
		for _, f := range fragments(ups[i]) {
			c.send(f.first, f.payload)
			wire[0].WriteString(frame(f.first, f.payload, true))
		}
		r.must(c.expect(final|compressed|text, downs[i]))
		wire[1].WriteString(frame(final|compressed|text, downs[i], false))
	}
	r.close(c)
	wire[0].WriteString(frame(final|closing, "\x03\xe8bye", true))
	wire[1].WriteString(frame(final|closing, "\x03\xe8bye", false))
	s := r.session()
	r.expectBody(s, "request", wire[0].String())
	r.expectBody(s, "response", wire[1].String())
	n := map[string]int{}
	for _, m := range r.messages(s.ID, 17) {
		if m.Type != "text" {
			continue
		}
		want := said(n[m.Side])
		if m.Side == "response" {
			want = said(100 + n[m.Side])
		}
		if n[m.Side]++; m.Preview != want || !m.Compressed || m.Problem != "" {
			r.Errorf("message is listed as %+v, want %q", m, want)
		}
	}
	if n["request"] != 5 || n["response"] != 5 {
		r.Errorf("listed: %v", n)
	}
}

type fragment struct {
	first   byte
	payload string
}

func fragments(payload string) []fragment {
	half := len(payload) / 2
	return []fragment{{compressed | text, payload[:half]}, {final | ping, "?"}, {final | more, payload[half:]}}
}

func socketDeflateBroken(r *run) {
	const junk = "\xff\xff\xff no deflate at all"
	c := r.socket(opening{extensions: takeover}, func(s *socket) error {
		if err := s.expect(compressed|text, junk[:4]); err != nil {
			return err
		}
		if err := s.expect(final|more, junk[4:]); err != nil {
			return err
		}
		s.send(final|text, "plain")
		return s.goodbye()
	})
	c.send(compressed|text, junk[:4])
	c.send(final|more, junk[4:])
	r.must(c.expect(final|text, "plain"))
	r.close(c)
	s := r.session()
	for _, m := range r.messages(s.ID, 4) {
		switch {
		case m.Type == "text" && m.Side == "request":
			if m.Problem == "" || m.Preview == "" || m.Size != int64(len(junk)) {
				r.Errorf("the broken message is listed as %+v", m)
			}
		case m.Type == "text" && (m.Preview != "plain" || m.Problem != ""):
			r.Errorf("the next message is listed as %+v", m)
		}
	}
	if kept := r.body(s.ID, "request"); !strings.HasPrefix(kept, frame(compressed|text, junk[:4], true)+frame(final|more, junk[4:], true)) {
		r.Errorf("kept %q", kept)
	}
}

func socketKept(r *run) {
	dir := r.TempDir()
	p := harness.Start(r, dir, r.origin.Trusted(r)...)
	roots, err := harness.ReadPool(p.CA)
	r.must(err)
	own := *r.world
	own.program, own.roots = p, roots
	part := &run{T: r.T, world: &own, protocol: r.protocol, path: r.path}
	c := part.socket(opening{}, func(s *socket) error {
		for i := range 200 {
			if err := s.expect(final|text, fmt.Sprintf("message %d", i)); err != nil {
				return err
			}
		}
		return s.goodbye()
	})
	for i := range 200 {
		c.send(final|text, fmt.Sprintf("message %d", i))
	}
	part.close(c)
	part.session()
	r.must(p.Stop())
	own.program = harness.Start(r, dir, r.origin.Trusted(r)...)
	for i, m := range part.messages(part.session().ID, 202)[:200] {
		if m.Preview != fmt.Sprintf("message %d", i) {
			r.Errorf("message %d is listed as %+v", i, m)
		}
	}
}

func socketFlood(r *run) {
	const n = 10_000
	said := func(i int) string { return fmt.Sprintf("message %d", i) }
	c := r.socket(opening{}, func(s *socket) error {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range n {
				s.send(final|text, said(i))
			}
		}()
		for i := range n {
			if err := s.expect(final|text, said(i)); err != nil {
				return err
			}
		}
		<-sent
		return s.goodbye()
	})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			c.send(final|text, said(i))
		}
	}()
	for i := range n {
		r.must(c.expect(final|text, said(i)))
	}
	<-sent
	r.close(c)
	next := map[string]int{}
	for _, m := range r.messages(r.session().ID, 2*n+2) {
		if m.Type != "text" {
			continue
		}
		if m.Preview != said(next[m.Side]) {
			r.Fatalf("message %d of the %s is listed as %+v", next[m.Side], m.Side, m)
		}
		next[m.Side]++
	}
	if next["request"] != n || next["response"] != n {
		r.Errorf("listed: %v", next)
	}
}
