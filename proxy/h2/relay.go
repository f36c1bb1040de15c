// Package h2 relays one HTTP/2 connection frame by frame, between a client and an upstream server, and lets hooks see and
// change what passes. Stream ids are the same on both sides. What the two ends do not need to agree on with us (PING, GOAWAY,
// unknown frames, most SETTINGS, RST_STREAM with its code) passes as it is; field lists are decoded and encoded anew,
// because each connection has its own compression state (RFC 7541).
//
// Nothing is queued: a frame is written to one side before the next is read from the other, and window credit reaches a sender
// only as the receiver gives it. So a receiver that does not read stops its sender, as without a relay.
package h2

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Side names one direction of a stream.
type Side uint8

// The two sides of a stream.
const (
	Request  Side = iota // from the client to upstream
	Response             // from upstream to the client
)

func (s Side) other() Side { return 1 - s }

// Conn is one end of the relayed connection. Reader holds what was read ahead of it.
type Conn struct {
	net.Conn
	Reader *bufio.Reader // nil: nothing was read ahead
}

// Config says what a relay joins. Client, Upstream and Handler are needed.
type Config struct {
	Client   Conn // positioned before the client's connection preface
	Upstream Conn // nothing was sent or read yet
	Handler  Handler

	SettingsTime time.Duration   // for upstream's first SETTINGS, 30 s
	StallTime    time.Duration   // for a write that the peer does not accept, 30 min
	Drain        <-chan struct{} // when closed, no stream is begun any more, and the client is told so; nil: never
	Stalled      func() bool     // whether a hold is certain to last, so that upstream is lent less at once; nil: never
	MaxStreams   int             // open at once; more are refused, DefaultMaxStreams
	MaxList      int             // bytes of a field list, DefaultMaxList
	narrowTime   time.Duration   // narrowTime, but for tests
	TempDir      string          // for what a hook that took a side has not read yet; the system's
}

// DefaultMaxStreams bounds the open streams of one connection where upstream does not: some 2 KiB each with their recordings, so 20 MiB at
// most. Servers allow 100 to 1,000.
const DefaultMaxStreams = 10_000

// Handler is told of new streams, from the goroutine that reads the client.
type Handler interface {
	// Open is called before anything of a new stream is passed on.
	Open(s *Stream) Exchange

	// Refused is called for a request that is answered or reset by the relay itself. The fields may be incomplete, and are as Legible makes them.
	Refused(id uint32, fields []hpack.HeaderField, c Close)

	// Settings is called with what a party's SETTINGS have come to, each time before they are passed on: in the order in which they were
	// first sent, at most maxSettings. It comes from the goroutine that reads the party; the list is not changed afterwards.
	Settings(by Party, list []http2.Setting)

	// GoAway is called with each GOAWAY before it is passed on, or sent. The debug data are valid until it returns. It comes from any goroutine.
	GoAway(by Party, last uint32, code http2.ErrCode, debug []byte)
}

// Exchange sees one stream. Calls for one side come in order, from one goroutine; calls for the two sides, and Closed, may come at the same time.
// A call must be quick: it holds up its side of the whole connection.
type Exchange interface {
	// Head is called with each head, informational ones included, before it is passed on. It may change the fields. It may
	// take the side over (Stream.Take): then nothing of it is passed on.
	Head(side Side, h *Head)

	// Passing is called with each run of a body before it is written to the receiver: what it does stands before any answer. It must not keep p.
	Passing(side Side, p []byte)

	// Data is called with each run of a body, after it was written to the receiver; p is the relay's again on return.
	// A channel asks that the sender gets no further credit for this stream until it is closed; what was granted still arrives.
	Data(side Side, p []byte) (full <-chan struct{})

	// Trailers is called with the fields after the body, before they are passed on. It may change them. Those of a side that was taken
	// over are its Incoming's.
	Trailers(side Side, h *Head)

	// Sent is called once the whole side was written to its receiver.
	Sent(side Side)

	// Closed is called once, last.
	Closed(c Close)
}

// Head is a field list with what its frame said.
type Head struct {
	Fields        []hpack.HeaderField // in the order sent, pseudo-fields included; valid until the call returns
	End           bool                // nothing follows on this side
	Informational bool                // a 1xx response
}

// Status returns the value of :status, 0 where there is none.
func (h *Head) Status() int { return status(h.Fields) }

// Party says who did something.
type Party uint8

// The parties of a relayed connection. Nobody ended a stream that was relayed whole.
const (
	Nobody Party = iota
	Client
	Upstream
	Proxy
)

func (p Party) String() string {
	return [...]string{"nobody", "the client", "upstream", "the proxy"}[p]
}

// Close tells how a stream ended.
type Close struct {
	By    Party
	Code  http2.ErrCode // of the RST_STREAM or GOAWAY that ended it
	Err   error         // for people; nil where By is Nobody
	Reset Party         // who sent RST_STREAM; Nobody: it ended otherwise
}

// relay is one relayed connection.
type relay struct {
	cfg      Config
	peers    [2]*peer      // by the Side they send: the client, upstream
	ready    chan struct{} // closed once upstream's first SETTINGS were passed on
	done     chan struct{} // closed once the connection is over
	cause    Close         // why; set before done is closed
	stopOnce sync.Once
	workers  sync.WaitGroup

	mu        sync.Mutex
	credit    sync.Cond // with mu: a window grew, or a stream or the connection ended
	streams   map[uint32]*Stream
	held      int       // bytes of their field lists, see maxHeld
	last      uint32    // highest stream id the client used
	opened    uint32    // highest stream id that upstream saw
	windows   [2]window // of the connection, by side
	narrowing narrowing
	dead      bool
	drained   bool // no stream is begun any more
}

// Relay relays until one side ends the connection, or ctx does; then both connections are closed. The error is a *StreamError that says
// why, and nil where a side closed while no stream was open.
func Relay(ctx context.Context, cfg Config) error { return newRelay(cfg).run(ctx) }

func newRelay(cfg Config) *relay {
	if cfg.SettingsTime == 0 {
		cfg.SettingsTime = 30 * time.Second
	}
	if cfg.StallTime == 0 {
		cfg.StallTime = 30 * time.Minute
	}
	if cfg.narrowTime == 0 {
		cfg.narrowTime = narrowTime
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	if cfg.MaxList == 0 {
		cfg.MaxList = DefaultMaxList
	}
	r := &relay{
		cfg:       cfg,
		ready:     make(chan struct{}),
		done:      make(chan struct{}),
		streams:   make(map[uint32]*Stream),
		narrowing: narrowing{ours: -1},
		windows:   [2]window{{real: initialWindow, lent: initialWindow}, {real: initialWindow, lent: initialWindow}},
	}
	r.credit.L = &r.mu
	r.peers[Request] = newPeer(Client, Request, cfg.Client, cfg)
	r.peers[Response] = newPeer(Upstream, Response, cfg.Upstream, cfg)
	return r
}

func (r *relay) run(ctx context.Context) error {
	var flushers sync.WaitGroup
	var readers [2]sync.WaitGroup
	for side, p := range r.peers {
		flushers.Go(func() { p.w.answer(r.done) })
		readers[side].Go(func() { r.stop(r.read(p)) })
	}
	for drain := r.cfg.Drain; ; drain = nil {
		select {
		case <-drain:
			r.drain()
			continue
		case <-ctx.Done():
			r.stop(Close{By: Proxy, Code: http2.ErrCodeNo, Err: context.Cause(ctx)})
		case <-r.done:
		}
		break
	}
	open := r.abandon()
	var parting sync.WaitGroup
	parting.Go(r.part)
	readers[Response].Wait() // a client that leaves with the last byte of a response may be faster than the booking of that byte
	for _, s := range open {
		s.exchange.Closed(r.cause)
	}
	parting.Wait()
	readers[Request].Wait()
	flushers.Wait()
	r.workers.Wait()
	if len(open) == 0 && errors.Is(r.cause.Err, io.EOF) {
		return nil
	}
	return &StreamError{r.cause}
}

// drain tells the client to begin no more streams here. RFC 9113, section 6.8.
func (r *relay) drain() {
	r.mu.Lock()
	r.drained = true
	last := r.last
	r.mu.Unlock()
	why := []byte("the proxy is stopping")
	r.cfg.Handler.GoAway(Proxy, last, http2.ErrCodeNo, why)
	r.answerLater(r.peers[Request], func(w *writer) { w.goAway(last, http2.ErrCodeNo, why) })
}

// stop makes c the end of the connection, unless it has one.
func (r *relay) stop(c Close) {
	r.stopOnce.Do(func() {
		r.cause = c
		close(r.done)
	})
}

// abandon lets nothing more begin, and gives up what hooks read. It returns the streams that are open.
func (r *relay) abandon() map[uint32]*Stream {
	r.mu.Lock()
	r.dead = true
	streams := r.streams
	r.streams = nil
	r.credit.Broadcast()
	r.mu.Unlock()
	for _, s := range streams {
		s.giveUp(r.cause)
	}
	return streams
}

// partTime is how long the connection is kept after its end, for a peer to read what was said last. A socket closed while
// bytes are unread takes back what it sent.
const partTime = time.Second

// part says GOAWAY where the other end does not know yet, and closes both connections.
func (r *relay) part() {
	r.mu.Lock()
	last := [2]uint32{r.last, 0} // upstream opens no streams
	r.mu.Unlock()
	var parting sync.WaitGroup
	for side, p := range r.peers {
		if r.cause.By == p.party && r.cause.Code == http2.ErrCodeNo {
			p.conn.Close() // it left by itself
			continue
		}
		parting.Go(func() {
			defer p.conn.Close()
			late := time.AfterFunc(partTime, func() { p.conn.Close() }) // it may not read
			defer late.Stop()
			p.w.lock()
			if !p.w.leaving {
				p.w.goAway(last[side], r.cause.Code, []byte(r.cause.Err.Error()))
			}
			err := p.w.unlock(true)
			half, ok := p.conn.(interface{ CloseWrite() error })
			if p.party == Client && err == nil && ok && half.CloseWrite() == nil {
				io.Copy(io.Discard, p.conn)
			}
		})
	}
	parting.Wait()
}
