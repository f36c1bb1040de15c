package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// What is killed in all ways, and checked against all that was acknowledged, is in e2e/torture.

// killLoss is the most that SIGKILL may take from a body that was being captured: what passed since the last mark.
const killLoss = 1 << 20

// Ten downloads as fast as the program relays them, more than the disk takes, are killed: what waits for the disk then is lost, and is
// little. One directory lives through several kills, which come at different moments of the disk's own bursts.
func TestKilledAtFullSpeed(t *testing.T) {
	origin := harness.StartOrigin(t)
	args := origin.Trusted(t)
	dir := t.TempDir()
	for round, passed := range []int64{100 << 20, 240 << 20, 160 << 20} {
		p := harness.Start(t, dir, args...)
		tr := newTraffic(t, p, origin, fmt.Sprintf("unpaced-%d", round))
		for i := range 10 {
			tr.large = append(tr.large, tr.start(harness.Protocols[i%3], fmt.Sprintf("large-%d", i), newBody(1<<30), 0))
		}
		tr.awaitPassed(t, passed)
		tr.killed = time.Now()
		p.Kill()
		tr.wait()
		checkVerified(t, dir)

		p = harness.Start(t, dir, args...)
		tr.check(t, p, killLoss)
		stop(t, p)
	}
}

// A stop lets go of nothing: what clients had is there, also of the downloads that did not end in time.
func TestStoppedDuringDownloads(t *testing.T) {
	origin := harness.StartOrigin(t)
	args := origin.Trusted(t)
	dir := t.TempDir()
	p := harness.Start(t, dir, args...)
	tr := startTraffic(t, p, origin, "stopped", 30*time.Second)
	tr.awaitBusy(t)
	ends := tr.start(harness.HTTPS, "soon", newBody(5<<20), time.Second) // within the time that a stop gives
	for ends.had.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop(t, p)
	tr.killed = time.Now()
	tr.wait()
	if ends.ended.IsZero() {
		t.Errorf("a download that had a second to go was cut by a stop after %d bytes", ends.had.Load())
	}
	checkVerified(t, dir)

	p = harness.Start(t, dir, args...)
	tr.check(t, p, 0)
}

func stop(t *testing.T, p *harness.Program) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// checkVerified runs `millpond verify --full`, which is to find nothing wrong.
func checkVerified(t *testing.T, dir string) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "verify", "--full", "--data", dir).CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
}

// traffic is what clients do while the program is ended: downloads that ended before, small ones one after the other, and ten of
// 5 to 50 MiB that are in flight.
type traffic struct {
	p      *harness.Program
	origin *harness.Origin
	prefix string
	client map[harness.Protocol]*http.Client
	over   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	killed time.Time

	before time.Time   // when the first ones had ended
	large  []*transfer // the ten

	mu      sync.Mutex
	all     []*transfer
	durable map[string]bool // reported so while it ran, by path
}

// transfer is one body on its way to a client.
type transfer struct {
	path  string // without a query
	side  string
	body  harness.Body
	had   atomic.Int64 // bytes at the client
	began time.Time    // when the client had the head; zero where none came
	ended time.Time    // zero where it broke off; both are to be read after wait
}

// newTraffic has clients for each protocol, and nothing on its way.
func newTraffic(t *testing.T, p *harness.Program, origin *harness.Origin, prefix string) *traffic {
	tr := &traffic{
		p: p, origin: origin, prefix: prefix, client: map[harness.Protocol]*http.Client{},
		durable: map[string]bool{},
	}
	tr.ctx, tr.over = context.WithCancel(t.Context())
	for _, protocol := range harness.Protocols {
		tr.client[protocol] = p.Client(t, protocol)
	}
	return tr
}

// startTraffic begins the traffic. Each of the ten takes at least so long.
func startTraffic(t *testing.T, p *harness.Program, origin *harness.Origin, prefix string, long time.Duration) *traffic {
	t.Helper()
	tr := newTraffic(t, p, origin, prefix)
	for i, size := range []int64{0, 1, 10_000, 65_537, 300_000, 5<<20 + 1} {
		protocol := harness.Protocols[i%3]
		tr.download(tr.add(fmt.Sprintf("/get/%s-before-%d", prefix, i), "response", newBody(size)), protocol, "")
		up := tr.add(fmt.Sprintf("/put/%s-before-%d", prefix, i), "request", newBody(size+100))
		if got, err := harness.Send(tr.client[protocol], origin.URL(protocol, up.path), up.body, harness.Fixed); err == nil && got.SHA256 == up.body.SHA256() {
			up.ended = time.Now()
		}
	}
	tr.before = time.Now()
	for i := range 10 {
		protocol := harness.Protocols[i%3]
		tr.large = append(tr.large, tr.start(protocol, fmt.Sprintf("large-%d", i), newBody(int64(i+1)*5<<20), long))
	}
	tr.wg.Go(tr.watch)
	tr.wg.Go(tr.pollAndFetch)
	return tr
}

func (tr *traffic) add(path, side string, b harness.Body) *transfer {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	x := &transfer{path: path, side: side, body: b}
	tr.all = append(tr.all, x)
	return x
}

// start begins a download that takes at least so long, 0 for as fast as it can.
func (tr *traffic) start(protocol harness.Protocol, name string, b harness.Body, long time.Duration) *transfer {
	const read = 64 << 10 // the most that an origin sends at a time
	x := tr.add("/get/"+tr.prefix+"-"+name, "response", b)
	pace := ""
	if long > 0 {
		pace = fmt.Sprintf("&pace=%d,%v", read, long/time.Duration(b.Size/read))
	}
	tr.wg.Go(func() { tr.download(x, protocol, pace) })
	return x
}

// download gets the transfer's body and notes how far that came.
func (tr *traffic) download(x *transfer, protocol harness.Protocol, query string) {
	address := fmt.Sprintf("%s?seed=%d&size=%d&framing=%s%s", tr.origin.URL(protocol, x.path), x.body.Seed, x.body.Size, harness.Fixed, query)
	res, err := tr.client[protocol].Get(address)
	if err == nil {
		defer res.Body.Close()
		x.began = time.Now()
		var digest string
		digest, _, err = harness.Digest(counted{res.Body, &x.had})
		if err == nil && (res.StatusCode != http.StatusOK || digest != x.body.SHA256()) {
			err = errors.New("another body")
		}
	}
	if err == nil {
		x.ended = time.Now()
	}
}

// pollAndFetch gets small bodies one after the other, every fourth the same again, as a page that polls does.
func (tr *traffic) pollAndFetch() {
	same := newBody(20_000)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range 300 { // they are listed at once
		b := same
		if i%4 != 0 {
			b = newBody(int64(i) * 977 % 100_000)
		}
		x := tr.add(fmt.Sprintf("/get/%s-small-%d", tr.prefix, i), "response", b)
		tr.download(x, harness.Protocols[i/4%3], "")
		if x.ended.IsZero() {
			return
		}
		select {
		case <-tick.C:
		case <-tr.ctx.Done():
			return
		}
	}
}

// watch notes what is reported as durable, until the program is gone.
func (tr *traffic) watch() {
	for tr.ctx.Err() == nil {
		res, err := tr.p.Call(tr.ctx, http.MethodGet, "/api/sessions?limit=500&filter="+tr.prefix)
		if err != nil {
			return
		}
		var list struct{ Sessions []harness.Summary }
		err = json.NewDecoder(res.Body).Decode(&list)
		res.Body.Close()
		if err != nil {
			return
		}
		tr.mu.Lock()
		for _, s := range list.Sessions {
			if s.Durable && s.State != "open" {
				tr.durable[pathOf(s)] = true
			}
		}
		tr.mu.Unlock()
	}
}

func pathOf(s harness.Summary) string {
	path, _, _ := strings.Cut(s.Path, "?")
	return path
}

// awaitBusy waits until 48 MiB have passed, and the first downloads are more than a second old.
func (tr *traffic) awaitBusy(t *testing.T) {
	t.Helper()
	tr.awaitPassed(t, 48<<20)
	time.Sleep(time.Until(tr.before.Add(1500 * time.Millisecond)))
}

// awaitPassed waits until so many bytes of the ten have reached clients, and some of each.
func (tr *traffic) awaitPassed(t *testing.T, passed int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		least, sum := int64(1<<62), int64(0)
		for _, x := range tr.large {
			least, sum = min(least, x.had.Load()), sum+x.had.Load()
		}
		if least > 0 && sum > passed {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute %d bytes have passed", sum)
		}
	}
}

// wait waits until all clients are done.
func (tr *traffic) wait() {
	tr.over()
	tr.wg.Wait()
	for _, client := range tr.client {
		client.CloseIdleConnections()
	}
}

// check compares what is kept with what clients had. Of what was in flight at most loss bytes may be missing.
func (tr *traffic) check(t *testing.T, p *harness.Program, loss int64) {
	t.Helper()
	kept := map[string]harness.Summary{}
	for _, s := range p.Sessions(t, tr.prefix) {
		kept[pathOf(s)] = s
	}
	whole, most := 0, int64(0)
	for _, x := range tr.all {
		s, ok := kept[x.path]
		switch {
		case ok && s.State == "done":
			tr.checkWhole(t, p, s.ID, x)
			whole++
		case tr.durable[x.path]:
			t.Errorf("%s was durable, and is %q", x.path, s.State)
		case !x.ended.IsZero() && tr.killed.Sub(x.ended) > time.Second:
			t.Errorf("%s ended %v before the end of the program, and is %q", x.path, tr.killed.Sub(x.ended), s.State)
		}
	}
	for _, x := range tr.large {
		if !x.ended.IsZero() {
			t.Errorf("%s was to be in flight, and had ended", x.path)
			continue
		}
		s, ok := kept[x.path]
		if !ok && (x.began.IsZero() || tr.killed.Sub(x.began) < time.Second) {
			continue // it had hardly begun
		}
		if s.State != "interrupted" {
			t.Errorf("%s is %q; want interrupted", x.path, s.State)
			continue
		}
		most = max(most, tr.checkPart(t, p, s.ID, x, loss))
	}
	t.Logf("%s: %d of %d whole, %d reported durable; of those in flight at most %d bytes less than the client had", tr.prefix, whole, len(tr.all), len(tr.durable), most)
}

// checkWhole checks that a body is there to its last byte.
func (tr *traffic) checkWhole(t *testing.T, p *harness.Program, id uint64, x *transfer) {
	t.Helper()
	s := p.Session(t, id)
	side := s.Response
	if x.side == "request" {
		side = s.Request
	}
	if !side.Body.Complete || side.Body.Size != x.body.Size {
		t.Errorf("%s is kept as %+v; want %v", x.path, side.Body, x.body)
		return
	}
	if digest, n := p.Download(t, harness.BodyURL(id, x.side), ""); digest != x.body.SHA256() {
		t.Errorf("%s: %d bytes differ from %v", x.path, n, x.body)
	}
}

// checkPart checks that what is kept is the body's beginning, and returns how many bytes less that is than the client had.
func (tr *traffic) checkPart(t *testing.T, p *harness.Program, id uint64, x *transfer, loss int64) (less int64) {
	t.Helper()
	size := p.Session(t, id).Response.Body.Size
	less = x.had.Load() - size
	if less > loss {
		t.Errorf("%s: the client had %d bytes, %d are kept; want at most %d less", x.path, x.had.Load(), size, loss)
	}
	checkBeginning(t, p, id, x.body, size)
	return less
}

// checkBeginning checks that the size bytes that are kept of a response are the body's first.
func checkBeginning(t *testing.T, p *harness.Program, id uint64, b harness.Body, size int64) {
	t.Helper()
	if size == 0 {
		return // no range of it can be satisfied
	}
	want, _, _ := harness.Digest(b.Range(0, size))
	if digest, n := p.Download(t, harness.BodyURL(id, "response"), fmt.Sprintf("bytes=0-%d", size-1)); digest != want || n != size {
		t.Errorf("session %d: the %d bytes that are kept, %d read, are not the first of %v", id, size, n, b)
	}
}
