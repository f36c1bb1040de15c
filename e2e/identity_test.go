package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// sizes are where something changes: none, one byte, a buffer of 64 KiB, the 256 KiB up to which a body stays in the log,
// a chunk of 4 MiB, and more than two chunks.
var sizes = []int64{
	0, 1, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145,
	4<<20 - 1, 4 << 20, 4<<20 + 1, 9 << 20,
}

// framings are those that a protocol knows, for responses and for requests.
var framings = map[harness.Protocol]struct{ down, up []harness.Framing }{
	harness.HTTP: {
		[]harness.Framing{harness.Fixed, harness.Open, harness.Odd, harness.Close},
		[]harness.Framing{harness.Fixed, harness.Open},
	},
	harness.HTTPS: {
		[]harness.Framing{harness.Fixed, harness.Open, harness.Odd, harness.Close},
		[]harness.Framing{harness.Fixed, harness.Open},
	},
	harness.HTTP2: {
		[]harness.Framing{harness.Fixed, harness.Open},
		[]harness.Framing{harness.Fixed, harness.Open},
	},
}

// protocolNames are how the API names them.
var protocolNames = map[harness.Protocol]string{harness.HTTP: "HTTP/1.1", harness.HTTPS: "HTTP/1.1", harness.HTTP2: "HTTP/2"}

// seeds gives each body of a run a content of its own, so that none is found to be kept already.
var seeds atomic.Uint64

func newBody(size int64) harness.Body { return harness.NewBody(seeds.Add(1), size) }

// What the client got, what is stored, and what is downloaded whole and in ranges have one SHA-256.
func TestBodyIdentity(t *testing.T) {
	p, origin := harness.StartBoth(t)
	for _, protocol := range harness.Protocols {
		client := p.Client(t, protocol)
		for _, framing := range framings[protocol].down {
			t.Run(fmt.Sprintf("%s/response/%s", protocol, framing), func(t *testing.T) {
				for _, size := range sizes {
					checkDownload(t, p, client, origin, protocol, framing, newBody(size))
				}
			})
		}
		for _, framing := range framings[protocol].up {
			t.Run(fmt.Sprintf("%s/request/%s", protocol, framing), func(t *testing.T) {
				for _, size := range sizes {
					checkUpload(t, p, client, origin, protocol, framing, newBody(size))
				}
			})
		}
	}
}

func checkDownload(t *testing.T, p *harness.Program, client *http.Client, origin *harness.Origin, protocol harness.Protocol, framing harness.Framing, b harness.Body) {
	t.Helper()
	name := fmt.Sprintf("down-%d-%d", b.Seed, b.Size)
	digest, n, err := harness.Download(client, origin.URL(protocol, harness.BodyPath(name, b, framing)))
	if err != nil || digest != b.SHA256() {
		t.Errorf("client got %d bytes, %v; want %v", n, err, b)
		return
	}
	checkKept(t, p, name, "response", protocol, b)
}

func checkUpload(t *testing.T, p *harness.Program, client *http.Client, origin *harness.Origin, protocol harness.Protocol, framing harness.Framing, b harness.Body) {
	t.Helper()
	name := fmt.Sprintf("up-%d-%d", b.Seed, b.Size)
	got, err := harness.Send(client, origin.URL(protocol, "/put/"+name), b, framing)
	if err != nil || got.SHA256 != b.SHA256() {
		t.Errorf("origin got %+v, %v; want %v", got, err, b)
		return
	}
	if b.Size > 0 && (got.Declared >= 0) != (framing == harness.Fixed) {
		t.Errorf("%v sent with framing %s: origin was told a length of %d", b, framing, got.Declared)
	}
	checkKept(t, p, name, "request", protocol, b)
}

// checkKept compares what Millpond tells and gives of the side of the session with the body.
func checkKept(t *testing.T, p *harness.Program, name, side string, protocol harness.Protocol, b harness.Body) {
	t.Helper()
	s := p.Await(t, name, harness.Ended)
	message, passed := s.Response, s.ResponseBytes
	if side == "request" {
		message, passed = s.Request, s.RequestBytes
	}
	if s.State != "done" || s.Protocol != protocolNames[protocol] || passed != b.Size {
		t.Errorf("%v: session is %s in %s with %d bytes (%s)", b, s.State, s.Protocol, passed, s.Error)
	}
	if message.Body.Size != b.Size || !message.Body.Complete || message.Body.Missing != "" {
		t.Errorf("%v: kept as %+v", b, message.Body)
	}
	digest, n := p.Download(t, harness.BodyURL(s.ID, side), "")
	if digest != b.SHA256() {
		t.Errorf("%v: downloaded whole, %d bytes differ", b, n)
	}
	if b.Size > 0 {
		checkDigest(t, p, s.ID, side, b)
	}
	checkRanges(t, p, harness.BodyURL(s.ID, side), b)
}

// checkDigest asks for the SHA-256 of a body that is whole, and waits until the session tells it too: what came too fast to be hashed as it passed
// is hashed when it is asked for.
func checkDigest(t *testing.T, p *harness.Program, id uint64, side string, b harness.Body) {
	t.Helper()
	raw, err := hex.DecodeString(b.SHA256())
	if err != nil {
		t.Fatal(err)
	}
	want := "sha-256=:" + base64.StdEncoding.EncodeToString(raw) + ":" // RFC 9530, section 2
	told := ""
	for deadline := time.Now().Add(30 * time.Second); told == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		res, err := p.Call(t.Context(), http.MethodHead, harness.BodyURL(id, side), "Want-Repr-Digest", "sha-256=1")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("Repr-Digest"); got != want {
			t.Errorf("%v: %s with Repr-Digest %q, want %q", b, res.Status, got, want)
			return
		}
		s := p.Session(t, id)
		told = s.Response.Body.SHA256
		if side == "request" {
			told = s.Request.Body.SHA256
		}
	}
	if told != b.SHA256() {
		t.Errorf("%v: the session tells the SHA-256 %q", b, told)
	}
}

// checkRanges downloads the body in pieces, and pieces around each place where extents may meet.
func checkRanges(t *testing.T, p *harness.Program, path string, b harness.Body) {
	t.Helper()
	if b.Size == 0 {
		return // no range of it can be satisfied
	}
	const pieces = 7
	step := b.Size/pieces + 1
	whole := io.Reader(strings.NewReader(""))
	for from := int64(0); from < b.Size; from += step {
		whole = io.MultiReader(whole, &lazyRange{t: t, p: p, path: path, from: from, to: min(from+step, b.Size)})
	}
	if digest, n, err := harness.Digest(whole); err != nil || digest != b.SHA256() {
		t.Errorf("%v: downloaded in ranges, %d bytes differ, %v", b, n, err)
	}
	places := []int64{0, 1, b.Size - 1, b.Size / 2}
	for _, edge := range []int64{64 << 10, 256 << 10, 4 << 20, 8 << 20} {
		places = append(places, edge-1, edge, edge+1)
	}
	slices.Sort(places)
	for _, from := range slices.Compact(places) {
		if from < 0 || from >= b.Size {
			continue
		}
		to := min(from+3, b.Size)
		want, _ := io.ReadAll(b.Range(from, to-from))
		got, err := io.ReadAll(&lazyRange{t: t, p: p, path: path, from: from, to: to})
		if err != nil || string(got) != string(want) {
			t.Errorf("%v: bytes %d to %d are %x, %v; want %x", b, from, to, got, err, want)
		}
	}
}

// lazyRange asks for a range when it is first read.
type lazyRange struct {
	t        *testing.T
	p        *harness.Program
	path     string
	from, to int64
	body     io.ReadCloser
}

func (r *lazyRange) Read(b []byte) (int, error) {
	if r.body == nil {
		res, err := r.p.Call(r.t.Context(), http.MethodGet, r.path, "Range", fmt.Sprintf("bytes=%d-%d", r.from, r.to-1))
		if err != nil {
			return 0, err
		}
		r.body = res.Body
		if res.StatusCode != http.StatusPartialContent || res.ContentLength != r.to-r.from {
			res.Body.Close()
			return 0, fmt.Errorf("bytes %d to %d: %s with %d bytes", r.from, r.to, res.Status, res.ContentLength)
		}
	}
	n, err := r.body.Read(b)
	if err == io.EOF {
		r.body.Close()
	}
	return n, err
}
