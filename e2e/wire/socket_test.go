package wire

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"

	"millpond/e2e/harness"
)

// opening is how a WebSocket is opened.
type opening struct {
	extensions string // Sec-WebSocket-Extensions, which the origin agrees to
	early      string // frames that the client sends before it has an answer
	name       string // of the origin, over HTTP/1; empty: its address
}

// socketFields are what a client's handshake carries besides; all of it must reach the origin.
var socketFields = []string{
	"cookie", "session=1", "origin", "https://page.example", "user-agent", "test", "sec-websocket-version", "13", "sec-websocket-protocol", "chat",
	"x-custom", "kept",
}

// socket opens a WebSocket at the run's path through the program: by Upgrade (RFC 6455), or over HTTP/2 by extended CONNECT (RFC 8441).
// The origin calls serve with its end, and closes it after.
func (r *run) socket(o opening, serve func(*socket) error) *socket {
	r.Helper()
	if r.protocol == harness.HTTP2 {
		return r.socket2(o, serve)
	}
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	accept := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(accept[:]) + "\r\n"
	fields := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: " + key + "\r\n"
	for i := 0; i < len(socketFields); i += 2 {
		fields += socketFields[i] + ": " + socketFields[i+1] + "\r\n"
	}
	if o.extensions != "" {
		answer += "Sec-WebSocket-Extensions: " + o.extensions + "\r\n"
		fields += "Sec-WebSocket-Extensions: " + o.extensions + "\r\n"
	}
	answer += "\r\n"
	var addr string
	addr = hostNamed(o.name, r.listen(func(c *conn) error {
		if err := c.expect("GET " + r.path + " HTTP/1.1\r\nHost: " + addr + "\r\n" + fields + "\r\n"); err != nil {
			return err
		}
		c.send(answer)
		return serve(&socket{r: c.r, w: c, c: c, masked: false})
	}))
	c := r.dial(addr)
	c.send("GET " + r.target(addr, r.path) + " HTTP/1.1\r\nHost: " + addr + "\r\n" + fields + "\r\n" + o.early)
	if err := c.expect(answer); err != nil {
		r.Fatalf("handshake: %v", err)
	}
	return &socket{r: c.r, w: c, c: c, masked: true}
}

func (r *run) socket2(o opening, serve func(*socket) error) *socket {
	r.Helper()
	var addr string
	fields := func() []string {
		fields := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", addr, ":path", r.path}
		fields = append(fields, socketFields...)
		if o.extensions != "" {
			fields = append(fields, "sec-websocket-extensions", o.extensions)
		}
		return fields
	}
	addr = r.listen2(func(p *peer2) error {
		m, _, err := p.next()
		if err != nil {
			return err
		}
		if !slices.Equal(m.fields, fields()) {
			return fmt.Errorf("got %q, want %q", m.fields, fields())
		}
		answer := []string{":status", "200"}
		if o.extensions != "" {
			answer = append(answer, "sec-websocket-extensions", o.extensions)
		}
		p.fields(m.stream, false, answer...)
		s := newSocket2(p, m, false)
		err = serve(s)
		_ = s.c.Close()
		// What the other side still sends is taken, so that the connection ends by its will.
		_, _ = io.Copy(io.Discard, s.r)
		_, _ = p.message()
		return err
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	c := r.dial2(addr)
	c.fields(1, false, fields()...)
	if o.early != "" {
		r.must(c.data(1, false, []byte(o.early)))
	}
	m, _, err := c.next()
	r.must(err)
	if len(m.fields) < 2 || m.fields[1] != "200" {
		r.Fatalf("handshake: %q", m.fields)
	}
	return newSocket2(c, m, true)
}

// socket is one end of a WebSocket.
type socket struct {
	r      *bufio.Reader
	w      io.Writer
	c      io.Closer
	masked bool // it sends masked frames, as a client does

	mu sync.Mutex
}

// newSocket2 is the socket of a stream, of which only this socket reads.
func newSocket2(p *peer2, m *message2, masked bool) *socket {
	s := &streamEnd{p: p, m: m}
	s.came = sync.NewCond(&s.mu)
	go s.pump()
	return &socket{r: bufio.NewReader(s), w: s, c: s, masked: masked}
}

// streamEnd is the test's end of a stream. It reads ahead of its reader, because a writer waits for windows that are read, too.
type streamEnd struct {
	p *peer2
	m *message2

	mu    sync.Mutex
	came  *sync.Cond
	ahead bytes.Buffer
	err   error
}

func (s *streamEnd) pump() {
	for end := false; s.err == nil; {
		var err error
		if end {
			err = io.EOF
		} else {
			_, end, err = s.p.next()
		}
		s.mu.Lock()
		_, _ = s.m.body.WriteTo(&s.ahead)
		s.err = err
		s.mu.Unlock()
		s.came.Broadcast()
	}
}

func (s *streamEnd) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ahead.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.came.Wait()
	}
	return s.ahead.Read(b)
}

func (s *streamEnd) Write(b []byte) (int, error) { return len(b), s.p.data(s.m.stream, false, b) }

func (s *streamEnd) Close() error {
	return s.p.locked(func() error { return s.p.WriteData(s.m.stream, true, nil) })
}

// Opcodes and bits of a frame's first byte. RFC 6455, section 5.2.
const (
	final      = 0x80
	compressed = 0x40
	more       = 0x0
	text       = 0x1
	binaryData = 0x2
	closing    = 0x8
	ping       = 0x9
)

var mask = [4]byte{0x37, 0xfa, 0x21, 0x3d}

// frame renders a frame.
func frame(first byte, payload string, masked bool) string {
	head := []byte{first, 0}
	switch n := len(payload); {
	case n < 126:
		head[1] = byte(n)
	case n < 1<<16:
		head[1] = 126
		head = binary.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[1] = 127
		head = binary.BigEndian.AppendUint64(head, uint64(n))
	}
	if !masked {
		return string(head) + payload
	}
	head[1] |= 0x80
	head = append(head, mask[:]...)
	for i := range len(payload) {
		head = append(head, payload[i]^mask[i%4])
	}
	return string(head)
}

// send sends a frame.
func (s *socket) send(first byte, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.w, frame(first, payload, s.masked))
}

// expect reads a frame and compares it with what was sent.
func (s *socket) expect(first byte, payload string) error {
	want := frame(first, payload, !s.masked)
	got := make([]byte, len(want))
	n, err := io.ReadFull(s.r, got)
	if string(got[:n]) != want {
		return fmt.Errorf("got frame %q, %w; want %q", clip(string(got[:n])), orNone(err), clip(want))
	}
	return nil
}

// close says goodbye and waits for the answer, as each end does in the end.
func (r *run) close(s *socket) {
	r.Helper()
	s.send(final|closing, "\x03\xe8bye")
	r.must(s.expect(final|closing, "\x03\xe8bye"))
	_ = s.c.Close()
}

// goodbye is what an origin does with a client's goodbye.
func (s *socket) goodbye() error {
	if err := s.expect(final|closing, "\x03\xe8bye"); err != nil {
		return err
	}
	s.send(final|closing, "\x03\xe8bye")
	return nil
}

// deflater compresses messages one after the other, each with what it knows from those before. RFC 7692, section 7.2.1.
type deflater struct {
	out bytes.Buffer
	w   *flate.Writer
}

func newDeflater() *deflater {
	d := &deflater{}
	d.w, _ = flate.NewWriter(&d.out, flate.BestCompression)
	return d
}

func (d *deflater) message(text string) string {
	d.out.Reset()
	_, _ = io.WriteString(d.w, text)
	_ = d.w.Flush()
	return strings.TrimSuffix(d.out.String(), "\x00\x00\xff\xff")
}
