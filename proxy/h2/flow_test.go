package h2

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// heap is the memory in use after a collection, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// eventually waits for what has no event to be awaited.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// A client with windows of 64 KB that stops reading a body of 300 MB holds upstream back, and nothing piles up.
func TestUnreadBodyHoldsUpstreamBack(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.watch.hook = func(*seen) Exchange { return quietExchange{} }
	before := heap()
	r.client.headers(1, true, get)
	r.upstream.want("HEADERS 1 end " + get)
	r.upstream.headers(1, false, ":status=200")
	r.client.want("HEADERS 1 :status=200")
	window, sent, ended := initialWindow, 0, make(chan struct{})
	go func() { // upstream sends what it may, by the credit it gets
		defer close(ended)
		for sent < 300_000_000 {
			for window >= 16384 {
				r.upstream.fr.WriteData(1, false, make([]byte, 16384))
				window -= 16384
				sent += 16384
			}
			f, err := r.upstream.fr.ReadFrame()
			if err != nil {
				return
			}
			if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 0 {
				window += int(u.Increment)
			}
		}
	}()
	// The client reads nothing for a while, but answers and asks in the other direction: that must go on.
	for i := range 50 {
		r.client.fr.WritePing(false, [8]byte{byte(i)})
	}
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("%d bytes were kept for a client that does not read", grown)
	}
	// It reads three windows more, and leaves.
	for got := 0; got < 3*initialWindow; {
		f, err := r.client.fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			got += len(d.Data())
			r.client.fr.WriteWindowUpdate(0, d.Length)
			r.client.fr.WriteWindowUpdate(1, d.Length)
		}
	}
	r.client.conn.Close()
	<-ended
	if most := 5 * initialWindow; sent > most {
		t.Errorf("upstream sent %d bytes, though the client read %d", sent, 3*initialWindow)
	}
}

// Many streams that nobody reads cost upstream's sending, not our memory: it can send no more than the client's windows.
func TestUnreadStreams(t *testing.T) {
	const streams, window = 100, 64 << 10
	var sent atomic.Int64
	origin := originServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 16<<10)
		for range 1024 { // 16 MiB
			n, err := w.Write(buf)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	conn, err := net.Dial("tcp", relayServer(t, origin, quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := newEnd(t, "client", conn)
	before := heap()
	io.WriteString(conn, http2.ClientPreface)
	client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	client.fr.WriteWindowUpdate(0, 1<<31-1-initialWindow)
	for i := range streams {
		client.headers(uint32(1+2*i), true, ":method=GET :scheme=http :authority=a.test :path=/")
	}
	eventually(t, "some of each stream", func() bool { return sent.Load() > streams*window/4 })
	last := int64(-1)
	eventually(t, "upstream to be held back", func() bool {
		now := sent.Load()
		stands := now == last
		last = now
		time.Sleep(100 * time.Millisecond)
		return stands
	})
	if most := int64(streams * (window + 16<<10)); last > most { // net/http holds some of each body itself
		t.Errorf("upstream sent %d bytes for windows of %d", last, streams*window)
	}
	if grown := int64(heap()) - int64(before); grown > 12<<20 { // the origin's own part of it
		t.Errorf("%d bytes in use", grown)
	}
}

// While a stream's recording is full its credit is withheld, and only its.
func TestFullRecordingHoldsItsStream(t *testing.T) {
	full := make(chan struct{})
	r := greeted(t, func(e *seen) Exchange {
		if e.s.ID == 1 {
			e.full = full
		}
		return e
	}, nil, nil)
	r.client.headers(1, true, get)
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 1 end "+get, "HEADERS 3 end "+get)
	for _, id := range []uint32{1, 3} {
		r.upstream.headers(id, false, ":status=200")
		r.upstream.fr.WriteData(id, false, make([]byte, 10_000))
	}
	r.client.want("HEADERS 1 :status=200", "DATA 1 10000 bytes", "HEADERS 3 :status=200", "DATA 3 10000 bytes")
	r.client.fr.WriteWindowUpdate(1, 7000)
	r.client.fr.WriteWindowUpdate(1, 3000)
	r.client.fr.WriteWindowUpdate(0, 20_000)
	r.client.fr.WriteWindowUpdate(3, 10_000)
	r.upstream.want("WINDOW_UPDATE 0 20000", "WINDOW_UPDATE 3 10000")
	// What was granted before still arrives.
	r.upstream.fr.WriteData(1, false, make([]byte, 5000))
	r.client.want("DATA 1 5000 bytes")
	close(full)
	r.upstream.want("WINDOW_UPDATE 1 10000")
	r.upstream.fr.WriteData(1, true, nil)
	r.client.want(`DATA 1 end ""`)
}

// A peer that does not read while the other direction goes on: frames for it wait in the sockets, those from it pass.
func TestStalledClientDoesNotStallItsOwnFrames(t *testing.T) {
	r := greeted(t, nil, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}}, nil)
	r.watch.hook = func(*seen) Exchange { return quietExchange{} }
	r.client.fr.WriteWindowUpdate(0, 1<<31-1-initialWindow)
	r.upstream.wantStart("WINDOW_UPDATE 0")
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	conn := &gauge{Conn: r.upstream.conn}
	r.upstream.headers(1, false, ":status=200")
	go func() { // more than all the sockets hold
		fr := http2.NewFramer(conn, nil)
		for fr.WriteData(1, false, make([]byte, 16384)) == nil {
		}
	}()
	untilStuck(t, conn, r.sockets[Request])
	for i := range 100 {
		r.client.fr.WriteData(1, false, []byte("x"))
		r.client.fr.WritePing(false, [8]byte{byte(i)})
		r.client.fr.WriteWindowUpdate(1, 1)
	}
	for range 100 {
		r.upstream.wantStart("DATA 1")
		r.upstream.wantStart("PING")
		r.upstream.wantStart("WINDOW_UPDATE 1")
	}
	r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	r.upstream.want("RST_STREAM 1 CANCEL")
}

// A client that makes us answer and does not read is given up.
func TestUnreadAnswersAreBounded(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	for i := range 200 {
		r.client.headers(uint32(1+2*i), false, get)
		r.upstream.wantStart("HEADERS")
	}
	go func() {
		for {
			if _, err := r.upstream.fr.ReadFrame(); err != nil {
				return
			}
		}
	}()
	go func() { // each of these is refused by us, and by us alone
		block := r.client.encode(fields(get))
		for id := uint32(401); ; id += 2 {
			if r.client.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}) != nil {
				return
			}
		}
	}()
	if err := r.wait(t); err == nil || !strings.Contains(err.Error(), errAnswers.Error()) {
		t.Errorf("ended with %v", err)
	}
}

// Streams leave nothing behind: neither ended ones nor reset ones.
func TestStreamsAreFreed(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5000
	}
	r := greeted(t, nil, nil, nil)
	r.watch.hook = func(*seen) Exchange { return quietExchange{} }
	go func() {
		block := r.upstream.encode(fields(":status=204"))
		for {
			f, err := r.upstream.fr.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamID%4 == 1 {
				r.upstream.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: block, EndHeaders: true, EndStream: true})
			}
		}
	}()
	block := r.client.encode(fields(get))
	w := bufio.NewWriter(r.client.conn)
	fr := http2.NewFramer(w, nil)
	const batch = 100
	var before uint64
	for i := range n {
		id := uint32(1 + 2*i)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		if id%4 == 3 {
			fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if i%batch != batch-1 {
			continue
		}
		w.Flush()
		for range batch / 2 {
			if f, err := r.client.fr.ReadFrame(); err != nil || f.Header().StreamID%4 != 1 {
				t.Fatal(f, err)
			}
		}
		if i == batch*(n/batch/10)-1 {
			r.watch.mu.Lock()
			r.watch.streams = nil
			r.watch.mu.Unlock()
			before = heap()
		}
	}
	r.watch.mu.Lock()
	r.watch.streams = nil
	r.watch.mu.Unlock()
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("memory grew by %d bytes over %d streams", grown, n)
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		t.Run("", func(t *testing.T) {
			r := greeted(t, nil, nil, nil)
			r.client.headers(1, false, get)
			r.upstream.want("HEADERS 1 " + get)
			r.cancel(io.ErrClosedPipe)
			r.client.wantStart("GOAWAY 1 NO_ERROR")
			r.upstream.wantStart("GOAWAY 0 NO_ERROR")
			r.client.conn.Close()
			if err := r.wait(t); err == nil {
				t.Error("no reason")
			}
		})
	}
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
