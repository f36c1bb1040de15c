package h2

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rig is a relay over real sockets with a raw framer at each end.
type rig struct {
	relay            *relay
	client, upstream *end
	sockets          [2]*gauge // the relay's: towards the client, and upstream
	watch            *watch
	result           chan error
	cancel           context.CancelCauseFunc
}

// end speaks frames to the relay.
type end struct {
	t     testing.TB
	name  string
	conn  net.Conn
	fr    *http2.Framer
	dec   *hpack.Decoder
	enc   *hpack.Encoder
	block bytes.Buffer
}

func newEnd(t testing.TB, name string, conn net.Conn) *end {
	e := &end{t: t, name: name, conn: conn, fr: http2.NewFramer(conn, conn), dec: hpack.NewDecoder(4096, nil)}
	e.fr.AllowIllegalWrites, e.fr.AllowIllegalReads = true, true
	e.enc = hpack.NewEncoder(&e.block)
	return e
}

// gauge tells what its connection's owner is at.
type gauge struct {
	net.Conn
	written atomic.Int64 // bytes
	writing atomic.Bool  // a write has not returned
}

func (g *gauge) Write(p []byte) (int, error) {
	g.writing.Store(true)
	n, err := g.Conn.Write(p)
	g.written.Add(int64(n))
	g.writing.Store(false)
	return n, err
}

func (g *gauge) CloseWrite() error { return g.Conn.(*net.TCPConn).CloseWrite() }

// untilStuck waits until all of them are in a write, and none goes on, because nobody reads what they write.
func untilStuck(t testing.TB, gauges ...*gauge) {
	t.Helper()
	last, same := int64(-1), 0
	eventually(t, "writes that stand", func() bool {
		now, stand := int64(0), true
		for _, g := range gauges {
			now += g.written.Load()
			stand = stand && g.writing.Load()
		}
		if same++; now != last || !stand {
			last, same = now, 0
		}
		time.Sleep(20 * time.Millisecond)
		return same == 10
	})
}

// tcpPair returns the two ends of a loopback connection.
func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b = <-accepted; b == nil {
		t.Fatal("no connection accepted")
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// newRig starts a relay; the ends have said nothing yet.
func newRig(t testing.TB, hook func(*seen) Exchange) *rig {
	t.Helper()
	client, fromClient := tcpPair(t)
	toUpstream, upstream := tcpPair(t)
	sockets := [2]*gauge{{Conn: fromClient}, {Conn: toUpstream}}
	r := &rig{
		client: newEnd(t, "client", client), upstream: newEnd(t, "upstream", upstream), sockets: sockets,
		watch: &watch{hook: hook, changed: make(chan struct{}, 1)}, result: make(chan error, 1),
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	r.relay = newRelay(Config{
		Client: Conn{Conn: sockets[0]}, Upstream: Conn{Conn: sockets[1]}, Handler: r.watch,
		TempDir: t.TempDir(), MaxStreams: 200, narrowTime: time.Second,
	})
	go func() { r.result <- r.relay.run(ctx) }()
	t.Cleanup(func() {
		client.Close()
		upstream.Close()
		r.wait(t)
	})
	return r
}

// greeted is newRig after both prefaces, with the SETTINGS given.
func greeted(t testing.TB, hook func(*seen) Exchange, client, upstream []http2.Setting) *rig {
	t.Helper()
	r := newRig(t, hook)
	io.WriteString(r.client.conn, http2.ClientPreface)
	r.client.fr.WriteSettings(client...)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r.upstream.conn, preface); err != nil || string(preface) != http2.ClientPreface {
		t.Fatalf("upstream got preface %q, %v", preface, err)
	}
	r.upstream.fr.WriteSettings(upstream...)
	r.upstream.next()
	r.client.next()
	r.upstream.fr.WriteSettingsAck()
	r.client.fr.WriteSettingsAck()
	r.client.want("SETTINGS ack")
	r.upstream.want("SETTINGS ack")
	return r
}

// wait returns what the relay ended with.
func (r *rig) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.result:
		r.result <- err
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the relay did not end")
		return nil
	}
}

// next reads a frame and describes it in one line.
func (e *end) next() string {
	e.t.Helper()
	e.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	f, err := e.fr.ReadFrame()
	if err != nil {
		return fmt.Sprintf("error %v", err)
	}
	switch f := f.(type) {
	case *http2.HeadersFrame:
		block, frames := append([]byte(nil), f.HeaderBlockFragment()...), 1
		line := fmt.Sprintf("HEADERS %d", f.StreamID)
		if f.StreamEnded() {
			line += " end"
		}
		if f.HasPriority() {
			line += fmt.Sprintf(" priority=%d/%d/%v", f.Priority.StreamDep, f.Priority.Weight, f.Priority.Exclusive)
		}
		if f.Flags.Has(http2.FlagHeadersPadded) {
			line += " padded"
		}
		for ended := f.HeadersEnded(); !ended; frames++ {
			next, err := e.fr.ReadFrame()
			if err != nil {
				return fmt.Sprintf("error %v", err)
			}
			c := next.(*http2.ContinuationFrame)
			block, ended = append(block, c.HeaderBlockFragment()...), c.HeadersEnded()
		}
		if frames > 1 {
			line += fmt.Sprintf(" frames=%d", frames)
		}
		fields, err := e.dec.DecodeFull(block)
		if err != nil {
			return fmt.Sprintf("error %v", err)
		}
		return line + " " + describe(fields)
	case *http2.DataFrame:
		line := fmt.Sprintf("DATA %d", f.StreamID)
		if f.StreamEnded() {
			line += " end"
		}
		if f.Flags.Has(http2.FlagDataPadded) {
			line += fmt.Sprintf(" pad=%d", int(f.Length)-len(f.Data())-1)
		}
		if len(f.Data()) > 64 {
			return line + fmt.Sprintf(" %d bytes", len(f.Data()))
		}
		return line + fmt.Sprintf(" %q", f.Data())
	case *http2.SettingsFrame:
		if f.IsAck() {
			return "SETTINGS ack"
		}
		line := "SETTINGS"
		f.ForeachSetting(func(s http2.Setting) error {
			line += fmt.Sprintf(" %v=%d", s.ID, s.Val)
			return nil
		})
		return line
	case *http2.WindowUpdateFrame:
		return fmt.Sprintf("WINDOW_UPDATE %d %d", f.StreamID, f.Increment)
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST_STREAM %d %v", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Sprintf("GOAWAY %d %v %q", f.LastStreamID, f.ErrCode, f.DebugData())
	case *http2.PingFrame:
		return fmt.Sprintf("PING ack=%v %q", f.IsAck(), f.Data[:])
	case *http2.PriorityFrame:
		return fmt.Sprintf("PRIORITY %d %d/%d/%v", f.StreamID, f.StreamDep, f.Weight, f.Exclusive)
	case *http2.PriorityUpdateFrame:
		return fmt.Sprintf("PRIORITY_UPDATE %d %q", f.PrioritizedStreamID, f.Priority)
	case *http2.UnknownFrame:
		return fmt.Sprintf("UNKNOWN type=%d flags=%d %d %q", uint8(f.Type), f.Flags, f.StreamID, f.Payload())
	}
	return fmt.Sprintf("%v", f)
}

// describe writes fields as name=value, with ! where they are never to be indexed.
func describe(fields []hpack.HeaderField) string {
	var parts []string
	for _, f := range fields {
		part := f.Name + "=" + f.Value
		if f.Sensitive {
			part += "!"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

// want reads frames, and reports where they are not the ones that are to come.
func (e *end) want(lines ...string) {
	e.t.Helper()
	for _, want := range lines {
		if got := e.next(); got != want {
			e.t.Fatalf("%s got  %s\nwant %s", e.name, got, want)
		}
	}
}

// skipCredit adds up WINDOW_UPDATEs by stream, and returns the next other frame; also an empty line once the connection's credit is stop.
func (e *end) skipCredit(credit map[uint32]uint32, stop ...uint32) string {
	e.t.Helper()
	for {
		line := e.next()
		var id, n uint32
		if k, _ := fmt.Sscanf(line, "WINDOW_UPDATE %d %d", &id, &n); k != 2 {
			return line
		}
		if credit[id] += n; len(stop) > 0 && credit[0] >= stop[0] {
			return ""
		}
	}
}

// wantStart is want for frames whose text is not told whole.
func (e *end) wantStart(want string) {
	e.t.Helper()
	if got := e.next(); !strings.HasPrefix(got, want) {
		e.t.Fatalf("%s got  %s\nwant %s…", e.name, got, want)
	}
}

// fields parses what describe writes.
func fields(text string) []hpack.HeaderField {
	var list []hpack.HeaderField
	for part := range strings.FieldsSeq(text) {
		i := strings.LastIndexByte(part[:1+strings.IndexByte(part[1:], '=')], '=')
		if i < 1 {
			i = 1 + strings.IndexByte(part[1:], '=')
		}
		value, sensitive := strings.CutSuffix(part[i+1:], "!")
		list = append(list, hpack.HeaderField{Name: part[:i], Value: value, Sensitive: sensitive})
	}
	return list
}

func (e *end) encode(list []hpack.HeaderField) []byte {
	e.block.Reset()
	for _, f := range list {
		e.enc.WriteField(f)
	}
	return append([]byte(nil), e.block.Bytes()...)
}

// headers sends a field list in one frame.
func (e *end) headers(id uint32, endStream bool, text string) {
	e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: e.encode(fields(text)), EndStream: endStream, EndHeaders: true})
}

const get = ":method=GET :scheme=https :authority=a.test :path=/"

// watch is a Handler that notes what it is told. hook may put another Exchange over the notes.
type watch struct {
	hook func(*seen) Exchange

	mu       sync.Mutex
	streams  []*seen
	refused  []string
	settings [4][][]http2.Setting // by Party
	quiet    bool                 // no more streams and settings are noted
	away     []string
	changed  chan struct{}
}

// seen is what one stream came to.
type seen struct {
	w        *watch
	s        *Stream
	heads    [2][]string
	data     [2]bytes.Buffer
	trailers [2]string
	sent     [2]bool
	closed   *Close
	closes   int
	told     [2]bool       // sent, when it was closed
	full     chan struct{} // what Data returns
}

func (w *watch) note(fn func()) {
	w.mu.Lock()
	fn()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watch) Open(s *Stream) Exchange {
	e := &seen{w: w, s: s}
	w.note(func() {
		if !w.quiet {
			w.streams = append(w.streams, e)
		}
	})
	if w.hook != nil {
		return w.hook(e)
	}
	return e
}

func (w *watch) Refused(id uint32, fields []hpack.HeaderField, c Close) {
	w.note(func() { w.refused = append(w.refused, fmt.Sprintf("%d %v", id, c.Err)) })
}

func (w *watch) Settings(by Party, list []http2.Setting) {
	w.note(func() {
		if !w.quiet {
			w.settings[by] = append(w.settings[by], list)
		}
	})
}

func (w *watch) GoAway(by Party, last uint32, code http2.ErrCode, debug []byte) {
	w.note(func() { w.away = append(w.away, fmt.Sprintf("%v %d %v %q", by, last, code, debug)) })
}

// until waits for something to be noted.
func (w *watch) until(t testing.TB, what string, done func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		ok := done()
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-w.changed:
		case <-late:
			t.Fatalf("never came: %s", what)
		}
	}
}

func (e *seen) Head(side Side, h *Head) {
	e.w.note(func() { e.heads[side] = append(e.heads[side], describe(h.Fields)) })
}

func (e *seen) Passing(Side, []byte) {}

func (e *seen) Data(side Side, p []byte) <-chan struct{} {
	var full chan struct{}
	e.w.note(func() {
		e.data[side].Write(p)
		full = e.full
	})
	if full == nil {
		return nil
	}
	return full
}

func (e *seen) Trailers(side Side, h *Head) {
	e.w.note(func() { e.trailers[side] = describe(h.Fields) })
}
func (e *seen) Sent(side Side) { e.w.note(func() { e.sent[side] = true }) }
func (e *seen) Closed(c Close) {
	e.w.note(func() { e.closed = &c; e.closes++; e.told = e.sent })
}
