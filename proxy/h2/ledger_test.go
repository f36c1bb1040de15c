package h2

import (
	"math/rand/v2"
	"testing"
)

// granted books credit of the receiver's, and returns what the sender gets of it.
func granted(w *window, n int64) int64 {
	w.grant(n)
	return w.pass(unbounded)
}

func TestWindowRelays(t *testing.T) {
	w := window{real: 100, lent: 100}
	w.receive(60)
	w.forward(60)
	if got := granted(&w, 60); got != 60 {
		t.Errorf("passed on %d of the receiver's 60", got)
	}
	if w != (window{real: 100, lent: 100}) {
		t.Errorf("window %+v", w)
	}
}

func TestWindowWithholds(t *testing.T) {
	w := window{real: 100, lent: 100, kept: true}
	w.receive(80)
	w.forward(80)
	if got := granted(&w, 50) + granted(&w, 30); got != 0 {
		t.Errorf("passed on %d while credit is withheld", got)
	}
	w.kept = false
	if got := w.pass(unbounded); got != 80 {
		t.Errorf("then passed on %d, want 80", got)
	}
	if got := w.pass(unbounded); got != 0 {
		t.Errorf("and again %d", got)
	}
}

func TestWindowLendsNoMoreThanItMay(t *testing.T) {
	w := window{real: 100, lent: 40}
	for _, step := range []struct{ most, want int64 }{{30, 0}, {70, 30}, {70, 0}, {unbounded, 30}, {unbounded, 0}} {
		if got := w.pass(step.most); got != step.want {
			t.Errorf("up to %d bytes: passed on %d, want %d", step.most, got, step.want)
		}
	}
}

func TestWindowPaysItsDebtFirst(t *testing.T) {
	w := window{real: 65535, lent: 65535}
	if got := w.spare(1 << 20); got != maxDebt {
		t.Errorf("a hook may send %d bytes, want %d", got, maxDebt)
	}
	w.forward(maxDebt)
	if got := granted(&w, maxDebt-1); got != 0 {
		t.Errorf("passed on %d that the receiver gave for the hook's data", got)
	}
	if got := granted(&w, 11); got != 10 {
		t.Errorf("passed on %d, want 10", got)
	}
	w = window{real: 10 << 20, lent: 10 << 20}
	if got := w.spare(1 << 30); got != 5<<20 {
		t.Errorf("a hook may send %d of 10 MiB, want half", got)
	}
	w.want = true
	if got := w.spare(1); got != 0 {
		t.Errorf("a hook may send %d while the sender waits", got)
	}
}

// Whatever happens in whatever order, we never send more than the receiver granted, and once all is read nothing of its credit is lost.
func TestWindowLosesNothing(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := window{real: initialWindow, lent: initialWindow}
		receiver := int64(initialWindow) // what it will take, by its own account
		unread, waiting := int64(0), int64(0)
		sender := int64(initialWindow) // what it may send, by its own account
		deliver := func(n int64) {
			if receiver -= n; receiver < 0 {
				t.Fatalf("seed %d: the receiver's window was exceeded by %d", seed, -receiver)
			}
			unread += n
		}
		for range 2000 {
			switch rng.IntN(4) {
			case 0: // the sender sends, for the receiver or for a hook
				n := rng.Int64N(16384)
				if n > sender || waiting > 0 {
					continue
				}
				sender -= n
				w.receive(n)
				if rng.IntN(3) == 0 {
					w.repay(n)
					sender += n
					continue
				}
				waiting = n
			case 1: // a hook sends
				n := w.spare(rng.Int64N(16384))
				w.forward(n)
				deliver(n)
			case 2, 3: // the receiver reads
				n := rng.Int64N(unread + 1)
				unread -= n
				receiver += n
				sender += granted(&w, n)
			}
			if n := min(waiting, max(w.real, 0)); n > 0 {
				w.forward(n)
				deliver(n)
				waiting -= n
			}
		}
		for waiting > 0 || unread > 0 {
			n := unread
			unread = 0
			receiver += n
			sender += granted(&w, n)
			n = min(waiting, w.real)
			w.forward(n)
			deliver(n)
			waiting -= n
		}
		if sender != initialWindow || receiver != initialWindow || w.real != initialWindow || w.lent != initialWindow {
			t.Fatalf("seed %d: sender %d, receiver %d, %+v", seed, sender, receiver, w)
		}
	}
}
