package storage

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSmallSessions records sessions with a response of 10 KB, from 16 goroutines.
func BenchmarkSmallSessions(b *testing.B) {
	s := openTest(b, b.TempDir())
	body := noise(1, 10_000)
	var serial atomic.Uint64
	b.SetParallelism(8)
	b.ReportAllocs()
	begin := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		head := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 10000\r\nDate: Mon, 30 Nov 2026 11:00:00 GMT\r\n\r\n")
		for pb.Next() {
			n := serial.Add(1)
			r := s.Begin(Session{
				Method: "GET", Scheme: "http", Host: "example.com", Path: fmt.Sprint("/body?", n), Protocol: "HTTP/1.1",
				Client: "127.0.0.1:40000", Upstream: "127.0.0.1:80",
			})
			r.Body(Request).Complete()
			r.Change(func(s *Session) {
				s.Status, s.ContentType = 200, "application/octet-stream"
				s.Sides[Request].Head, s.Sides[Response].Head = head, head
			})
			buf := NewBuffer()
			copy(buf.B, body)
			for i := range 8 {
				buf.B[i] = byte(n >> (8 * i)) // no two are equal
			}
			w := r.Body(Response)
			w.Give(buf, len(body))
			w.Wait(b.Context())
			w.Complete()
			r.End(Done, "")
		}
	})
	waitDurable(b, s)
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "sessions/s")
}

// BenchmarkLargeBody records one body, in buffers as they come from a fast connection.
func BenchmarkLargeBody(b *testing.B) {
	for _, size := range []int{BufferSize, LargeBufferSize} {
		b.Run(fmt.Sprintf("buffers of %d KiB", size>>10), func(b *testing.B) {
			s := openTest(b, b.TempDir())
			sent := int64(0)
			begin := time.Now()
			r := s.Begin(Session{Method: "GET", Host: "example.com", Path: "/large"})
			w := r.Body(Response)
			serial := uint64(0)
			for b.Loop() {
				buf := NewBuffer()
				if size > BufferSize {
					buf.Free()
					buf = NewLargeBuffer()
				}
				serial++
				for i := range 8 {
					buf.B[i] = byte(serial >> (8 * i))
				}
				w.Give(buf, len(buf.B))
				sent += int64(len(buf.B))
				w.Wait(b.Context())
			}
			w.Complete()
			r.End(Done, "")
			for s.live.get(r.ID()) != nil {
				s.commit()
			}
			b.ReportMetric(float64(sent)/1e6/time.Since(begin).Seconds(), "MB/s")
		})
	}
}

// BenchmarkScan goes over 50,000 rows, as a list does, as a view of everything, and as one with a filter.
func BenchmarkScan(b *testing.B) {
	const sessions = 50_000
	s := openTest(b, b.TempDir())
	for n := range sessions {
		r := s.Begin(Session{
			Method: "GET", Scheme: "https", Host: fmt.Sprintf("host%d.example.com", n%100), Path: fmt.Sprint("/some/longer/path/to/body?", n), Protocol: "HTTP/1.1",
			Client: fmt.Sprintf("127.0.0.1:%d", 40000+n%20000), Upstream: "127.0.0.1:80", Status: 200, ContentType: "text/html", Flags: []string{FlagReused},
			Timing: Timing{Started: time.Now()},
		})
		r.Body(Response).Wait(b.Context())
		r.End(Done, "")
	}
	waitDurable(b, s)
	for name, scan := range map[string]func(see func()) error{
		"rows": func(see func()) error { return s.Scan(0, 1<<62, func(*Row) bool { see(); return true }) },
		"ids": func(see func()) error {
			return s.Find(0, 1<<62, false, nil, func(ids []uint64, _, _ uint64) bool {
				for range ids {
					see()
				}
				return true
			})
		},
		"URLs": func(see func()) error {
			return s.Find(0, 1<<62, false, func(int, string, string, []byte) bool { see(); return false }, func([]uint64, uint64, uint64) bool { return true })
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := scan(func() { n++ }); err != nil || n != sessions {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/sessions, "ns/row")
		})
	}
}

// captureSteadily records sessions with a response of 10 KB at a rate, until stop, and returns how long each took from its end to the index, and how many
// there were.
func captureSteadily(s *Store, perSecond int, stop <-chan struct{}) (waits []time.Duration, count int) {
	type ended struct {
		id uint64
		at time.Time
	}
	var open []ended
	body := noise(7, 10_000)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for {
		select {
		case <-stop:
			return waits, count
		case <-tick.C:
		}
		for ; count < int(time.Since(begun).Seconds()*float64(perSecond)); count++ {
			copy(body, fmt.Sprint(count, " is not the same"))
			r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/steady?", count), Timing: Timing{Started: time.Now()}})
			r.Body(Response).Write(body)
			r.Body(Response).Complete()
			r.End(Done, "")
			open = append(open, ended{r.ID(), time.Now()})
		}
		for len(open) > 0 && s.live.get(open[0].id) == nil {
			waits = append(waits, time.Since(open[0].at))
			open = open[1:]
		}
	}
}

func reportWaits(b *testing.B, waits []time.Duration) {
	slices.Sort(waits)
	for _, at := range []struct {
		of   float64
		name string
	}{{0.5, "p50-ms"}, {0.99, "p99-ms"}, {1, "max-ms"}} {
		if len(waits) > 0 {
			b.ReportMetric(float64(waits[int(at.of*float64(len(waits)-1))].Microseconds())/1000, at.name)
		}
	}
}

// BenchmarkRetention records 1,000 sessions a second for 30 s, with a limit that keeps some 10 s of them and without, and tells how long after its end a session is in
// the index.
func BenchmarkRetention(b *testing.B) {
	for _, limit := range []uint64{0, 128 << 20} {
		b.Run(fmt.Sprintf("limit of %d MiB", limit>>20), func(b *testing.B) {
			s := openTest(b, b.TempDir())
			s.Retain(Limits{Bytes: limit})
			most := uint64(0)
			stop := make(chan struct{})
			go func() {
				for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					if use, err := s.use(); err == nil {
						most = max(most, use.sessions())
					}
				}
				close(stop)
			}()
			waits, count := captureSteadily(s, 1000, stop)
			b.ReportMetric(float64(count)/30, "sessions/s")
			b.ReportMetric(float64(most)/(1<<20), "most-MiB")
			reportWaits(b, waits)
		})
	}
}

// BenchmarkDeleteMany deletes 100,000 sessions while 1,000 a second are recorded, in commits of several sizes.
func BenchmarkDeleteMany(b *testing.B) {
	for _, step := range []int{250, 500, 1000, 2000} {
		b.Run(fmt.Sprint("step ", step), func(b *testing.B) {
			s := openTest(b, b.TempDir())
			for n := range 100_000 {
				r := s.Begin(Session{Method: "GET", Host: "example.com", Path: fmt.Sprint("/many?", n), Timing: Timing{Started: time.Now()}})
				r.Body(Response).Write(fmt.Append(nil, "one of many: ", n))
				r.Body(Response).Wait(b.Context())
				r.End(Done, "")
			}
			waitDurable(b, s)
			last := s.live.newest()
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				begin := time.Now()
				var longest time.Duration
				for from := uint64(1); from <= last; from += uint64(step) {
					ids := make([]uint64, 0, step)
					for id := from; id < from+uint64(step) && id <= last; id++ {
						ids = append(ids, id)
					}
					at := time.Now()
					if _, err := s.deleteSome(b.Context(), ids, nil); err != nil {
						b.Error(err)
					}
					longest = max(longest, time.Since(at))
				}
				b.ReportMetric(100_000/time.Since(begin).Seconds(), "deleted/s")
				b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
			}()
			waits, _ := captureSteadily(s, 1000, stop)
			reportWaits(b, waits)
		})
	}
}
