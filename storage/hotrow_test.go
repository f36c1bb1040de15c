package storage

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// inWords runs fn with a new dictionary and its bucket.
func inWords(t testing.TB, fn func(d *dictionary, b *bbolt.Bucket)) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "words.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketWords)
		if err != nil {
			return err
		}
		d := new(dictionary)
		if err := d.load(b); err != nil {
			return err
		}
		fn(d, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func usualRow(n int) Row {
	return Row{
		ID: uint64(n), State: Done, Durable: true, Method: "GET", Scheme: "https", Host: fmt.Sprintf("host%d.example.com", n%100), Upstream: "192.0.2.1:443",
		Path: fmt.Sprintf("/api/v2/customers/%d/orders?page=%d&sort=created&expand=lines", 10000+n%90000, n%100), Protocol: "HTTP/2",
		Status: 200, ContentType: "application/json; charset=utf-8", RequestBytes: 312, ResponseBytes: 18_231 + uint64(n),
		Started: time.Unix(0, 1_700_000_000_123_456_789+int64(n)).UTC(), Duration: 45_123_456, FirstByte: 41_000_789,
		Client: fmt.Sprintf("127.0.0.1:%d", 40000+n%20000), Flags: []string{FlagReused},
	}
}

// TestRowsKeepEachNumber: also those too large for a row's fields, each by itself.
func TestRowsKeepEachNumber(t *testing.T) {
	at := rowPlace{slotID{1, 2}, 1}
	numbers := map[string]struct {
		set  func(r *Row, at *rowPlace, n uint64)
		bits uint
		most uint64
	}{
		"request bytes":  {func(r *Row, _ *rowPlace, n uint64) { r.RequestBytes = n }, 40, math.MaxUint64},
		"response bytes": {func(r *Row, _ *rowPlace, n uint64) { r.ResponseBytes = n }, 40, math.MaxUint64},
		"duration":       {func(r *Row, _ *rowPlace, n uint64) { r.Duration = time.Duration(n) }, 48, math.MaxInt64},
		"first byte":     {func(r *Row, _ *rowPlace, n uint64) { r.FirstByte = time.Duration(n) }, 48, math.MaxInt64},
		"segment":        {func(_ *Row, at *rowPlace, n uint64) { at.record.Segment = n }, 32, math.MaxUint64},
		"slot":           {func(_ *Row, at *rowPlace, n uint64) { at.record.Slot = uint32(n) }, 24, math.MaxUint32},
		"first segment":  {func(_ *Row, at *rowPlace, n uint64) { at.first = n }, 32, math.MaxUint64},
		"client's port":  {func(r *Row, _ *rowPlace, n uint64) { r.Client = fmt.Sprintf("[::1]:%d", n) }, 16, math.MaxUint32},
	}
	for name, number := range numbers {
		limit := uint64(1) << number.bits
		for _, n := range []uint64{0, 1, limit - 1, limit, limit + 1, number.most} {
			row, place := usualRow(1), at
			number.set(&row, &place, n)
			checkRow(t, fmt.Sprint(name, " ", n), row, place)
		}
	}
	everything, place := usualRow(1), at
	for _, number := range numbers {
		number.set(&everything, &place, number.most)
	}
	everything.Error, everything.Note, everything.Color, everything.Pinned = "broke off", strings.Repeat("n", 4000), "red", true
	everything.Host, everything.Flags = strings.Repeat("h", wordLength+1), append(append([]string{}, rowFlags[:]...), "of_the_future")
	checkRow(t, "everything", everything, place)
	checkRow(t, "nothing", Row{}, rowPlace{})
	for _, length := range []int{1, 69, 70, 127, 128, 1 << 14, 1<<21 + 1} {
		row := usualRow(1)
		row.Path = "/" + strings.Repeat("p", length-1)
		checkRow(t, fmt.Sprint("a path of ", length), row, at)
	}
	for status, want := range map[int]int{0: 0, 999: 999, 1<<16 - 1: 1<<16 - 1, 1 << 16: 1<<16 - 1, -1: 0} {
		row := usualRow(1)
		row.Status = status
		if got := throughStorage(t, "status", row, at); got.Status != want {
			t.Errorf("status %d is kept as %d, want %d", status, got.Status, want)
		}
	}
}

// TestWordsBeyondTheDictionaryAreSpelledOut: in each place that a word has.
func TestWordsBeyondTheDictionaryAreSpelledOut(t *testing.T) {
	inWords(t, func(d *dictionary, b *bbolt.Bucket) {
		for n := range wordLimit - 1 {
			d.words = append(d.words, fmt.Sprint(n))
			d.ids[fmt.Sprint(n)] = uint32(n + 1)
		}
		for n, last := range []bool{true, false} { // the last number there is, and none
			row := usualRow(1)
			row.Client = fmt.Sprintf("client%d:1", n)
			if !last {
				row = Row{ID: 1, Method: "M", Scheme: "S", Host: "H", Upstream: "U", Protocol: "P", ContentType: "C", Client: "X:1"}
			} else {
				row.Method, row.Scheme, row.Host, row.Upstream, row.Protocol, row.ContentType = "7", "7", "7", "7", "7", "7"
			}
			h, err := encodeRow(nil, &row, rowPlace{}, d, b)
			if err != nil {
				t.Fatal(err)
			}
			var got Row
			if err := decodeRow(&got, 1, h, d.snapshot()); err != nil {
				t.Fatal(err)
			}
			scheme, host, _, err := urlOf(1, h, d.snapshot())
			got.Durable = row.Durable
			if !reflect.DeepEqual(got, row) || host != row.Host || scheme != row.Scheme || err != nil {
				t.Errorf("got %+v, %s, %s, %v, want %+v", got, scheme, host, err, row)
			}
		}
		if len(d.words) != wordLimit {
			t.Errorf("the dictionary has %d words, want %d", len(d.words), wordLimit)
		}
	})
}

func checkRow(t *testing.T, what string, row Row, at rowPlace) {
	t.Helper()
	row.Durable = row.State != Open
	if got := throughStorage(t, what, row, at); !reflect.DeepEqual(got, row) {
		t.Errorf("%s: got\n%+v, want\n%+v", what, got, row)
	}
}

// throughStorage encodes the row and decodes it in each way. A row that is cut short anywhere is none.
func throughStorage(t *testing.T, what string, row Row, at rowPlace) (got Row) {
	t.Helper()
	inWords(t, func(d *dictionary, b *bbolt.Bucket) {
		h, err := encodeRow([]byte("before"), &row, at, d, b)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		h = h[len("before"):]
		if scheme, host, path, err := urlOf(row.ID, h, d.snapshot()); err != nil || string(path) != row.Path || host != row.Host || scheme != row.Scheme {
			t.Errorf("%s: its URL is %s, %s, %s, %v", what, scheme, host, path, err)
		}
		if place, state, err := rowPlaceOf(h); place != at || state != row.State || err != nil {
			t.Errorf("%s: its place is %v, %v, %v, want %v", what, place, state, err, at)
		}
		if err := decodeRow(&got, row.ID, h, d.snapshot()); err != nil || !validRow(h) {
			t.Errorf("%s: %v, valid: %v", what, err, validRow(h))
		}
		for n := range min(len(h), 2*hotRowSize) {
			var r Row
			_, _, _ = rowPlaceOf(h[:n])
			if whole := decodeRow(&r, 1, h[:n], d.snapshot()) == nil; whole != validRow(h[:n]) || whole && n <= hotRowSize {
				t.Errorf("%s: its first %d bytes decode: %v, are valid: %v", what, n, whole, validRow(h[:n]))
			}
		}
	})
	return got
}

// TestRowsAreSmall holds what a list of a million sessions costs on disk.
func TestRowsAreSmall(t *testing.T) {
	const most, sessions = 140, 10_000
	sum, paths := 0, 0
	inWords(t, func(d *dictionary, b *bbolt.Bucket) {
		for n := range sessions {
			row := usualRow(n)
			h, err := encodeRow(nil, &row, rowPlace{slotID{uint64(n / 1000), uint32(n)}, uint64(n / 1000)}, d, b)
			if err != nil {
				t.Fatal(err)
			}
			sum += len(h)
			paths += len(row.Path)
		}
	})
	t.Logf("a row has %.1f bytes, its path %.1f", float64(sum)/sessions, float64(paths)/sessions)
	if sum > most*sessions {
		t.Errorf("a row has %.1f bytes, want at most %d", float64(sum)/sessions, most)
	}
}

// BenchmarkDecodeRow decodes rows as a filter over all sessions does.
func BenchmarkDecodeRow(b *testing.B) {
	const sessions = 10_000
	inWords(b, func(d *dictionary, bucket *bbolt.Bucket) {
		var rows [][]byte
		for n := range sessions {
			row := usualRow(n)
			h, err := encodeRow(nil, &row, rowPlace{slotID{uint64(n / 1000), uint32(n)}, 1}, d, bucket)
			if err != nil {
				b.Fatal(err)
			}
			rows = append(rows, h)
		}
		for name, decode := range map[string]func(r *Row, id uint64, h []byte, words words) error{"rows": decodeRow, "URLs": func(_ *Row, id uint64, h []byte, words words) error {
			_, _, _, err := urlOf(id, h, words)
			return err
		}} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				words, n := d.snapshot(), 0
				var r Row
				for b.Loop() {
					if err := decode(&r, 1, rows[n%sessions], words); err != nil {
						b.Fatal(err)
					}
					n++
				}
			})
		}
	})
}
