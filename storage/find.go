package storage

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Match reports whether a session with this status (0 until a response's head came) and URL is looked for. It runs while the index is read, so it must be quick;
// path is not its own: it must neither change nor keep it.
type Match func(status int, scheme, host string, path []byte) bool

// findBatch is how many sessions Find looks at in one transaction: some half a millisecond.
const findBatch = 8 << 10

// Find looks through the sessions with an id in [from, to), in rising order or, with down, in falling order, for those that match; a nil match is every
// session. It calls fn with the ids that some of the sessions gave, which may be none, and with what is left of the range; it ends when nothing is left, or fn returns false.
// It makes no Row: a million sessions take a tenth of a second or two. No transaction is held while fn runs.
func (s *Store) Find(from, to uint64, down bool, match Match, fn func(ids []uint64, from, to uint64) bool) error {
	var ids []uint64
	for size := 64; from < to; size = min(2*size, findBatch) { // the first at once, then many at a time
		var rest [2]uint64
		var err error
		if ids, rest, err = s.findSome(ids[:0], from, to, down, size, match); err != nil {
			return fmt.Errorf("find sessions: %w", err)
		}
		if from, to = rest[0], rest[1]; !fn(ids, from, to) {
			return nil
		}
	}
	return nil
}

// findSome appends to ids those of the beginning of the range, and returns them and what is left of it. As in scanSome, the live sessions are looked at first.
func (s *Store) findSome(ids []uint64, from, to uint64, down bool, size int, match Match) (_ []uint64, rest [2]uint64, err error) {
	live := s.live.between(from, to)
	final := make([]bool, len(live)) // it is stored with its end, which counts
	if rest = [2]uint64{to, to}; down {
		rest = [2]uint64{from, from}
	}
	first := len(ids)
	err = s.index.view(func(tx *bbolt.Tx) error {
		start := time.Now()
		words := s.index.dict.snapshot() // after the transaction began, so that it has every word of it
		c := tx.Bucket(bucketRows).Cursor()
		at := from
		if down { // the end of the range is gone through in rising order, which takes half the time
			k, _ := seek(c, from, to, true)
			if k == nil || !inside(k, from, to) {
				return nil
			}
			newest := binary.BigEndian.Uint64(k)
			at = max(from, newest-min(newest, uint64(min(size, findBatch/2))-1))
			rest = [2]uint64{from, at}
		}
		looked, read := 0, 0
		for k, v := c.Seek(idKey(at)); k != nil && inside(k, at, to); k, v = c.Next() {
			id := binary.BigEndian.Uint64(k)
			if !down && (looked == size || looked%64 == 63 && time.Since(start) > scanTime) {
				rest = [2]uint64{id, to}
				break
			}
			looked++
			read += len(v)
			if len(live) > 0 && id >= live[0].id {
				if i, found := slices.BinarySearchFunc(live, id, func(r *Recording, id uint64) int { return compare(r.id, id) }); found {
					_, state, err := rowPlaceOf(v)
					if err != nil {
						return err
					}
					if final[i] = state != Open; !final[i] {
						continue
					}
				}
			}
			if match != nil {
				scheme, host, path, err := urlOf(id, v, words)
				if err != nil {
					return err
				}
				if !match(statusOf(v), scheme, host, path) {
					continue
				}
			}
			ids = append(ids, id)
		}
		s.index.wasRead(tx, read)
		return nil
	})
	if err != nil {
		return nil, rest, err
	}
	if down {
		slices.Reverse(ids[first:])
	}
	return findLive(ids, live, final, rest, down, match), rest, nil
}

// findLive adds to the ids those of the live sessions that were passed and that match, in their order, and takes out those that are deleted.
func findLive(ids []uint64, live []*Recording, final []bool, rest [2]uint64, down bool, match Match) []uint64 {
	order := func(a, b uint64) int {
		if down {
			return compare(b, a)
		}
		return compare(a, b)
	}
	stored := len(ids)
	for i, r := range live {
		if rest[0] != rest[1] && (down && r.id < rest[1] || !down && r.id >= rest[0]) {
			continue
		}
		r.mu.Lock()
		deleted := r.deleted
		matches := match == nil || !deleted && !final[i] && match(r.session.Status, r.session.Scheme, r.session.Host, []byte(r.session.Path))
		r.mu.Unlock()
		switch {
		case deleted && final[i]:
			if at, found := slices.BinarySearchFunc(ids[:stored], r.id, order); found {
				ids = slices.Delete(ids, at, at+1)
				stored--
			}
		case !deleted && !final[i] && matches:
			ids = append(ids, r.id)
		}
	}
	if len(ids) > stored {
		slices.SortFunc(ids, order)
	}
	return ids
}
