package wire

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millpond/e2e/harness"
)

const sameStore = "What is kept is the same for every protocol; over HTTP it is shown."

var largeCases = []wireCase{
	wireCase{
		slug: "large-download", sources: "mitmproxy/mitmproxy#7077",
		elsewhere: "A large download fills the memory.",
		here:      "The first byte is there before the second is sent, memory stays flat, and the body is on disk.",
	}.each(by(largeDownload)),
	wireCase{
		slug: "large-chunked", sources: "mitmproxy/mitmproxy#6286 httptoolkit/httptoolkit#143",
		elsewhere: "A large body without a length never arrives, or arrives and cannot be viewed or downloaded.",
		here:      "It is delivered, downloaded whole, and any range of it can be read.",
	}.each(by(largeChunked)),
	wireCase{
		slug: "slow-client", sources: "mitmproxy/mitmproxy#4563",
		elsewhere: "A fast server and a slow client fill the memory.",
		here:      "Upstream is held back: no more than the sockets between hold is on the way.",
	}.each(by(slowClient)),
	wireCase{
		slug: "client-leaves", sources: "mitmproxy/mitmproxy#1147 mitmproxy/mitmproxy#3173",
		elsewhere: "A client leaves after 2 MB, and the proxy downloads the whole gigabyte.",
		here:      "Upstream is told at once; what came is kept, and the session says that the client left.",
	}.each(by(clientLeaves)),
	wireCase{
		slug: "progress", sources: "mitmproxy/mitmproxy#6125",
		elsewhere: "Neither the client nor the screen sees a body before its end.",
		here:      "Bytes flow, the count rises, and what has come can be read.",
	}.each(shown("e2e", "TestSlowBodyIsThereAtOnce")),
	wireCase{
		slug: "ranges", sources: "mitmproxy/mitmproxy#6724",
		elsewhere: "A 206 of more than some size is reset.",
		here:      "Each part passes, and is kept as the part it is.",
	}.each(by(ranges)),
	{
		slug: "large-media", sources: "mitmproxy/mitmproxy#3918",
		elsewhere: "Opening a body of 100 MB reads all of it.",
		here:      "Its head and its tail are read, and nothing else.",
		http:      by(largeMedia), https: not(sameStore), http2: not(sameStore),
	},
	wireCase{
		slug: "linear", sources: "mitmproxy/mitmproxy#6944",
		elsewhere: "The time a body takes grows faster than its size.",
		here:      "A byte of a large body costs no more than a byte of a smaller one.",
	}.each(by(linear)),
	wireCase{
		slug: "same-file", sources: "mitmproxy/mitmproxy#7208",
		elsewhere: "Memory grows with each download of the same file.",
		here:      "It does not, and the disk holds one copy.",
	}.each(by(sameFile)),
	{
		slug: "views-are-bounded", sources: "dstotijn/hetty#143",
		elsewhere: "Log, filter and decoders read bodies without a bound.",
		here:      "Decoding 100 MiB, whole and by ranges, leaves the memory flat.",
		http:      by(viewsAreBounded), https: not(sameStore), http2: not(sameStore),
	},
	wireCase{
		slug: "no-limit", sources: "projectdiscovery/proxify#522",
		elsewhere: "A body beyond 4 MB is lost: it is too large.",
		here:      "Forwarding has no limit.",
	}.each(shown("e2e", "TestBodyIdentity")),
	{
		slug: "first-screen", sources: "ProxymanApp/Proxyman#450 ProxymanApp/Proxyman#1299 ProxymanApp/Proxyman#954",
		elsewhere: "A PDF of 46 MB, JSON of 20 MB or XML of 5 MB freezes the screen.",
		here:      "What a screen shows of it is there while the rest is still being decoded.",
		http:      by(firstScreen), https: not(sameStore), http2: not(sameStore),
	},
	{
		slug: "large-json", sources: "avwo/whistle#672 avwo/whistle#1207 avwo/whistle#504",
		elsewhere: "JSON of more than 1 MB is too large to show.",
		here:      "3 MB and 20 MB on one line are shown, in pages where the text is longer than 4 MiB.",
		http:      shown("e2e/browser", "JSON of 3 MB and of 20 MB on one line is shown"), https: not(sameStore), http2: not(sameStore),
	},
	wireCase{
		slug: "coded", sources: "avwo/whistle#740",
		elsewhere: "A br-coded wasm arrives gzip-coded, late and without its length.",
		here:      "Same bytes, same coding, same length; the kept body is the coded one. How fast bodies go is measured by the benchmark, not here.",
	}.each(by(coded)),
	wireCase{
		slug: "many-requests", sources: "mitmproxy/mitmproxy#4456",
		elsewhere: "Memory grows with each stream until the connection ends.",
		here:      "Memory is flat over 50,000 requests on one connection; over HTTP/1.1, over 5,000.",
		http2:     shown("proxy", "TestHTTP2ManyRequestsOnOneConnection"),
	}.http1(manyRequests),
}

var seeds atomic.Uint64

// newBody is a body that no other run has, so that none of it is kept already.
func newBody(size int64) harness.Body { return harness.NewBody(1<<32+seeds.Add(1), size) }

// large is the size for bodies that stand for larger ones: 1 GiB in the long form, and else as much as shows that nothing holds it.
func large() int64 {
	if os.Getenv("MILLPOND_GIB") == "all" {
		return 1 << 30
	}
	return 128 << 20
}

// flat calls fn and checks that the program's peak meanwhile is at most 64 MiB, which a body of that size in memory would be beyond.
func (r *run) flat(fn func()) {
	r.Helper()
	// Linux begins its peak anew (proc(5), clear_refs). Elsewhere the peak is that of the whole life, which is stricter.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.program.PID()), []byte("5"), 0)
	fn()
	_, peak, err := harness.Resident(r.program.PID())
	r.must(err)
	if peak > 64<<20 {
		r.Errorf("peak resident size is %s; want at most 64 MiB", harness.SizeText(peak))
	}
}

func (r *run) download(client *http.Client, b harness.Body, framing harness.Framing) {
	r.Helper()
	digest, n, err := harness.Download(client, r.origin.URL(r.protocol, harness.BodyPath(r.path[1:], b, framing)))
	if err != nil || digest != b.SHA256() {
		r.Fatalf("got %d bytes of %v, %v", n, b, err)
	}
}

func largeDownload(r *run) {
	b := newBody(large())
	first := make(chan struct{})
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
		_, _ = io.Copy(w, b.Range(0, 1))
		_ = http.NewResponseController(w).Flush()
		<-first
		_, _ = harness.Copy(w, b.Range(1, b.Size-1))
	})
	r.flat(func() {
		body := r.get().Body
		var one [1]byte
		_, err := io.ReadFull(body, one[:])
		r.must(err)
		close(first)
		digest, n, err := harness.Digest(io.MultiReader(bytes.NewReader(one[:]), body))
		if err != nil || digest != b.SHA256() {
			r.Errorf("client got %d bytes, %v", n, err)
		}
		s := r.session()
		r.expectDone(s, 200)
		if digest, n := r.program.Download(r, harness.BodyURL(s.ID, "response"), ""); digest != b.SHA256() {
			r.Errorf("kept %d bytes differ", n)
		}
	})
}

func largeChunked(r *run) {
	b := newBody(128 << 20)
	r.flat(func() {
		r.download(r.program.Client(r, r.protocol), b, harness.Open)
		s := r.session()
		r.expectDone(s, 200)
		if digest, n := r.program.Download(r, harness.BodyURL(s.ID, "response"), ""); digest != b.SHA256() {
			r.Errorf("%d bytes were downloaded, and differ", n)
		}
		for _, at := range []int64{0, 1, 4<<20 - 1, b.Size/2 + 3, b.Size - 17} {
			r.expectRange(s.ID, b, at, 17)
		}
	})
}

// expectRange compares a range of the kept response body.
func (r *run) expectRange(id uint64, b harness.Body, at, n int64) {
	r.Helper()
	want, _ := io.ReadAll(b.Range(at, n))
	res, err := r.program.Call(r.Context(), http.MethodGet, harness.BodyURL(id, "response"), "Range", fmt.Sprintf("bytes=%d-%d", at, at+n-1))
	r.must(err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusPartialContent || !bytes.Equal(got, want) {
		r.Errorf("bytes from %d: %s, %v, %d bytes; want %d", at, res.Status, err, len(got), n)
	}
}

// counted counts what an origin has begun to send.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// flood answers the run's path with a body, and counts what of it was sent.
func (r *run) flood(b harness.Body) *atomic.Int64 {
	var sent atomic.Int64
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, counted{b.Reader(), &sent}, make([]byte, 32<<10))
	})
	return &sent
}

// sockets is the most that the sockets of two connections may hold: Linux lets a receive buffer grow to 6 MiB and a send buffer to 4 MiB
// (tcp(7)). Go's HTTP/2 client has windows of 4 MiB a stream.
const sockets = 2 * (6 + 4) << 20

func slowClient(r *run) {
	b := newBody(96 << 20)
	sent := r.flood(b)
	r.flat(func() {
		body := r.get().Body
		awaitQuiet(r, sent)
		if n := sent.Load(); n > sockets+8<<20 {
			r.Errorf("upstream sent %s that nobody read", harness.SizeText(n))
		}
		if digest, n, err := harness.Digest(body); err != nil || digest != b.SHA256() {
			r.Errorf("client got %d bytes in the end, %v", n, err)
		}
	})
	r.expectDone(r.session(), 200)
}

// awaitQuiet waits until n has risen and then stood still for half a second: quiet has no event.
func awaitQuiet(t testing.TB, n *atomic.Int64) {
	t.Helper()
	still, last := 0, int64(0)
	for deadline := time.Now().Add(patience); still < 10; time.Sleep(50 * time.Millisecond) {
		if now := n.Load(); now == last && now > 0 {
			still++
		} else {
			still, last = 0, now
		}
		if time.Now().After(deadline) {
			t.Fatalf("still moving, or never moved: %d bytes", n.Load())
		}
	}
}

func clientLeaves(r *run) {
	b := newBody(1 << 30)
	sent := r.flood(b)
	body := r.get().Body
	const taken = 2 << 20
	_, err := io.CopyN(io.Discard, body, taken)
	r.must(err)
	_ = body.Close()
	s := r.session()
	if s.State != "client_aborted" || s.Error == "" || s.Response.Body.Complete || s.Response.Body.Size < taken {
		r.Errorf("session is %s (%s), body %+v", s.State, s.Error, s.Response.Body)
	}
	r.expectRange(s.ID, b, taken-100, 100)
	awaitQuiet(r, sent)
	if n := sent.Load(); n > taken+sockets+8<<20 {
		r.Errorf("upstream sent %s for a client that left after 2 MiB", harness.SizeText(n))
	}
}

func ranges(r *run) {
	b := newBody(1_300_000)
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		http.ServeContent(w, q, "", time.Time{}, b.Reader())
	})
	for _, part := range []struct{ from, to int64 }{{0, 65_535}, {65_536, 1_199_999}, {1_200_000, 1_299_999}} {
		res := r.get("Range", fmt.Sprintf("bytes=%d-%d", part.from, part.to))
		want, _ := io.ReadAll(b.Range(part.from, part.to-part.from+1))
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 206 || !bytes.Equal(got, want) {
			r.Errorf("part from %d: %s, %d bytes, %v", part.from, res.Status, len(got), err)
		}
		said := fmt.Sprintf("bytes %d-%d/1300000", part.from, part.to)
		s := r.program.Await(r, r.path, func(s harness.Summary) bool { return harness.Ended(s) && s.ResponseBytes == int64(len(want)) })
		r.expectDone(s, 206)
		r.expectBody(s, "response", string(want))
		if !strings.Contains(s.Response.Head, said) {
			r.Errorf("session's head does not say %q: %q", said, s.Response.Head)
		}
	}
}

// linear compares processor time, which other work on the machine does not change much, of the same number of bytes in bodies of two sizes.
func linear(r *run) {
	client := r.program.Client(r, r.protocol)
	cost := func(size int64, count int) time.Duration {
		before, err := harness.CPU(r.program.PID())
		r.must(err)
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range count / 4 {
					b := newBody(size)
					digest, n, err := harness.Download(client, r.origin.URL(r.protocol, harness.BodyPath(r.path[1:], b, harness.Fixed)))
					if err != nil || digest != b.SHA256() {
						r.Errorf("got %d bytes of %v, %v", n, b, err)
					}
				}
			})
		}
		wait.Wait()
		after, err := harness.CPU(r.program.PID())
		r.must(err)
		return after - before
	}
	small, big := cost(1<<20, 80), cost(20<<20, 4)
	if big > 2*small+200*time.Millisecond {
		r.Errorf("80 MiB take %v in bodies of 1 MiB, %v in bodies of 20 MiB", small, big)
	}
}

func sameFile(r *run) {
	b := newBody(20 << 20)
	client := r.program.Client(r, r.protocol)
	var status harness.Status
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if r.program.Get(r, "/api/status", &status); status.DurableUntil >= status.LastID { // what other cases brought is on the disk
			break
		}
	}
	before := r.onDisk()
	r.flat(func() {
		for range 10 {
			r.download(client, b, harness.Fixed)
		}
	})
	var grown int64
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if grown = r.onDisk() - before; grown < b.Size+8<<20 { // copies that are found go
			break
		}
	}
	if grown < b.Size/2 || grown > b.Size+8<<20 {
		r.Errorf("ten downloads of %s take %s of disk", harness.SizeText(b.Size), harness.SizeText(grown))
	}
}

// onDisk returns the size of all that the program keeps of traffic.
func (r *run) onDisk() (n int64) {
	for _, dir := range []string{"log", "chunks", "incoming"} {
		_ = filepath.WalkDir(filepath.Join(r.program.Dir, dir), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil // it went meanwhile
			}
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				n += info.Size()
			}
			return nil
		})
	}
	return n
}

func coded(r *run) {
	b := newBody(8_500_000)
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/wasm")
		w.Header().Set("Content-Encoding", "br")
		w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
		_, _ = harness.Copy(w, b.Reader())
	})
	res := r.get("Accept-Encoding", "br, gzip")
	digest, n, err := harness.Digest(res.Body)
	if err != nil || digest != b.SHA256() || res.Header.Get("Content-Encoding") != "br" || res.ContentLength != b.Size {
		r.Errorf("client got %d bytes, %v, %v", n, err, res.Header)
	}
	s := r.session()
	r.expectDone(s, 200)
	if digest, n := r.program.Download(r, harness.BodyURL(s.ID, "response"), ""); digest != b.SHA256() {
		r.Errorf("kept %d bytes differ", n)
	}
}

func manyRequests(r *run) {
	const n = 5_000
	var conns sync.Map
	r.origin.HandleFunc("GET "+r.path, func(w http.ResponseWriter, q *http.Request) {
		conns.Store(q.RemoteAddr, true)
		_, _ = io.WriteString(w, "ok")
	})
	client := r.program.Client(r, r.protocol)
	url := r.origin.URL(r.protocol, r.path)
	ask := func(n int) {
		for range n {
			res, err := client.Get(url)
			r.must(err)
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			r.must(err)
		}
	}
	ask(500)
	before, _, err := harness.Resident(r.program.PID())
	r.must(err)
	ask(n - 500)
	after, _, err := harness.Resident(r.program.PID())
	r.must(err)
	// The index in memory takes some 130 bytes a session; what a stream holds would be kilobytes.
	if after > before+16<<20 {
		r.Errorf("resident size went from %s to %s over %d requests", harness.SizeText(before), harness.SizeText(after), n)
	}
	upstreams := 0
	conns.Range(func(any, any) bool { upstreams++; return true })
	if upstreams > 2 {
		r.Errorf("%d connections reached the origin", upstreams)
	}
}
