package storage

import (
	"slices"
	"sync"
	"testing"
)

func awake(f *Feed) bool {
	select {
	case <-f.Wake():
		return true
	default:
		return false
	}
}

func TestFeedGathersEachIDOnce(t *testing.T) {
	var all feeds
	a, b := all.subscribe(), all.subscribe()
	if awake(a) {
		t.Error("awake with nothing to take")
	}
	all.publish()
	all.publish(7, 3)
	all.publish(7)
	if !awake(a) || awake(a) {
		t.Error("want one wake for what was put since the last Take")
	}
	if ids, overflowed := a.Take(); !slices.Equal(ids, []uint64{3, 7}) || overflowed {
		t.Errorf("took %v, %v", ids, overflowed)
	}
	if ids, overflowed := a.Take(); len(ids) != 0 || overflowed {
		t.Errorf("took %v, %v again", ids, overflowed)
	}
	all.publish(9)
	if ids, _ := b.Take(); !slices.Equal(ids, []uint64{3, 7, 9}) {
		t.Errorf("the other subscriber took %v", ids)
	}
	if !awake(a) {
		t.Error("asleep with something to take")
	}
}

func TestFeedForgetsBeyondItsLimit(t *testing.T) {
	var all feeds
	f := all.subscribe()
	ids := make([]uint64, FeedLimit)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	all.publish(ids...)
	all.publish(ids...)
	if got, overflowed := f.Take(); len(got) != FeedLimit || overflowed {
		t.Errorf("at the limit: %d ids, overflowed %v", len(got), overflowed)
	}

	all.publish(ids...)
	all.publish(FeedLimit + 1)
	all.publish(1)
	if f.ids != nil {
		t.Errorf("an overflowed feed holds %d ids", len(f.ids))
	}
	if got, overflowed := f.Take(); len(got) != 0 || !overflowed {
		t.Errorf("beyond the limit: %d ids, overflowed %v", len(got), overflowed)
	}
	all.publish(5)
	if got, overflowed := f.Take(); !slices.Equal(got, []uint64{5}) || overflowed {
		t.Errorf("after that: %v, %v", got, overflowed)
	}
}

func TestClosedFeedGetsNothing(t *testing.T) {
	var all feeds
	f := all.subscribe()
	f.Close()
	f.Close()
	all.publish(1)
	if ids, _ := f.Take(); len(ids) != 0 || len(all.all) != 0 {
		t.Errorf("took %v, %d subscriptions left", ids, len(all.all))
	}
}

// TestFeedLosesNothing publishes from many goroutines while one takes.
func TestFeedLosesNothing(t *testing.T) {
	var all feeds
	f := all.subscribe()
	const publishers, each = 8, 1000
	var work sync.WaitGroup
	for p := range publishers {
		work.Go(func() {
			for i := range each {
				all.publish(uint64(p*each + i))
			}
		})
	}
	seen := map[uint64]bool{}
	for len(seen) < publishers*each {
		<-f.Wake()
		ids, overflowed := f.Take()
		if overflowed {
			t.Fatal("overflowed")
		}
		for _, id := range ids {
			seen[id] = true
		}
	}
	work.Wait()
}
