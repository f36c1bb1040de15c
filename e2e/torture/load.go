package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millpond/e2e/harness"
)

// kind is a way in which clients use the proxy.
type kind int

const (
	small   kind = iota // up to 60 KB, a third of them the same again and again
	medium              // around where a body leaves the log for a file of its own
	large               // 1 to 12 MiB
	upload              // 1 to 6 MiB
	both                // some of either
	slow                // open until the end: 4 KiB at a time
	open                // open until the end: 64 KiB at a time, 20 MB a second at most
	leaving             // the client leaves in the middle
	socket              // a WebSocket whose messages come back
)

// load is what clients do to one program.
type load struct {
	w       *world
	p       *harness.Program
	cycle   int
	api     *api
	clients map[harness.Protocol]*http.Client
	wg      sync.WaitGroup
	ctx     context.Context
	over    context.CancelFunc

	mu       sync.Mutex
	number   int
	mine     []*exchange
	failures []failure
	late     []amount // how much later than asked a sleep ended, in nanoseconds
	answered int      // exchanges that went well
}

// failure is an exchange that did not go well.
type failure struct {
	e   *exchange
	at  time.Time
	err error
}

// startLoad begins to use the program in all ways at once.
func (w *world) startLoad(p *harness.Program) (*load, error) {
	w.cycles++
	l := &load{w: w, p: p, cycle: w.cycles, api: newAPI(p), clients: map[harness.Protocol]*http.Client{}}
	l.ctx, l.over = context.WithCancel(context.Background())
	roots, err := harness.ReadPool(p.CA)
	if err != nil {
		return nil, err
	}
	for _, protocol := range harness.Protocols {
		l.clients[protocol] = harness.NewClient(protocol, p.Proxy, roots)
	}
	for i, kinds := range [][]kind{
		{small}, {small, small, small, medium, both}, {large, large, medium, leaving}, {upload, both, leaving}, {slow}, {slow}, {open}, {socket},
	} {
		random := rand.New(rand.NewPCG(w.seed, uint64(l.cycle)<<8|uint64(i)))
		l.wg.Go(func() {
			for l.ctx.Err() == nil && l.do(random, kinds[random.IntN(len(kinds))]) {
			}
		})
	}
	l.wg.Go(l.watch)
	l.wg.Go(func() { l.amend(rand.New(rand.NewPCG(w.seed, uint64(l.cycle)<<8|255))) })
	l.wg.Go(l.measureLateness)
	return l, nil
}

// make invents an exchange.
func (l *load) make(random *rand.Rand, k kind) *exchange {
	between := func(low, high int64) int64 { return low + random.Int64N(high-low) }
	e := &exchange{kind: k, cycle: l.cycle, protocol: harness.Protocols[random.IntN(3)], chunked: random.IntN(3) == 0, asked: time.Now()}
	body := func(size int64) harness.Body { return harness.NewBody(random.Uint64(), size) }
	switch k {
	case small:
		e.down = body(between(0, 60_000))
		if again := random.IntN(12); again < 4 {
			e.down = harness.NewBody(uint64(again), 5_000*int64(again))
		}
	case medium:
		e.down = body(between(60_000, 600_000))
	case large:
		e.down = body(between(1<<20, 12<<20))
		if random.IntN(4) == 0 {
			e.down = harness.NewBody(uint64(100+random.IntN(2)), 9<<20) // its chunks are kept once
		}
		e.pace = time.Duration(random.IntN(2)) * time.Millisecond
	case upload:
		e.up = body(between(1<<20, 6<<20))
	case both:
		e.up, e.down = body(between(0, 400_000)), body(between(0, 400_000))
	case slow:
		e.down, e.pace = body(64<<20), time.Duration(between(1, 20))*time.Millisecond
	case open:
		e.down, e.pace = body(1<<30), time.Duration(between(3, 12))*time.Millisecond
	case leaving:
		e.down = body(between(200_000, 6<<20))
	case socket:
		e.messages, e.protocol = random.Uint64(), harness.HTTP
	}
	l.mu.Lock()
	l.number++
	where, keep := "x", "d" // deleted by this part of the path
	if k == socket {
		where = "socket"
	}
	if e.keep = l.cycle%25 == 1 && k == small; e.keep {
		keep = "k"
	}
	e.path = fmt.Sprintf("/%s/%s-%06d-%s-%d", where, l.w.name, l.cycle, keep, l.number)
	l.mine = append(l.mine, e)
	l.mu.Unlock()
	l.w.origin.exchanges.Store(e.path, e)
	l.w.ledger.mu.Lock()
	l.w.ledger.all[e.path] = e
	l.w.ledger.mu.Unlock()
	return e
}

// do makes one exchange. It is false where that did not go well.
func (l *load) do(random *rand.Rand, k kind) bool {
	e := l.make(random, k)
	var err error
	if k == socket {
		err = l.talk(e, random)
	} else {
		err = l.fetch(e, random)
	}
	if err != nil {
		l.mu.Lock()
		l.failures = append(l.failures, failure{e, time.Now(), err})
		l.mu.Unlock()
		return false
	}
	l.mu.Lock()
	l.answered++
	l.mu.Unlock()
	select {
	case <-time.After(time.Duration(random.IntN(8)) * time.Millisecond):
	case <-l.ctx.Done():
	}
	return true
}

func (l *load) note(fn func()) {
	l.w.ledger.mu.Lock()
	defer l.w.ledger.mu.Unlock()
	fn()
}

func (l *load) fetch(e *exchange, random *rand.Rand) error {
	ctx, leave := context.WithCancel(l.ctx)
	defer leave()
	method, body := http.MethodGet, io.Reader(nil)
	if e.up.Size > 0 {
		method, body = http.MethodPost, io.NopCloser(e.up.Reader())
	}
	req, err := http.NewRequestWithContext(ctx, method, l.w.origin.URL(e.protocol, e.path), body)
	if err != nil {
		return err
	}
	if req.ContentLength = e.up.Size; e.chunked && e.up.Size > 0 {
		req.ContentLength = -1
	}
	res, err := l.clients[e.protocol].Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	l.note(func() { e.begun = time.Now() })
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", res.Status)
	}
	var reader io.Reader = res.Body
	if e.kind == leaving {
		most := random.Int64N(e.down.Size)
		err := compare(io.LimitReader(res.Body, most), harness.NewBody(e.down.Seed, most), &e.had)
		if err != nil {
			return err
		}
		l.note(func() { e.ended, e.left = time.Now(), true })
		return nil
	}
	if e.kind == open || e.kind == slow {
		reader = remembering{reader, l, e}
	}
	if err := compare(reader, e.down, &e.had); err != nil {
		return err
	}
	l.note(func() { e.ended = time.Now() })
	return nil
}

// remembering notes each 100 ms how much had passed.
type remembering struct {
	io.Reader
	l *load
	e *exchange
}

func (r remembering) Read(p []byte) (int, error) {
	now, n := time.Now(), r.e.had.Load()
	r.l.note(func() {
		if h := r.e.history; len(h) == 0 || now.Sub(h[len(h)-1].at) > 100*time.Millisecond {
			r.e.history = append(h, amount{now, n})
		}
	})
	return r.Reader.Read(p)
}

// message is what a WebSocket says, the nth time.
func (e *exchange) message(n int) harness.Body {
	seed := e.messages + uint64(n)
	return harness.NewBody(seed, int64(seed%3_000))
}

// talk sends messages and awaits each, and ends well after some.
func (l *load) talk(e *exchange, random *rand.Rand) error {
	d := websocket.Dialer{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.p.Proxy}), HandshakeTimeout: 20 * time.Second}
	c, res, err := d.DialContext(l.ctx, "ws"+l.w.origin.URL(e.protocol, e.path)[len("http"):], nil)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	defer c.Close()
	stop := context.AfterFunc(l.ctx, func() { _ = c.Close() })
	defer stop()
	l.note(func() { e.begun = time.Now() })
	for n := range 20 + random.IntN(200) {
		b := e.message(n)
		text, _ := io.ReadAll(b.Reader())
		if err := c.WriteMessage(websocket.BinaryMessage, text); err != nil {
			return err
		}
		_, back, err := c.ReadMessage()
		if err != nil {
			return err
		}
		if string(back) != string(text) {
			return errOther
		}
		l.note(func() { e.echoed = append(e.echoed, time.Now()) })
	}
	if err := c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")); err != nil {
		return err
	}
	var closed *websocket.CloseError
	if _, _, err := c.ReadMessage(); !errors.As(err, &closed) {
		return err
	}
	l.note(func() { e.ended = time.Now() })
	return nil
}

// watch notes what is reported to be durable, until the program is gone.
func (l *load) watch() {
	for l.ctx.Err() == nil {
		list, err := l.api.list(l.ctx, fmt.Sprintf("%s-%06d", l.w.name, l.cycle), 1)
		if err != nil {
			return
		}
		l.w.ledger.saw(list)
		status, err := l.api.status(l.ctx)
		if err != nil {
			return
		}
		l.w.ledger.sawDurable(list, status.DurableUntil)
		select {
		case <-time.After(15 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// amend pins, notes and deletes sessions, and deletes those of the oldest load where there are many bytes.
func (l *load) amend(random *rand.Rand) {
	g := l.w.ledger
	for n := 0; l.ctx.Err() == nil; n++ {
		var some []*exchange
		oldest, bytes := l.cycle, int64(0)
		l.note(func() {
			for _, e := range g.all {
				bytes += e.had.Load() + e.sent.Load()
				if !e.keep {
					oldest = min(oldest, e.cycle)
				}
				if e.id != 0 {
					some = append(some, e)
				}
			}
		})
		var err error
		if bytes > l.w.most && oldest < l.cycle-1 && n%2 == 0 {
			err = l.deleteCycle(oldest)
		} else if len(some) > 0 {
			err = l.amendOne(random, some[random.IntN(len(some))])
		}
		if err != nil {
			l.mu.Lock()
			l.failures = append(l.failures, failure{nil, time.Now(), err})
			l.mu.Unlock()
			return
		}
		select {
		case <-time.After(time.Duration(5+random.IntN(40)) * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// deleteCycle deletes what a former load left, but for what is kept for long.
func (l *load) deleteCycle(cycle int) error {
	part := fmt.Sprintf("%s-%06d-d", l.w.name, cycle)
	var these []*exchange
	sure := 0
	l.note(func() {
		for _, e := range l.w.ledger.all {
			if e.cycle == cycle && !e.keep {
				if e.settled && !e.deleting {
					sure++
				}
				e.deleting = true
				these = append(these, e)
			}
		}
	})
	var answer struct{ Deleted int }
	code, err := l.api.do(l.ctx, http.MethodDelete, "/api/sessions?filter="+part, nil, &answer)
	if err != nil {
		return err
	}
	if code == http.StatusOK && answer.Deleted < sure {
		l.w.ledger.violated("%d of %d sessions with %s were deleted", answer.Deleted, sure, part)
		return nil
	}
	l.note(func() {
		for _, e := range these {
			if code == http.StatusOK {
				l.w.ledger.drop(e)
			}
		}
	})
	if code == http.StatusOK {
		l.w.figures.deleted.Add(int64(len(these)))
	}
	return nil
}

// amendOne deletes one session in eight, and pins and notes the others.
func (l *load) amendOne(random *rand.Rand, e *exchange) error {
	path := fmt.Sprintf("/api/sessions/%d", e.id)
	if random.IntN(8) == 0 && !e.keep {
		l.note(func() { e.deleting = true })
		code, err := l.api.do(l.ctx, http.MethodDelete, path, nil, nil)
		if err != nil {
			return err
		}
		if code == http.StatusOK {
			l.note(func() { l.w.ledger.drop(e) })
			l.w.figures.deleted.Add(1)
		}
		return nil
	}
	m := mark{fmt.Sprintf("note %x", random.Uint32()), random.IntN(2) == 0}
	l.note(func() { e.marks = append(e.marks, m) })
	code, err := l.api.do(l.ctx, http.MethodPatch, path, m, nil)
	if err != nil {
		return err
	}
	if code == http.StatusOK {
		l.note(func() { e.mark, e.marks = m, nil })
		l.w.figures.noted.Add(1)
	}
	return nil
}

// measureLateness notes how much later than asked this process, on the same machine, wakes up.
func (l *load) measureLateness() {
	for l.ctx.Err() == nil {
		began := time.Now()
		time.Sleep(5 * time.Millisecond)
		now := time.Now()
		l.mu.Lock()
		l.late = append(l.late, amount{now, int64(now.Sub(began) - 5*time.Millisecond)})
		l.mu.Unlock()
	}
}

// lateness is the most that a sleep was late in the last 500 ms before the moment.
func (l *load) lateness(at time.Time) (most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.late {
		if at.Sub(a.at) < 500*time.Millisecond {
			most = max(most, time.Duration(a.bytes))
		}
	}
	return most
}

// end waits until the clients of a program that is gone are done, and notes its fate on all that they did. Nothing may have failed before that.
func (l *load) end(f *fate) {
	l.over()
	l.wg.Wait()
	for _, client := range l.clients {
		client.CloseIdleConnections()
	}
	l.api.close()
	l.w.figures.exchanges.Add(int64(l.answered))
	for _, failed := range l.failures {
		if failed.at.Before(f.at.Add(-f.unclear)) {
			what := "a change"
			if failed.e != nil {
				what = failed.e.path
			}
			l.w.ledger.violated("%s failed %v before the end of the program: %v", what, f.at.Sub(failed.at), failed.err)
		}
	}
	l.note(func() {
		for _, e := range l.mine {
			e.fate, e.unsynced = f, !e.durable
		}
	})
	for _, e := range l.mine {
		l.w.origin.exchanges.Delete(e.path)
	}
}
