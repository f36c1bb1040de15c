package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkRelay10KB sends requests on one connection after the other, with capture. Client and origin are in the same process and do as little as they can.
func BenchmarkRelay10KB(b *testing.B) {
	const size = 10 << 10
	h := startHarness(b, Config{})
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nServer: x\r\nContent-Length: %d\r\n\r\n", size)
	whole := []byte(answer + pattern(size))
	var count atomic.Int64
	l := listenLocal(b)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				mine := append([]byte{}, whole...)
				for {
					if _, err := readHead(r, 1<<20); err != nil {
						return
					}
					// No two bodies are the same.
					copy(mine[len(answer):], fmt.Sprintf("%020d", count.Add(1)))
					if _, err := c.Write(mine); err != nil {
						return
					}
				}
			}()
		}
	}()
	request := []byte(fmt.Sprintf("GET http://%[1]s/some/path?with=query HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,application/xhtml+xml\r\n"+
		"Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.5\r\nCookie: a=b; c=d\r\n\r\n", l.Addr()))
	b.SetBytes(size)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReaderSize(c, 32<<10)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			if _, err := r.Discard(len(whole)); err != nil {
				b.Error(err, io.ErrUnexpectedEOF)
				return
			}
		}
	})
}

// BenchmarkLargeBodyTLS downloads 64 MiB over HTTPS, with capture.
func BenchmarkLargeBodyTLS(b *testing.B) {
	const size = 64 << 20
	body := []byte(pattern(1 << 20))
	_, origin, client := overTLS(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for i := range size >> 20 {
			copy(body, strconv.Itoa(i)) // chunks that differ
			w.Write(body)
		}
	})
	b.SetBytes(size)
	for b.Loop() {
		res, err := client.Get(origin)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); n != size {
			b.Fatal(n, err)
		}
		res.Body.Close()
	}
}

// BenchmarkLeaf issues a leaf for one new name after the other, and reports the median and the 99th percentile. `npm run bench` writes them down.
func BenchmarkLeaf(b *testing.B) {
	ca := mustLoadCA(b, b.TempDir())
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		if _, err := ca.current().leaves.get(fmt.Sprintf("host-%d.example.com", n)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "median-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
}
