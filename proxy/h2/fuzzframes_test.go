package h2

import (
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// player is one end of a connection on which frames are sent by choice. It answers what has to be answered, and gives all credit back.
type player struct {
	*end
	party Party
	ended chan struct{} // closed when its connection has

	mu      sync.Mutex
	ids     []uint32 // of streams that it knows
	granted int64    // bytes, on the connection, beyond the initial window and what it got
	pings   chan [8]byte
}

func newPlayer(e *end, party Party) *player {
	p := &player{end: e, party: party, ended: make(chan struct{}), pings: make(chan [8]byte, 1)}
	go p.listen()
	return p
}

// listen reads until the connection ends.
func (p *player) listen() {
	defer close(p.ended)
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			var stream http2.StreamError
			if errors.As(err, &stream) {
				continue
			}
			return
		}
		p.mu.Lock()
		switch f := f.(type) {
		case *http2.DataFrame:
			if f.Length > 0 {
				p.fr.WriteWindowUpdate(0, f.Length)
				p.fr.WriteWindowUpdate(f.StreamID, f.Length)
			}
		case *http2.HeadersFrame:
			if p.party == Upstream {
				p.ids = append(p.ids, f.StreamID)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				p.fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			switch {
			case f.IsAck():
			case string(f.Data[:4]) == "end!":
				p.pings <- f.Data
			default:
				p.fr.WritePing(true, f.Data)
			}
		}
		p.mu.Unlock()
	}
}

// act sends one frame, as choose has it. Most are what an end may send; one in some twenty is not.
func (p *player) act(choose func(n int) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := uint32(1)
	if n := len(p.ids); n > 0 {
		id = p.ids[n-1-choose(min(n, 6))]
	} else if p.party == Upstream {
		p.fr.WritePing(false, [8]byte{'x'})
		return
	}
	end := choose(4) == 0
	switch what := choose(24); {
	case what < 6 && p.party == Client:
		if id += 2; len(p.ids) > 0 {
			id = p.ids[len(p.ids)-1] + 2
		}
		p.ids = append(p.ids, id)
		p.headersIn(choose, id, end, fields(get+" cookie=a! x-n="+string(rune('a'+choose(26)))))
	case what < 6:
		status := []string{":status=200", ":status=200", ":status=103", ":status=404", "x=y", ":status=2"}[choose(6)]
		p.headersIn(choose, id, end && status != ":status=103", fields(status))
	case what < 11:
		data := make([]byte, choose(1500))
		if choose(4) == 0 {
			p.fr.WriteDataPadded(id, end, data, make([]byte, choose(256)))
		} else {
			p.fr.WriteData(id, end, data)
		}
	case what < 12:
		p.headersIn(choose, id, true, fields("x-trailer=1"))
	case what < 14:
		p.fr.WriteRSTStream(id, http2.ErrCode(choose(14)))
	case what < 15:
		n := uint32(1 + choose(5000))
		if id *= uint32(choose(2)); id == 0 {
			p.granted += int64(n)
		}
		p.fr.WriteWindowUpdate(id, n)
	case what < 16:
		p.fr.WritePing(choose(2) == 0, [8]byte{byte(what)})
	case what < 17:
		p.fr.WriteSettings(
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(choose(200_000))},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(choose(3)) * 2048},
		)
	case what < 18:
		p.fr.WritePriority(id, http2.PriorityParam{StreamDep: uint32(choose(9)), Weight: 3})
	case what < 19:
		p.fr.WriteRawFrame(http2.FrameType(0x20+choose(16)), http2.Flags(choose(256)), id*uint32(choose(2)), make([]byte, choose(40)))
	case what < 20 && choose(4) == 0: // anything
		payload := make([]byte, choose(40))
		for i := range payload {
			payload[i] = byte(choose(256))
		}
		what := http2.FrameType(choose(12))
		if what == http2.FrameWindowUpdate {
			return // it could be right, and is not accounted for
		}
		p.fr.WriteRawFrame(what, http2.Flags(choose(256)), uint32(choose(40)), payload)
	case what < 20 && p.party == Upstream && choose(8) == 0:
		p.fr.WriteGoAway(id, http2.ErrCode(choose(14)), []byte("why"))
	}
}

// headersIn sends a field list in frames of a chosen size.
func (p *player) headersIn(choose func(n int) int, id uint32, end bool, list []hpack.HeaderField) {
	p.sendBlock(id, end, p.encode(list), []int{1 << 14, 1 << 14, 20, 3}[choose(4)])
}

// play has both ends send frames by choice, in turns, and reports whether the connection outlived it. Then every stream has to be gone, and the ledger be even
// once some more has passed.
func play(t *testing.T, choose func(n int) int, over func() bool) (alive bool) {
	r := greeted(t, takeSome, nil, nil)
	client, upstream := newPlayer(r.client, Client), newPlayer(r.upstream, Upstream)
	defer func() {
		r.client.conn.Close()
		r.upstream.conn.Close()
		<-client.ended
		<-upstream.ended
		r.wait(t)
		r.watch.closedOnce(t)
	}()
	for range 80 {
		if over() {
			break
		}
		if choose(2) == 0 {
			client.act(choose)
		} else {
			upstream.act(choose)
		}
	}
	if !client.reaches(upstream) {
		return false
	}
	r.relay.mu.Lock()
	last := r.relay.last
	r.relay.mu.Unlock()
	client.mu.Lock()
	for id := range last {
		client.fr.WriteRSTStream(id+1, http2.ErrCodeCancel)
	}
	client.mu.Unlock()
	if !client.reaches(upstream) {
		return false
	}
	even := func() bool {
		r.relay.mu.Lock()
		defer r.relay.mu.Unlock()
		w := r.relay.windows
		return r.relay.dead || len(r.relay.streams) == 0 && w[Request].isExactly(initialWindow+upstream.granted) && w[Response].isExactly(initialWindow+client.granted)
	}
	id := (last | 7) + 2
	for deadline := time.Now().Add(10 * time.Second); !even(); id += 8 {
		if !carry(client, upstream, id) { // a hook may give up what it kept at any time
			return false
		}
		if time.Now().After(deadline) {
			r.relay.mu.Lock()
			t.Errorf("%d streams are left, windows %+v", len(r.relay.streams), r.relay.windows)
			r.relay.mu.Unlock()
			break
		}
	}
	r.relay.mu.Lock()
	defer r.relay.mu.Unlock()
	return !r.relay.dead
}

// isExactly reports whether the receiver will take n bytes, and the sender may send as many.
func (w window) isExactly(n int64) bool { return w.real == n && w.lent == n }

// carry has a stream that nobody takes over carry some of both bodies, and ends it. What a hook kept when its receiver gave credit is lent twice until then: a sender
// gets no more before it has used that up.
func carry(client, upstream *player, id uint32) bool {
	send := func(p *player, list string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.headers(id, false, list)
		for range 20 {
			p.fr.WriteData(id, false, make([]byte, 1000))
		}
	}
	send(client, get)
	if !client.reaches(upstream) {
		return false
	}
	send(upstream, ":status=200")
	if !upstream.reaches(client) {
		return false
	}
	client.mu.Lock()
	client.fr.WriteRSTStream(id, http2.ErrCodeCancel)
	client.mu.Unlock()
	return client.reaches(upstream) && upstream.reaches(client)
}

// reaches reports whether what p has sent so far arrives, and not the end of the connection.
func (p *player) reaches(other *player) bool {
	p.mu.Lock()
	p.fr.WritePing(false, [8]byte{'e', 'n', 'd', '!'})
	p.mu.Unlock()
	select {
	case <-other.pings:
		return true
	case <-p.ended:
	case <-other.ended:
	}
	return false
}

// TestRandomFrames plays some hundred connections, always with the same choices.
func TestRandomFrames(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 60
	}
	before := runtime.NumGoroutine()
	alive := 0
	for seed := range uint64(n) {
		t.Run("", func(t *testing.T) {
			r := rand.New(rand.NewPCG(9113, seed))
			if play(t, r.IntN, func() bool { return false }) {
				alive++
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
	if alive < n/8 {
		t.Errorf("only %d of %d connections outlived their frames: the test says little", alive, n)
	}
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// FuzzFrames plays a connection by the fuzzer's choices.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(strings.Repeat("\x00\x01\x00\x00\x05\x07\x01\x00\x02\x09", 12)))
	f.Add([]byte("\x10")) // a stream that a hook answers, and ends when the relay has
	f.Add([]byte("\x00\x00\x01\x00\x00\x01\x01\x01\x00\x00\x01\x07\x50\x01\x01\x00\x00\x07\x07\x00\x01\x0c\x03"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		from := strings.NewReader(string(choices))
		play(t, func(n int) int {
			hi, _ := from.ReadByte()
			if n <= 256 {
				return int(hi) % n
			}
			lo, err := from.ReadByte()
			if err == io.EOF {
				return 0
			}
			return (int(hi)<<8 | int(lo)) % n
		}, func() bool { return from.Len() == 0 })
	})
}
