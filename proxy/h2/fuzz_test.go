package h2

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// script builds what one end sends.
type script struct {
	bytes.Buffer
	*end
}

func newScript(preface string) *script {
	s := &script{}
	s.WriteString(preface)
	s.end = newEnd(nil, "", nil)
	s.fr = http2.NewFramer(&s.Buffer, nil)
	s.fr.AllowIllegalWrites = true
	return s
}

// FuzzRelay sends whatever from both sides. By the stream's id, a stream is relayed, answered, or has one body or the other taken over.
func FuzzRelay(f *testing.F) {
	client := newScript(http2.ClientPreface)
	client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	client.fr.WriteWindowUpdate(0, 1<<20)
	for id := uint32(1); id < 17; id += 2 {
		client.sendBlock(id, false, client.encode(fields(get+" cookie=a!")), 9)
		client.fr.WriteDataPadded(id, false, make([]byte, 3000), make([]byte, 5))
		client.fr.WriteWindowUpdate(id, 500)
	}
	client.fr.WriteSettingsAck()
	client.fr.WritePing(false, [8]byte{1})
	client.fr.WriteData(1, true, nil)
	client.headers(3, true, "x-trailer=1")
	client.fr.WriteRSTStream(5, http2.ErrCodeCancel)
	client.fr.WriteRSTStream(7, http2.ErrCodeNo)
	client.fr.WritePriority(9, http2.PriorityParam{StreamDep: 3})
	client.fr.WriteRawFrame(0xfe, 1, 3, []byte("unknown"))
	client.fr.WriteWindowUpdate(9, 0)
	client.fr.WriteGoAway(0, 0, []byte("bye"))
	upstream := newScript("")
	upstream.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100})
	for id := uint32(1); id < 17; id += 2 {
		upstream.headers(id, false, ":status=100")
		upstream.headers(id, id == 3, ":status=200")
		upstream.fr.WriteData(id, false, make([]byte, 20_000))
		upstream.fr.WriteWindowUpdate(id, 10)
	}
	upstream.headers(1, true, "grpc-status=0")
	upstream.fr.WriteRSTStream(9, http2.ErrCodeInternal)
	upstream.fr.WriteGoAway(11, http2.ErrCodeEnhanceYourCalm, []byte("x"))
	f.Add(client.Bytes(), upstream.Bytes())
	f.Add([]byte(http2.ClientPreface), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{})

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, fromClient, fromUpstream []byte) {
		client, a := net.Pipe()
		b, upstream := net.Pipe()
		var ends sync.WaitGroup
		for conn, say := range map[net.Conn][]byte{client: fromClient, upstream: fromUpstream} {
			ends.Go(func() { io.Copy(io.Discard, conn) })
			ends.Go(func() {
				conn.Write(say)
				time.Sleep(time.Millisecond) // let the other end speak
				conn.Close()
			})
		}
		w := &watch{changed: make(chan struct{}, 1)}
		w.hook = takeSome
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		Relay(ctx, Config{Client: Conn{Conn: a}, Upstream: Conn{Conn: b}, Handler: w, TempDir: dir})
		ends.Wait()
		if ctx.Err() != nil {
			t.Error("the relay did not end")
		}
		w.closedOnce(t)
	})
}

// closedOnce waits until every stream was closed, which a hook that ends one may do after the relay has ended, and reports those that were more than once.
func (w *watch) closedOnce(t *testing.T) {
	t.Helper()
	w.until(t, "the end of each stream", func() bool {
		return !slices.ContainsFunc(w.streams, func(s *seen) bool { return s.closes == 0 })
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		if s.closes != 1 {
			t.Errorf("stream %d was closed %d times", s.s.ID, s.closes)
		}
	}
}

// takeSome has some streams be answered, and the one body or the other of some be taken over, by their ids.
func takeSome(e *seen) Exchange {
	act := func(side Side) func(s *Stream, in *Incoming) {
		return func(s *Stream, in *Incoming) {
			defer in.Close()
			out := s.Outgoing(side)
			if out.Head([]hpack.HeaderField{{Name: ":status", Value: "200"}}, false) == nil {
				io.Copy(out, in)
				out.Close()
			}
		}
	}
	switch e.s.ID % 8 {
	case 3:
		return &taker{seen: e, request: act(Response)}
	case 5:
		return &taker{seen: e, request: act(Request)}
	case 7:
		return &taker{seen: e, response: act(Response)}
	}
	return e
}
