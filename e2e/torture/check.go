package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"millpond/e2e/harness"
)

const (
	// killLoss is the most that SIGKILL may take from a body that was being captured while the disk works.
	killLoss = 1 << 20

	// killLossBesideOthers is for the short form, which other tests run beside: their syncs have the disk stall for moments, and then more may wait for it.
	killLossBesideOthers = 8 << 20
	// powerLoss is how much of an open body a power cut may take, in time.
	powerLoss = 5 * time.Second
)

// checker compares what a program has after a restart with the ledger.
type checker struct {
	w   *world
	api *api
	ctx context.Context
}

// check compares everything new, so many of what was checked before, and of all others what the list tells.
func (w *world) check(p *harness.Program, sample int, random *rand.Rand) error {
	c := &checker{w, newAPI(p), context.Background()}
	defer c.api.close()
	list, err := c.api.list(c.ctx, "", 0)
	if err != nil {
		return err
	}
	byPath := map[string]*summary{}
	for i := range list {
		s := &list[i]
		switch {
		case w.ledger.gone[s.ID]:
			w.ledger.violated("session %d was deleted, and is back: %s %s", s.ID, s.Path, s.State)
		case byPath[s.Path] != nil && s.Path != "":
			w.ledger.violated("%s is there twice: %d and %d", s.Path, s.ID, byPath[s.Path].ID)
		case s.State == "open":
			w.ledger.violated("session %d is open after a restart", s.ID)
		}
		if _, was := w.ledger.deleted[s.Path]; was {
			w.ledger.violated("%s was deleted, and is back as %d", s.Path, s.ID)
		} else if w.ledger.all[s.Path] == nil {
			w.ledger.violated("nobody asked for session %d: %s %s, %s", s.ID, s.Host, s.Path, s.Error)
		}
		byPath[s.Path] = s
	}
	told := map[*exchange]bool{} // durable while the program ran
	for _, e := range w.ledger.all {
		told[e] = e.durable
	}
	w.ledger.saw(list)

	var fresh, old []*exchange
	for _, e := range w.ledger.all {
		if told[e] && !e.settled {
			w.figures.durables.Add(1)
		}
		if s := byPath[e.path]; s == nil {
			c.absent(e)
		} else if c.marked(e, s); e.settled {
			old = append(old, e)
		} else {
			fresh = append(fresh, e)
		}
	}
	slices.SortFunc(old, func(a, b *exchange) int { return strings.Compare(a.path, b.path) })
	random.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	work := make(chan *exchange)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for e := range work {
				if err := c.session(e, byPath[e.path]); err != nil {
					w.ledger.violated("%s cannot be read: %v", e.path, err)
				}
			}
		})
	}
	for _, e := range append(fresh, old[:min(sample, len(old))]...) {
		work <- e
	}
	close(work)
	wg.Wait()
	for _, e := range fresh {
		e.settled = byPath[e.path].Durable
	}
	w.figures.sessions.Add(int64(len(fresh) + min(sample, len(old))))
	return nil
}

// absent judges that an exchange has no session.
func (c *checker) absent(e *exchange) {
	f := e.fate
	g := c.w.ledger
	begun := e.begun
	if begun.IsZero() {
		begun = f.at
	}
	switch {
	case e.deleting: // it was asked for
	case e.settled:
		g.violated("%s was there after a restart, and is gone", e.path)
	case e.durable:
		g.violated("%s was durable, as %s, and is gone", e.path, e.state)
	case f.power || f.faulty(e):
	case f.at.Sub(begun) > f.slack:
		g.violated("%s began %v before the end of the program, and is gone", e.path, f.at.Sub(begun))
	}
	g.mu.Lock()
	g.drop(e)
	g.mu.Unlock()
}

// marked judges what people put on a session.
func (c *checker) marked(e *exchange, s *summary) {
	if s.mark != e.mark && !slices.Contains(e.marks, s.mark) {
		c.w.ledger.violated("%s (%s) is marked %+v; acknowledged was %+v, asked for %+v", e.path, s.State, s.mark, e.mark, e.marks)
	}
	e.mark, e.marks, e.deleting = s.mark, nil, false
}

// session judges a session that is there, with all bytes of it that are kept.
func (c *checker) session(e *exchange, s *summary) error {
	var session harness.Session
	if err := c.api.get(c.ctx, fmt.Sprintf("/api/sessions/%d", s.ID), &session); err != nil {
		return err
	}
	g, f := c.w.ledger, e.fate
	faulty := f.faulty(e)
	age := f.at.Sub(e.ended)
	whole := s.State == "done"
	switch {
	case whole:
	case e.left && s.State == "client_aborted":
	case s.State != "interrupted":
		g.violated("%s is %s: %s", e.path, s.State, s.Error)
	case !e.ended.IsZero() && !e.settled:
		c.w.figures.endedYoung(f, age)
		if !f.power && !faulty && age > f.slack {
			g.violated("%s ended %v before the end of the program, and is interrupted", e.path, age)
		}
	}
	if e.kind == socket {
		return c.messages(e, s, faulty)
	}
	for i, side := range []harness.Side{session.Request, session.Response} {
		name, want, passed := "request", e.up, e.sent.Load()
		if i == 1 {
			name, want, passed = "response", e.down, e.had.Load()
		}
		if err := c.side(e, s, name, &side, want); err != nil {
			return err
		}
		b := side.Body
		if e.settled {
			if b.Size != e.kept[i] {
				g.violated("%s: %d bytes of its %s are kept, and there were %d", e.path, b.Size, name, e.kept[i])
			}
			continue
		}
		e.kept[i] = b.Size
		cut := b.Missing != ""
		if whole && !b.Complete && !(faulty && cut) && !(e.left && i == 1) {
			g.violated("%s is done, and its %s is incomplete: %d bytes of %d, missing %q", e.path, name, b.Size, want.Size, b.Missing)
		}
		if cut && !faulty && s.State != "interrupted" {
			g.violated("%s: its %s lacks bytes on a disk that worked: %q", e.path, name, b.Missing)
		}
		loss := passed - b.Size
		switch {
		case faulty:
		case f.power && (e.kind == open || e.kind == slow) && i == 1:
			c.w.figures.lostInPower(c.lostTime(e, b.Size))
		case f.power:
		default:
			if s.State == "interrupted" && loss > 0 {
				c.w.figures.lostInKill(loss)
			}
			most := int64(killLoss)
			if c.w.short {
				most = killLossBesideOthers
			}
			if loss > most {
				g.violated("%s: %d bytes of its %s passed, and %d are kept", e.path, passed, name, b.Size)
			}
		}
	}
	return nil
}

// lostTime is how long before the power was cut the first byte passed that is not kept, at the least.
func (c *checker) lostTime(e *exchange, kept int64) time.Duration {
	for _, a := range e.history {
		if a.bytes > kept {
			lost := e.fate.at.Sub(a.at)
			if lost > powerLoss+powerSlack {
				c.w.ledger.violated("%s: of what passed %v before the power was cut not all is kept: %d of %d bytes", e.path, lost, kept, a.bytes)
			}
			return lost
		}
	}
	return 0
}

// powerSlack is what the syncs themselves take, on a disk that others use.
const powerSlack = 1500 * time.Millisecond

// side compares the bytes of one side that are kept with those that passed.
func (c *checker) side(e *exchange, s *summary, name string, side *harness.Side, want harness.Body) error {
	b := side.Body
	g := c.w.ledger
	if b.Size > want.Size || b.Complete && b.Size < want.Size && !(e.left && name == "response") {
		g.violated("%s: its %s is kept as %+v, and had %d bytes", e.path, name, b, want.Size)
		return nil
	}
	if b.Size == 0 {
		return nil // there may be nothing to be got
	}
	expected := want.SHA256
	if b.Size < want.Size {
		expected = func() string {
			digest, _, _ := harness.Digest(want.Range(0, b.Size))
			return digest
		}
	}
	digest, n, code, err := c.api.digest(c.ctx, harness.BodyURL(s.ID, name), "")
	if err != nil {
		return err
	}
	c.w.figures.bytes.Add(n)
	if n != b.Size || code != http.StatusOK || digest != expected() {
		g.violated("%s: the %d bytes of its %s that are kept, %d read (%d), are not the first of %v", e.path, b.Size, name, n, code, want)
	}
	if b.SHA256 != "" && b.SHA256 != digest {
		g.violated("%s: the SHA-256 of its %s is said to be %s, and is %s", e.path, name, b.SHA256, digest)
	}
	return nil
}

// messages compares the messages of a WebSocket with those that were sent and came back.
func (c *checker) messages(e *exchange, s *summary, faulty bool) error {
	type entry struct {
		Number     uint64
		Side, Type string
		Size       int64

		Offset, Length int64
	}
	var all []entry
	for {
		var list struct{ Messages []entry }
		code, err := c.api.do(c.ctx, http.MethodGet, fmt.Sprintf("/api/sessions/%d/messages?from=%d&limit=500", s.ID, len(all)), nil, &list)
		if err != nil {
			return err
		}
		if code != http.StatusOK && code != http.StatusNotFound { // 404 where not even that messages follow was kept
			return fmt.Errorf("messages: answered %d; it is %s, %d were back, it began %v before the end of the program", code, s.State, len(e.echoed), e.fate.at.Sub(e.asked))
		}
		all = append(all, list.Messages...)
		if len(list.Messages) < 500 {
			break
		}
	}
	g, f := c.w.ledger, e.fate
	counts := map[string]int{}
	// A direction of more than 256 KiB is in a file of its own, of which a kill may take 1 MiB, and so may what it said be gone.
	long := slices.ContainsFunc(all, func(m entry) bool { return m.Offset+m.Length > 256<<10 })
	for i, m := range all {
		if m.Type == "close" {
			continue
		}
		n := counts[m.Side]
		counts[m.Side]++
		want := e.message(n)
		if m.Type != "binary" || m.Size != want.Size {
			g.violated("%s: message %d is listed as %+v; want %v", e.path, m.Number, m, want)
			continue
		}
		if i%37 != 0 && i < len(all)-2 {
			continue
		}
		digest, size, code, err := c.api.digest(c.ctx, fmt.Sprintf("/api/sessions/%d/messages/%d/payload", s.ID, m.Number), "")
		if err != nil {
			return err
		}
		c.w.figures.bytes.Add(size)
		young := s.State == "interrupted" && (long || n >= len(e.echoed) || f.at.Sub(e.echoed[n]) < f.slack)
		if code == http.StatusNotFound && (f.power || faulty || young) {
			continue // it says that its bytes were not kept
		}
		if digest != want.SHA256() {
			g.violated("%s: the payload of message %d is not %v (%d)", e.path, m.Number, want, code)
		}
	}
	if e.settled || f.power && s.State != "done" || faulty {
		return nil
	}
	must := 0
	for _, at := range e.echoed {
		if f.at.Sub(at) > f.slack || s.State == "done" {
			must++
		}
	}
	if s.RequestBytes < 200<<10 && min(counts["request"], counts["response"]) < must {
		g.violated("%s: %v messages are listed, and %d were back more than %v before the end", e.path, counts, must, f.slack)
	}
	return nil
}
