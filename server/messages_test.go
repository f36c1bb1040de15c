package server

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"millpond/content/sse"
	"millpond/content/ws"
	"millpond/storage"
)

// socket is a WebSocket that a test records.
type socket struct {
	*rig
	rec   *storage.Recording
	sides [2]*socketSide
}

// socketSide is one direction. Its messages are compressed where zip is set.
type socketSide struct {
	body   *storage.BodyWriter
	parser ws.Parser
	zip    *flate.Writer
	out    bytes.Buffer // of zip
	fresh  bool
	masked bool
	nth    uint64
}

func (r *rig) socket(m storage.Messages) *socket {
	r.Helper()
	s := &socket{rig: r, rec: r.begin(exchange{url: "http://a/chat"})}
	m.Kind = storage.WebSocket
	s.rec.ListMessages(m)
	for i := range s.sides {
		side := storage.Side(i)
		d := &socketSide{body: s.rec.Body(side), fresh: m.Fresh[side], masked: side == storage.Request}
		if m.Deflate {
			d.zip, _ = flate.NewWriter(&d.out, 6)
		}
		d.parser = ws.Parser{Deflate: m.Deflate, Found: func(m ws.Message) {
			s.rec.List(storage.Entry{
				Side: side, Opcode: m.Opcode, Time: time.Now(), Offset: m.Offset, Length: m.Length, Size: m.Size,
				Compressed: m.Compressed, Broken: m.Broken, Code: m.Code, Nth: d.nth,
			})
			if m.Compressed {
				d.nth++
			}
		}, Lost: func(at uint64, why string) { s.rec.LoseMessages(side, fmt.Sprint(at, ": ", why)) }}
		s.sides[side] = d
	}
	return s
}

// send records a message of one frame.
func (s *socket) send(side storage.Side, opcode byte, payload string) {
	d := s.sides[side]
	if d.zip == nil || opcode >= ws.Close {
		d.frame(0x80|opcode, payload)
		return
	}
	if d.fresh {
		d.zip.Reset(&d.out)
	}
	_, _ = d.zip.Write([]byte(payload))
	_ = d.zip.Flush()
	payload = strings.TrimSuffix(d.out.String(), "\x00\x00\xff\xff")
	d.out.Reset()
	d.frame(0xc0|opcode, payload)
}

func (d *socketSide) frame(first byte, payload string) {
	b := []byte{first, 127, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint64(b[2:], uint64(len(payload)))
	if !d.masked {
		d.write(append(b, payload...))
		return
	}
	b[1] |= 0x80
	b = append(b, 1, 2, 3, 4)
	for i := range len(payload) {
		b = append(b, payload[i]^byte(1+i%4))
	}
	d.write(b)
}

func (d *socketSide) write(b []byte) {
	_, _ = d.body.Write(b)
	_, _ = d.parser.Write(b)
}

func (s *socket) end() {
	for _, d := range s.sides {
		d.parser.End()
		d.body.Complete()
	}
	s.rec.End(storage.Done, "")
}

// page reads a page of the list once no message of it is still being decompressed.
func (r *rig) page(path string, fields ...string) (page MessageList) {
	r.Helper()
	eventually(r, "the messages are decompressed", func() bool {
		page = MessageList{}
		r.json(r.call("GET", path, "", fields...), http.StatusOK, &page)
		for _, m := range page.Messages {
			if m.Pending {
				return false
			}
		}
		return true
	})
	return page
}

func TestMessagesOfAWebSocket(t *testing.T) {
	r := newRig(t)
	s := r.socket(storage.Messages{})
	list := fmt.Sprintf("/api/sessions/%d/messages", s.rec.ID())
	if got := r.page(list); got.Total != 0 || got.Final || len(got.Messages) != 0 {
		t.Errorf("got %+v", got)
	}
	s.send(storage.Request, ws.Text, "hello\n world")
	s.send(storage.Response, ws.Binary, "\x00\x01\xff")
	s.send(storage.Response, ws.Ping, "are you there")
	s.sides[storage.Request].frame(ws.Text, "a frag")
	s.sides[storage.Request].frame(0x80, "ment")
	s.send(storage.Request, ws.Text, strings.Repeat("long ", 200_000))
	s.send(storage.Response, ws.Close, "\x03\xe9going away")
	want := []struct{ side, kind, preview, payload string }{
		{"request", "text", "hello world", "hello\n world"},
		{"response", "binary", "00 01 ff", "\x00\x01\xff"},
		{"response", "ping", "are you there", "are you there"},
		{"request", "text", "a fragment", "a fragment"},
		{"request", "text", strings.TrimSpace(strings.Repeat("long ", 60)), strings.Repeat("long ", 200_000)},
		{"response", "close", "going away", "\x03\xe9going away"},
	}
	check := func() {
		t.Helper()
		got := r.page(list)
		if got.Total != 6 || len(got.Messages) != 6 {
			t.Fatalf("got %+v", got)
		}
		for i, m := range got.Messages {
			w := want[i]
			if m.Number != uint64(i) || m.Side != w.side || m.Type != w.kind || m.Preview != w.preview || m.Size != uint64(len(w.payload)) || m.Problem != "" || m.Compressed || m.Decoded != nil {
				t.Errorf("got %+v, want %.80v", m, w)
			}
			for _, as := range []string{"", "?as=decoded"} {
				path := fmt.Sprintf("%s/%d/payload%s", list, i, as)
				res := r.call("GET", path, "")
				if text := r.text(res); res.StatusCode != 200 || text != w.payload {
					t.Errorf("%s: got %s, %.80q", path, res.Status, text)
				}
				if h := res.Header; h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox; default-src 'none'") ||
					h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("ETag") == "" {
					t.Errorf("%s: got %v", path, h)
				}
				res = r.call("GET", path, "", "Range", "bytes=1-2")
				if text := r.text(res); res.StatusCode != 206 || text != w.payload[1:3] {
					t.Errorf("%s by range: got %s, %.80q", path, res.Status, text)
				}
			}
		}
		if m := got.Messages[5]; m.Code != 1001 {
			t.Errorf("got code %d", m.Code)
		}
		if got := r.page(list + "?from=2&limit=2"); got.Total != 6 || len(got.Messages) != 2 || got.Messages[0].Number != 2 {
			t.Errorf("got %+v", got)
		}
		if got := r.page(list + "?from=6"); got.Total != 6 || len(got.Messages) != 0 {
			t.Errorf("got %+v", got)
		}
		for path, status := range map[string]int{"/6/payload": 404, "/x/payload": 404, "/0/payload?as=text": 400} {
			if res := r.call("GET", list+path, ""); res.StatusCode != status {
				t.Errorf("%s: got %s", path, res.Status)
			}
		}
		res := r.call("GET", list+"/0/payload?download", "")
		if got := res.Header.Get("Content-Disposition"); !strings.Contains(got, `"message-0.txt"`) {
			t.Errorf("got %q", got)
		}
	}
	check()
	s.end()
	check()
	var session Session
	r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", s.rec.ID()), ""), 200, &session)
	if m := session.Messages; m == nil || m.Kind != "websocket" || m.Count != 6 || m.Lost != nil || m.Compressed {
		t.Errorf("got %+v", m)
	}
	if !r.page(list).Final {
		t.Error("the list is not final")
	}
	plain := r.record(exchange{url: "http://a/b"})
	for _, path := range []string{"", "/0/payload"} {
		if res := r.call("GET", fmt.Sprintf("/api/sessions/%d/messages%s", plain, path), ""); res.StatusCode != 404 {
			t.Errorf("a session without messages: %s", res.Status)
		}
	}
}

// Compressed messages are shown decompressed, while they come and after, however each side compresses them.
func TestCompressedMessages(t *testing.T) {
	for _, fresh := range [][2]bool{{}, {true, true}, {true, false}} {
		t.Run(fmt.Sprint("fresh ", fresh), func(t *testing.T) {
			r := newRig(t)
			s := r.socket(storage.Messages{Deflate: true, Fresh: fresh})
			list := fmt.Sprintf("/api/sessions/%d/messages", s.rec.ID())
			text := func(n int) string {
				return fmt.Sprintf("message %d: %s", n, strings.Repeat("the same text ", n%50))
			}
			check := func(from, to int) {
				t.Helper()
				for _, m := range r.page(fmt.Sprintf("%s?from=%d&limit=%d", list, from, to-from)).Messages {
					want := text(int(m.Number))
					if !strings.HasPrefix(want, m.Preview) || m.Preview == "" || m.Decoded == nil || *m.Decoded != int64(len(want)) || m.Problem != "" {
						t.Fatalf("got %+v, want %q", m, want)
					}
				}
				for n := from; n < to; n += 37 {
					res := r.call("GET", fmt.Sprintf("%s/%d/payload?as=decoded", list, n), "")
					if got := r.text(res); res.StatusCode != 200 || got != text(n) {
						t.Fatalf("message %d: got %s, %q, want %q", n, res.Status, got, text(n))
					}
				}
			}
			for n := range 1000 {
				s.send(storage.Side(n%2), ws.Text, text(n))
				if n%250 == 249 {
					check(n-50, n+1)
				}
			}
			s.end()
			check(0, 500)
			check(900, 1000)
			res := r.call("GET", list+"/999/payload", "")
			if got := r.text(res); res.StatusCode != 200 || got == text(999) || len(got) == 0 {
				t.Errorf("as it passed: got %s, %q", res.Status, got)
			}
		})
	}
}

// A damaged message, and those that depend on it, are shown as they are, and the list says why.
func TestDamagedMessages(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		t.Run(fmt.Sprint("fresh ", fresh), func(t *testing.T) {
			r := newRig(t)
			s := r.socket(storage.Messages{Deflate: true, Fresh: [2]bool{fresh, fresh}})
			s.send(storage.Response, ws.Text, "one one one")
			s.sides[storage.Response].frame(0xc1, "\xff\xff")
			s.send(storage.Response, ws.Text, "three three three")
			s.send(storage.Request, ws.Text, "of the other side")
			s.end()
			list := fmt.Sprintf("/api/sessions/%d/messages", s.rec.ID())
			got := r.page(list).Messages
			const damaged, depends = "it cannot be decompressed, and is shown as it is", "a message before it cannot be decompressed, so it is shown as it is"
			want := []string{"", damaged, depends, ""}
			if fresh {
				want[2] = ""
			}
			for i, m := range got {
				if m.Problem != want[i] || (m.Problem == "") != (m.Decoded != nil) || m.Problem != "" && m.Preview == "" {
					t.Errorf("got %+v, want %q", m, want[i])
				}
				res := r.call("GET", fmt.Sprintf("%s/%d/payload?as=decoded", list, i), "")
				if ok := res.StatusCode == 200; ok != (want[i] == "") || !ok && res.StatusCode != 422 {
					t.Errorf("message %d decoded: got %s", i, res.Status)
				}
				if res := r.call("GET", fmt.Sprintf("%s/%d/payload", list, i), ""); res.StatusCode != 200 {
					t.Errorf("message %d as it passed: got %s", i, res.Status)
				}
			}
			if got[1].Preview != "ff ff" {
				t.Errorf("got %q", got[1].Preview)
			}
			eventually(t, "the session says where and why", func() bool {
				var session Session
				r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", s.rec.ID()), ""), 200, &session)
				lost := strings.Join(session.Messages.Lost, "\n")
				return strings.HasPrefix(lost, "message 1 cannot be decompressed: ") && strings.HasSuffix(lost, "after it") == !fresh
			})
		})
	}
}

// A message that was read and not passed on, or whose bytes were lost since, is listed, and says so.
func TestMessageWithoutItsBytes(t *testing.T) {
	r := newRig(t)
	s := r.socket(storage.Messages{})
	s.send(storage.Request, ws.Text, "kept")
	d := s.sides[storage.Request]
	_, _ = d.parser.Write([]byte("\x81\x04lost"))
	s.end()
	list := fmt.Sprintf("/api/sessions/%d/messages", s.rec.ID())
	got := r.page(list).Messages
	if len(got) != 2 || got[0].Problem != "" || got[1].Problem != "it was not passed on, or its bytes were not kept" || got[1].Size != 4 {
		t.Errorf("got %+v", got)
	}
	if res := r.call("GET", list+"/1/payload", ""); res.StatusCode != 404 {
		t.Errorf("got %s", res.Status)
	}
}

func TestMessagesThatAreLost(t *testing.T) {
	r := newRig(t)
	s := r.socket(storage.Messages{})
	s.send(storage.Request, ws.Text, "one")
	s.sides[storage.Request].write([]byte{0x8f, 0})
	s.end()
	var session Session
	r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", s.rec.ID()), ""), 200, &session)
	if m := session.Messages; m == nil || m.Count != 1 || len(m.Lost) != 1 || !strings.HasPrefix(m.Lost[0], "17: a frame has the opcode 15") {
		t.Errorf("got %+v", m)
	}
}

// record an event stream, listed as the relay lists it: by its bytes without the content coding.
func (r *rig) events(stream, coding, wire string) uint64 {
	e := exchange{url: "http://a/events"}
	if coding != "" {
		e.fields = "Content-Encoding: " + coding + "\r\n"
	}
	rec := r.begin(e)
	rec.ListMessages(storage.Messages{Kind: storage.Events})
	p := sse.Parser{Found: func(m sse.Message) {
		entry := storage.Entry{Side: storage.Response, Time: time.Now(), Offset: m.Offset, Length: m.Length, Size: m.Size, Broken: m.Broken}
		if m.Comment {
			entry.Opcode = storage.Comment
		}
		rec.List(entry)
	}}
	_, _ = p.Write([]byte(stream))
	p.End()
	write(rec.Body(storage.Response), wire)
	rec.Body(storage.Response).Complete()
	rec.End(storage.Done, "")
	return rec.ID()
}

func TestEvents(t *testing.T) {
	const stream = "event: add\nid: 7\ndata: {\"a\":\ndata: 1}\n\n: still here\n\nretry: 100\n\ndata: cut"
	r := newRig(t)
	for coding, wire := range map[string]string{"": stream, "gzip": gzipped(t, stream)} {
		list := fmt.Sprintf("/api/sessions/%d/messages", r.events(stream, coding, wire))
		got := r.page(list)
		if got.Total != 4 || !got.Final || len(got.Messages) != 4 {
			t.Fatalf("coding %q: got %+v", coding, got)
		}
		for i, want := range []StreamMessage{
			{Type: "event", Size: 8, Event: "add", EventID: "7", Preview: `{"a": 1}`},
			{Type: "comment", Preview: "still here"},
			{Type: "comment", Retry: "100"},
			{Type: "event", Size: 3, Preview: "cut", Broken: true},
		} {
			m := got.Messages[i]
			want.Number, want.Side, want.Time, want.Offset, want.Length = uint64(i), "response", m.Time, m.Offset, m.Length
			if m != want {
				t.Errorf("coding %q: got %+v, want %+v", coding, m, want)
			}
			if text := r.text(r.call("GET", fmt.Sprintf("%s/%d/payload", list, i), "")); text != stream[m.Offset:m.Offset+m.Length] {
				t.Errorf("coding %q, event %d: got %q", coding, i, text)
			}
		}
		res := r.call("GET", list+"/0/payload?as=decoded&download", "")
		if text := r.text(res); text != "{\"a\":\n1}" || !strings.Contains(res.Header.Get("Content-Disposition"), `"message-0.txt"`) {
			t.Errorf("coding %q: got %q", coding, text)
		}
	}
}

// A share gives its session's messages, and nobody else's.
func TestSharedMessages(t *testing.T) {
	r := newRig(t)
	var sockets []*socket
	for _, text := range []string{"shared", "other"} {
		s := r.socket(storage.Messages{})
		s.send(storage.Request, ws.Text, text)
		sockets = append(sockets, s)
	}
	id, other := sockets[0].rec.ID(), sockets[1].rec.ID()
	_, g := r.share(id, 3600)
	var page MessageList
	g.json(g.get(fmt.Sprintf("/sessions/%d/messages?from=0&limit=10", id)), 200, &page)
	if page.Total != 1 || len(page.Messages) != 1 || page.Messages[0].Preview != "shared" {
		t.Errorf("got %+v", page)
	}
	if got := g.text(g.get(fmt.Sprintf("/sessions/%d/messages/0/payload", id))); got != "shared" {
		t.Errorf("got %q", got)
	}
	for _, path := range []string{"/sessions/%d/messages", "/sessions/%d/messages/0/payload"} {
		if res := g.get(fmt.Sprintf(path, other)); res.StatusCode != 404 {
			t.Errorf("%s: got %s", path, res.Status)
		}
	}
	made, g := r.share(other, 3600)
	r.json(r.call("DELETE", "/api/shares/"+made.ID, ""), 204, nil)
	if res := g.get(fmt.Sprintf("/sessions/%d/messages", other)); res.StatusCode != 404 {
		t.Errorf("a revoked share: got %s", res.Status)
	}
}

// A watch tells how many messages there are while they come.
func TestWatchCountsMessages(t *testing.T) {
	r := newRig(t)
	s := r.socket(storage.Messages{})
	b := r.open("/api/live", nil)
	b.send(`{"type":"watch","id":%d}`, s.rec.ID())
	for n := range uint64(3) {
		s.send(storage.Request, ws.Text, "x")
		next(b, "session", func(m LiveSession) bool { return m.ID == s.rec.ID() && m.Messages == n+1 })
	}
	s.end()
	next(b, "session", func(m LiveSession) bool { return m.Session != nil && m.Session.State == "done" })
}

func TestGRPCStatus(t *testing.T) {
	for _, c := range []struct {
		name, media, head, trailers string
		want                        *GRPC
	}{
		{"trailers", "application/grpc", "content-type: application/grpc\n", "grpc-status: 0\n", &GRPC{Name: "OK"}},
		{"escaped", "application/grpc+proto; a=b", "", "grpc-status: 14\ngrpc-message: no%20%E2%82%AC 100%\n", &GRPC{14, "UNAVAILABLE", "no%20%E2%82%AC 100%"}},
		{"unescaped", "application/grpc", "", "grpc-message: no%20%E2%82%AC\ngrpc-status: 14\n", &GRPC{14, "UNAVAILABLE", "no €"}},
		{"trailers only", "application/grpc", ":status: 200\ngrpc-status: 5\ngrpc-message: gone\n", "", &GRPC{5, "NOT_FOUND", "gone"}},
		{"an unknown code", "application/grpc", "", "grpc-status: 99\n", &GRPC{Status: 99, Name: "code 99"}},
		{"no number", "application/grpc", "", "grpc-status: x\n", nil},
		{"none yet", "application/grpc", ":status: 200\n", "", nil},
		{"another type", "text/plain", "", "grpc-status: 0\n", nil},
		{"gRPC-Web", "application/grpc-web", "", "grpc-status: 0\n", nil},
	} {
		s := storage.Session{ContentType: c.media}
		s.Sides[storage.Response] = storage.Message{Head: []byte(c.head), Trailers: []byte(c.trailers)}
		got := grpcOf(&s)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// BenchmarkMessagesPage asks for a page anywhere of a million compressed messages.
func BenchmarkMessagesPage(b *testing.B) {
	r := newRig(b)
	s := r.socket(storage.Messages{Deflate: true})
	const million = 1_000_000
	for n := range million {
		s.send(storage.Side(n%2), ws.Text, fmt.Sprintf(`{"n":%d,"text":"a message of a common length, with some words"}`, n))
		if n%100 == 0 {
			s.rec.Body(storage.Request).Wait(b.Context())
		}
	}
	s.end()
	list := fmt.Sprintf("/api/sessions/%d/messages", s.rec.ID())
	began := time.Now()
	r.page(fmt.Sprintf("%s?from=%d&limit=100", list, million-100))
	first := time.Since(began)
	n := 0
	for b.Loop() {
		if page := r.page(fmt.Sprintf("%s?from=%d&limit=100", list, n*7919%(million-100))); len(page.Messages) != 100 {
			b.Fatal(len(page.Messages))
		}
		n++
	}
	b.ReportMetric(first.Seconds(), "s/first") // which decompresses all before it
}
