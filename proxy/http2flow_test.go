package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// While the disk takes nothing, a large body waits once its recording's memory is used up; other streams of its connection do not wait, and nothing is lost.
func TestHTTP2StalledDiskHoldsItsStreamOnly(t *testing.T) {
	const size = 80 << 20
	store, disk := storeOnDisk(t)
	var sent atomic.Int64
	h := startHTTP2(t, Config{Store: store}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/small" {
			io.WriteString(w, "small")
			return
		}
		buf := make([]byte, 64<<10)
		for sent.Load() < size {
			n, err := w.Write(buf)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	h.get("/small") // the connection stands
	release := disk.Stall(storagetest.Write | storagetest.Sync)
	defer release()
	res, err := h.client.Get(h.origin.URL + "/large")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, res.Body)
		got <- n
	}()
	last := int64(-1)
	for deadline := time.Now().Add(6 * patience); ; time.Sleep(300 * time.Millisecond) { // the store waits for a disk for 10 s, once it has to
		now := sent.Load()
		if now == last && now > 32<<20 {
			break
		}
		if last = now; now >= size || time.Now().After(deadline) {
			t.Fatalf("upstream was not held back after %d bytes", now)
		}
	}
	if _, body := h.get("/small"); body != "small" {
		t.Errorf("the small one got %q", body)
	}
	release()
	if n := <-got; n != size {
		t.Errorf("the client got %d bytes", n)
	}
	s := h.session(2)
	if b := s.Sides[storage.Response].Body; !b.Complete || b.Size != size || b.Missing != "" {
		t.Errorf("kept %+v", b)
	}
}

// A client that grants 4 MiB for each of a hundred streams lets upstream send far more than there is memory for while the disk takes nothing.
// They are held back all the same, and kept whole.
func TestHTTP2StalledDiskHoldsWideWindows(t *testing.T) {
	const streams, size = 100, 3 << 20
	store, disk := storeOnDisk(t)
	h := startHTTP2(t, Config{Store: store}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/small" {
			io.WriteString(w, "small")
			return
		}
		w.Write(make([]byte, size))
	})
	h.get("/small") // the connection stands
	release := disk.Stall(storagetest.Write | storagetest.Sync)
	defer release()
	var passed atomic.Int64
	var clients sync.WaitGroup
	for range streams {
		clients.Go(func() {
			res, err := h.client.Get(h.origin.URL + "/large")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			buf, got := make([]byte, 32<<10), 0
			for err == nil {
				var n int
				n, err = res.Body.Read(buf)
				got += n
				passed.Add(int64(n))
			}
			if got != size || err != io.EOF {
				t.Errorf("the client got %d bytes, %v", got, err)
			}
		})
	}
	for last, still := int64(-1), 0; still < 5; time.Sleep(100 * time.Millisecond) { // the store waits for a disk for 10 s, once it has to
		now := passed.Load()
		if still++; now != last || now < 16<<20 {
			still = 0
		}
		last = now
	}
	if most := int64(96 << 20); passed.Load() > most {
		t.Errorf("%d bytes passed while the disk took nothing, want at most %d", passed.Load(), most)
	}
	if _, body := h.get("/small"); body != "small" {
		t.Errorf("the small one got %q", body)
	}
	release()
	clients.Wait()
	for n := range uint64(streams) {
		s := h.session(2 + n)
		if b := s.Sides[storage.Response].Body; s.Path == "/large" && (!b.Complete || b.Size != size || b.Missing != "") {
			t.Errorf("session %d is kept as %+v", s.ID, b)
		}
	}
}

// A hundred bodies that nobody reads: upstream can send what the client's windows allow, and we hold none of it.
func TestHTTP2UnreadStreamsCostNoMemory(t *testing.T) {
	const streams, window = 100, 256 << 10
	h := startHarness(t, Config{})
	client, conn, origin := http2Tunnel(t, h)
	client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	client.WriteWindowUpdate(0, 1<<31-1-65535)
	for i := range streams {
		client.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(1 + 2*i), BlockFragment: []byte{0x82, 0x84, 0x86}, EndStream: true, EndHeaders: true})
	}
	for opened := 0; opened < streams; {
		f, err := origin.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().Type == http2.FrameHeaders {
			opened++
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() { // upstream sends all that it may
		for i := range streams {
			origin.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(1 + 2*i), BlockFragment: []byte{0x88}, EndHeaders: true})
		}
		for range window / 16384 {
			for i := range streams {
				if origin.WriteData(uint32(1+2*i), false, make([]byte, 16384)) != nil {
					return
				}
			}
		}
		origin.WritePing(false, [8]byte{'e', 'n', 'd'})
	}()
	// The client takes what it allowed, and gives no more.
	payload := 0
	for {
		f, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			payload += len(d.Data())
		}
		if p, ok := f.(*http2.PingFrame); ok && p.Data[0] == 'e' {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d bytes in use", grown)
	}
	if payload != streams*window {
		t.Errorf("the client got %d bytes, want %d", payload, streams*window)
	}
	conn.Close()
	for i := range streams {
		if s := h.session(uint64(i + 1)); s.State != storage.ClientAborted || s.Sides[storage.Response].Body.Passed != window {
			t.Fatalf("session %d: %v, %d bytes", i+1, s.State, s.Sides[storage.Response].Body.Passed)
		}
	}
}

// Stopping lets what runs end, and tells the client to begin nothing more.
func TestHTTP2ShutdownLetsStreamsEnd(t *testing.T) {
	end := make(chan struct{})
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).Flush()
		<-end
		io.WriteString(w, "whole")
	})
	res, err := h.client.Get(h.origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- h.p.Shutdown(ctx)
	}()
	<-h.p.closed
	close(end)
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "whole" {
		t.Errorf("got %q, %v", body, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopped with %v", err)
	}
	if s := h.session(1); s.State != storage.Done {
		t.Errorf("session %+v", s)
	}
}

// A gRPC call: fields, length-prefixed messages both ways, and the status in the trailers.
func TestHTTP2GRPC(t *testing.T) {
	message := func(s string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(s)))) + s
	}
	h := startHTTP2(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Te") != "trailers" {
			t.Errorf("te: %q", req.Header.Get("Te"))
		}
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "5")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "no such thing")
		w.Write(body)
	})
	req, _ := http.NewRequest("POST", h.origin.URL+"/pkg.Service/Method", struct{ io.Reader }{strings.NewReader(message("ask"))})
	req.Header.Set("Te", "trailers")
	req.Header.Set("Content-Type", "application/grpc")
	res, got := h.do(req)
	if got != message("ask") || res.Trailer.Get("Grpc-Status") != "5" {
		t.Errorf("got %q, %v", got, res.Trailer)
	}
	s := h.session(1)
	if got, want := string(s.Sides[storage.Response].Trailers), "grpc-message: no such thing\ngrpc-status: 5\n"; got != want {
		t.Errorf("trailers %q, want %q", got, want)
	}
	h.expectBody(s, storage.Request, message("ask"))
}

// An HTTP/2 session shows the ordered list as it was on the wire, bytes that net/http refuses with it.
func TestHTTP2FieldsKeepTheirOrderAndBytes(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, origin := http2Tunnel(t, h)
	list := []hpack.HeaderField{
		{Name: ":path", Value: "/%zz"},
		{Name: ":method", Value: "GET"},
		{Name: "x-b", Value: "caf\xe9"},
		{Name: ":scheme", Value: "http"},
		{Name: "X-Upper", Value: "1"},
		{Name: "cookie", Value: "a=1", Sensitive: true},
		{Name: "x-empty"},
		{Name: "cookie", Value: "b=2"},
		{Name: "x-b", Value: " spaced "},
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range list {
		enc.WriteField(f)
	}
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		f, err := origin.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if hf, ok := f.(*http2.HeadersFrame); ok {
			got, err := hpack.NewDecoder(4096, nil).DecodeFull(hf.HeaderBlockFragment())
			if err != nil || hf.StreamID != 5 || len(got) != len(list) {
				t.Fatalf("stream %d, %v, %v", hf.StreamID, got, err)
			}
			for i := range got {
				if got[i] != list[i] {
					t.Errorf("got %+v, want %+v", got[i], list[i])
				}
			}
			break
		}
	}
	origin.WriteRSTStream(5, 0x4242)
	s := h.session(1)
	if got, want := string(s.Sides[storage.Request].Head), ":path: /%zz\n:method: GET\nx-b: caf\xe9\n:scheme: http\nX-Upper: 1\ncookie: a=1\nx-empty: \ncookie: b=2\nx-b:  spaced \n"; got != want {
		t.Errorf("head %q, want %q", got, want)
	}
	if s.State != storage.UpstreamAborted {
		t.Errorf("session %+v", s)
	}
}

// BenchmarkHTTP2 is 10 KB responses on one connection, 16 at a time, captured; client, proxy and origin share the machine.
func BenchmarkHTTP2(b *testing.B) {
	body := pattern(10_000)
	h := startHTTP2(b, Config{}, func(w http.ResponseWriter, req *http.Request) { io.WriteString(w, body) })
	h.get("/")
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := h.client.Get(h.origin.URL)
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// A field that would be two lines of the stored head stays one, and the row says why the stream was refused.
func TestHTTP2MalformedRequestIsARow(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, _ := http2Tunnel(t, h)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/a"},
		{Name: "cookie", Value: "a\r\nb: SECRET"},
		{Name: "x\r\nauthorization", Value: "c"},
	} {
		enc.WriteField(f)
	}
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	s := h.session(1)
	if got, want := string(s.Sides[storage.Request].Head), ":method: GET\n:scheme: http\n:path: /a\ncookie: a\\r\\nb: SECRET\nx\\r\\nauthorization: c\n"; got != want {
		t.Errorf("head %q, want %q", got, want)
	}
	if s.State != storage.Failed || s.Path != "/a" || s.Error != "the client sent a CR, LF or NUL in the value of the field cookie" {
		t.Errorf("session %+v", s)
	}
}
