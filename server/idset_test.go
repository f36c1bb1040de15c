package server

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The set agrees with a sorted slice, over gaps, block borders and removals.
func TestIDSetAgainstASlice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var set idSet
	var want []uint64
	for range 20_000 {
		id := random.Uint64N(3) * 1_000_000 // three far regions
		id += random.Uint64N(9_000)         // over more than two blocks each
		at, there := slices.BinarySearch(want, id)
		if random.IntN(3) == 0 {
			if got := set.remove(id); got != there {
				t.Fatalf("remove %d: got %v, want %v", id, got, there)
			}
			if there {
				want = slices.Delete(want, at, at+1)
			}
			continue
		}
		if got := set.add(id); got == there {
			t.Fatalf("add %d: got %v, want %v", id, got, !there)
		}
		if !there {
			want = slices.Insert(want, at, id)
		}
	}
	if got := set.slice(0, 1<<30); set.n != len(want) || !slices.Equal(got, want) {
		t.Fatalf("got %d members, want %d", len(got), len(want))
	}
	for range 1000 {
		from, count := random.IntN(len(want)+3), random.IntN(300)
		expected := want[min(from, len(want)):min(from+count, len(want))]
		if got := set.slice(from, count); !slices.Equal(got, expected) {
			t.Fatalf("slice(%d, %d): got %v, want %v", from, count, got, expected)
		}
		id := random.Uint64N(3_000_000)
		at, there := slices.BinarySearch(want, id)
		if set.has(id) != there || set.below(id) != at {
			t.Fatalf("id %d: has %v below %d, want %v %d", id, set.has(id), set.below(id), there, at)
		}
	}
}

// A view without a filter over a million sessions holds a bit for each.
func TestIDSetOfAMillionIsSmall(t *testing.T) {
	var set idSet
	for id := range uint64(1_000_000) {
		set.add(id)
	}
	if bytes := len(set.blocks) * (1<<blockBits/8 + 24); bytes > 150<<10 {
		t.Errorf("a million ids: got %d bytes, want at most 150 KiB", bytes)
	}
}
