package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/e2e/harness"
)

// peer2 is the test's end of an HTTP/2 connection, frame by frame.
type peer2 struct {
	*http2.Framer
	io.Closer

	encoder *hpack.Encoder
	decoder *hpack.Decoder
	open    map[uint32]*message2

	mu     sync.Mutex // for writing, and for what follows
	block  bytes.Buffer
	credit map[uint32]int64 // what may be sent on a stream, and on the connection as stream 0
	window int64            // of each new stream, as the other side said
	more   *sync.Cond       // credit has grown, or the connection has ended
	ended  bool
}

// message2 is one side of a stream.
type message2 struct {
	stream   uint32
	fields   []string // name, value, …
	body     bytes.Buffer
	trailers []string
	started  bool
}

// resetError is a stream that the other side reset.
type resetError struct {
	stream uint32
	code   http2.ErrCode
}

func (e resetError) Error() string { return fmt.Sprintf("stream %d was reset: %v", e.stream, e.code) }

// expectReset checks that an error is a reset with the code.
func expectReset(err error, code http2.ErrCode) error {
	var reset resetError
	if errors.As(err, &reset) && reset.code == code {
		return nil
	}
	return fmt.Errorf("got %w, want a reset with %v", orNone(err), code)
}

func newPeer2(f *http2.Framer, c io.Closer) *peer2 {
	p := &peer2{Framer: f, Closer: c, open: map[uint32]*message2{}, credit: map[uint32]int64{0: 65_535}, window: 65_535}
	p.more = sync.NewCond(&p.mu)
	p.AllowIllegalWrites = true
	p.encoder = hpack.NewEncoder(&p.block)
	p.decoder = hpack.NewDecoder(4096, nil)
	p.decoder.SetMaxStringLength(4 << 20)
	return p
}

// listen2 starts an origin that calls serve with each HTTP/2 connection, after the preface.
func (r *run) listen2(serve func(*peer2) error, settings ...http2.Setting) (addr string) {
	r.Helper()
	return r.listen(func(c *conn) error { return serve2(c, serve, settings...) })
}

// serve2 reads the preface, sends the settings, and serves the connection.
func serve2(c *conn, serve func(*peer2) error, settings ...http2.Setting) error {
	if err := c.expect(http2.ClientPreface); err != nil {
		return nil // the client had nothing to ask
	}
	p := newPeer2(http2.NewFramer(c, c.r), c)
	if err := p.WriteSettings(settings...); err != nil {
		return err
	}
	return serve(p)
}

// serveOne2 answers one request for the path with 204.
func serveOne2(c *conn, path string) error {
	return serve2(c, func(p *peer2) error {
		m, err := p.message()
		if err != nil || !slices.Contains(m.fields, path) {
			return fmt.Errorf("got %v, %w", m, orNone(err))
		}
		p.send(m.stream, []string{":status", "204"}, "", nil)
		_, _ = p.message()
		return nil
	})
}

// dial2 connects to an HTTP/2 origin through the program.
func (r *run) dial2(addr string, settings ...http2.Setting) *peer2 {
	r.Helper()
	c, err := harness.DialHTTP2(r.program.Proxy, addr, r.roots, settings...)
	r.must(err)
	r.Cleanup(func() { _ = c.Close() })
	_ = newConn(c.Conn) // sets the deadline
	return newPeer2(c.Framer, c)
}

// fields sends a field list in frames of at most 16 KiB.
func (p *peer2) fields(stream uint32, end bool, fields ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	const most = 16 << 10
	block := p.block.Bytes()
	n := min(len(block), most)
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block)})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), most)
		_ = p.WriteContinuation(stream, n == len(block), block[:n])
	}
}

// send sends a message whole. Where it is larger than the windows, somebody must be reading.
func (p *peer2) send(stream uint32, fields []string, body string, trailers []string) {
	p.fields(stream, body == "" && trailers == nil, fields...)
	if body != "" {
		_ = p.data(stream, trailers == nil, []byte(body))
	}
	if trailers != nil {
		p.fields(stream, true, trailers...)
	}
}

// data sends a body's bytes, as the windows allow.
func (p *peer2) data(stream uint32, end bool, rest []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.credit[stream]; !known {
		p.credit[stream] = p.window
	}
	for len(rest) > 0 {
		n := min(int64(len(rest)), 16<<10, p.credit[stream], p.credit[0])
		if n <= 0 {
			if p.ended {
				return io.ErrClosedPipe
			}
			p.more.Wait()
			continue
		}
		if err := p.WriteData(stream, end && n == int64(len(rest)), rest[:n]); err != nil {
			return err
		}
		p.credit[stream] -= n
		p.credit[0] -= n
		rest = rest[n:]
	}
	return nil
}

// give takes note of what the other side allows.
func (p *peer2) give(frame http2.Frame) {
	switch frame := frame.(type) {
	case *http2.WindowUpdateFrame:
		if _, known := p.credit[frame.StreamID]; !known {
			p.credit[frame.StreamID] = p.window
		}
		p.credit[frame.StreamID] += int64(frame.Increment)
	case *http2.SettingsFrame:
		if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
			for stream := range p.credit {
				if stream != 0 {
					p.credit[stream] += int64(v) - p.window
				}
			}
			p.window = int64(v)
		}
	}
	p.more.Broadcast()
}

// message reads until a stream's message is whole, and returns it. 1xx heads are passed over. A reset is a resetError.
func (p *peer2) message() (*message2, error) {
	for {
		m, end, err := p.next()
		if err != nil {
			return nil, err
		}
		if end {
			return m, nil
		}
	}
}

// next reads until something of a stream's message came, and returns what it is so far, and whether it is whole.
// Window is given back for all data.
func (p *peer2) next() (m *message2, end bool, err error) {
	for {
		frame, err := p.ReadFrame()
		p.mu.Lock()
		p.ended = err != nil
		if err == nil {
			p.give(frame)
		}
		p.more.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return nil, false, err
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = p.locked(p.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = p.locked(func() error { return p.WritePing(true, frame.Data) })
			}
		case *http2.HeadersFrame:
			end = frame.StreamEnded()
			block := bytes.Clone(frame.HeaderBlockFragment())
			for done := frame.HeadersEnded(); !done && err == nil; {
				var more http2.Frame
				if more, err = p.ReadFrame(); err == nil {
					c, ok := more.(*http2.ContinuationFrame)
					if !ok {
						return nil, false, errors.New("a field list was interrupted")
					}
					block, done = append(block, c.HeaderBlockFragment()...), c.HeadersEnded()
				}
			}
			if err == nil {
				return p.list(id, block, end)
			}
		case *http2.DataFrame:
			m := p.at(id)
			m.body.Write(frame.Data())
			if n := frame.Length; n > 0 {
				err = p.locked(func() error {
					if frame.StreamEnded() {
						return p.WriteWindowUpdate(0, n)
					}
					return errors.Join(p.WriteWindowUpdate(0, n), p.WriteWindowUpdate(id, n))
				})
			}
			return p.done(m, frame.StreamEnded()), frame.StreamEnded(), err
		case *http2.RSTStreamFrame:
			delete(p.open, id)
			return nil, false, resetError{id, frame.ErrCode}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo { // or what is open goes on
				return nil, false, fmt.Errorf("the connection is going away: %v %q", frame.ErrCode, frame.DebugData())
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
}

func (p *peer2) locked(write func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return write()
}

// list takes a field list: a message's head, a 1xx head before it, or its trailers.
func (p *peer2) list(id uint32, block []byte, end bool) (*message2, bool, error) {
	decoded, err := p.decoder.DecodeFull(block)
	if err != nil {
		return nil, false, fmt.Errorf("decode fields: %w", err)
	}
	var fields []string
	for _, f := range decoded {
		fields = append(fields, f.Name, f.Value)
	}
	m := p.at(id)
	switch {
	case m.started:
		m.trailers = fields
	default:
		m.fields = fields
		m.started = fields[0] != ":status" || fields[1][0] != '1'
	}
	return p.done(m, end), end, nil
}

func (p *peer2) at(id uint32) *message2 {
	m := p.open[id]
	if m == nil {
		m = &message2{stream: id}
		p.open[id] = m
	}
	return m
}

func (p *peer2) done(m *message2, end bool) *message2 {
	if end {
		delete(p.open, m.stream)
	}
	return m
}

// is compares a message with what was sent.
func (m *message2) is(fields []string, body string, trailers []string) error {
	if !slices.Equal(m.fields, fields) || !slices.Equal(m.trailers, trailers) || m.body.String() != body {
		return fmt.Errorf("stream %d: got %q, %d bytes %q, trailers %q; want %q, %d bytes %q, trailers %q",
			m.stream, m.fields, m.body.Len(), clip(m.body.String()), m.trailers, fields, len(body), clip(body), trailers)
	}
	return nil
}
