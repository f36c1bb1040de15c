package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Find shows a match the URL that Scan gives of each session: of stored ones, of open ones, of those that ended or were deleted just now, also where a word is too long for
// the dictionary; in both directions, and from any part of the range.
func TestFindAgreesWithScan(t *testing.T) {
	s := openTest(t, t.TempDir())
	const sessions = 3000
	r := rand.New(rand.NewPCG(1, 2))
	var recs []*Recording
	for i := range sessions {
		rec := s.Begin(Session{
			Method: "GET", Scheme: []string{"http", "https", strings.Repeat("s", 300)}[r.IntN(3)], Host: strings.Repeat("h", r.IntN(400)),
			Path: fmt.Sprint("/é/", i, strings.Repeat("p", r.IntN(300))), Client: "[::1]:5000", Flags: []string{FlagReused}, Status: 100 + i%500,
		})
		recs = append(recs, rec)
		if i%4 == 0 {
			rec.End(Done, "")
		}
	}
	waitDurable(t, s)
	if _, err := s.Delete(t.Context(), []uint64{recs[8].id, recs[9].id, recs[sessions-1].id, recs[sessions-4].id}); err != nil {
		t.Fatal(err)
	}
	s.committing.Lock() // what ends from here on is stored as open
	defer s.committing.Unlock()
	for i, rec := range recs {
		if i%4 == 1 {
			rec.End(Failed, "no route to host")
		}
	}
	type url struct {
		id                 uint64
		status             int
		scheme, host, path string
	}
	for _, span := range [][2]uint64{{0, 1 << 62}, {recs[5].id, recs[7].id}, {recs[100].id, recs[sessions-2].id}, {recs[0].id, recs[0].id}, {1 << 40, 1 << 41}} {
		var want []url
		if err := s.Scan(span[0], span[1], func(row *Row) bool {
			want = append(want, url{row.ID, row.Status, row.Scheme, row.Host, row.Path})
			return true
		}); err != nil {
			t.Fatal(err)
		}
		for _, down := range []bool{false, true} {
			seen := map[string]url{} // by path, which no two share
			var all, some, shown []uint64
			find := func(match Match, ids *[]uint64) {
				from, to := span[0], span[1]
				if err := s.Find(span[0], span[1], down, match, func(found []uint64, restFrom, restTo uint64) bool {
					for _, id := range found {
						if id < from || id >= to || id >= restFrom && id < restTo {
							t.Errorf("session %d was found in [%d, %d), of which [%d, %d) is left", id, from, to, restFrom, restTo)
						}
					}
					from, to = restFrom, restTo
					*ids = append(*ids, found...)
					return true
				}); err != nil {
					t.Fatal(err)
				}
				if from < to {
					t.Errorf("[%d, %d) is left at the end", from, to)
				}
			}
			find(nil, &all)
			find(func(status int, scheme, host string, path []byte) bool {
				seen[string(path)] = url{status: status, scheme: scheme, host: host, path: string(path)}
				return true
			}, &shown)
			find(func(_ int, _, host string, _ []byte) bool { return len(host)%2 == 0 }, &some)
			var wantAll, wantSome []uint64
			for _, u := range want {
				got := seen[u.path]
				got.id = u.id
				if got != u {
					t.Fatalf("down %v: a match saw %v, want %v", down, got, u)
				}
				wantAll = append(wantAll, u.id)
				if len(u.host)%2 == 0 {
					wantSome = append(wantSome, u.id)
				}
			}
			if down {
				slices.Reverse(wantAll)
				slices.Reverse(wantSome)
			}
			if !slices.Equal(all, wantAll) || !slices.Equal(shown, wantAll) || !slices.Equal(some, wantSome) {
				t.Errorf("[%d, %d), down %v: found %d, %d and %d sessions, want %d and %d", span[0], span[1], down, len(all), len(shown), len(some), len(wantAll), len(wantSome))
			}
		}
	}
}
