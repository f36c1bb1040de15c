package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millpond/e2e/harness"
)

// load is one task for a load client.
type load struct {
	target
	time        time.Duration // how long requests and latency last
	connections int           // of requests; at most so many of latency
	rate        int           // requests a second, of latency
	first       uint64        // number of the first small body
	seed        uint64        // of the large body
	size        int64
}

// result is what a load client found. Times are in milliseconds.
type result struct {
	Exchanges uint64  `json:"exchanges"`  // all that were begun, with those that warmed connections up
	PerSecond float64 `json:"per_second"` // requests or bytes
	Median    float64 `json:"median"`
	P99       float64 `json:"p99"`
	Small     float64 `json:"small"` // the median for a small body, beside a large one
	Bytes     int64   `json:"bytes"` // of bodies

	CPU time.Duration `json:"-"` // what the proxy used meanwhile; 0 where that is not known
}

// tasks are the loads by name.
var tasks = map[string]func(*load, context.Context) (result, error){
	"large":    (*load).large,
	"requests": (*load).requests,
	"latency":  (*load).latency,
	"first":    (*load).firstByte,
}

// runLoad is the load client: it does one task and writes its result as JSON.
func runLoad(ctx context.Context, args []string, out io.Writer) error {
	var l load
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	protocol := flags.String("protocol", "http", "")
	flags.StringVar(&l.origin, "origin", "", "host:port")
	flags.StringVar(&l.proxy, "proxy", "", "host:port")
	ca := flags.String("ca", "", "certificates to trust")
	task := flags.String("task", "", "large, requests, latency or first")
	flags.DurationVar(&l.time, "time", defaultTime, "")
	flags.IntVar(&l.connections, "connections", 16, "")
	flags.IntVar(&l.rate, "rate", 500, "requests a second")
	flags.Uint64Var(&l.first, "first", 0, "number of the first small body")
	flags.Uint64Var(&l.seed, "seed", 1, "of the large body")
	flags.Int64Var(&l.size, "size", 1<<30, "of the large body")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l.protocol = harness.Protocol(*protocol)
	var err error
	if l.roots, err = harness.ReadPool(*ca); err != nil {
		return err
	}
	do := tasks[*task]
	if do == nil {
		return fmt.Errorf("no task %q", *task)
	}
	found, err := do(&l, ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", *task, err)
	}
	return json.NewEncoder(out).Encode(found)
}

// large takes the large body once.
func (l *load) large(ctx context.Context) (result, error) {
	body := harness.NewBody(l.seed, l.size)
	want := body.SHA256()
	c, err := l.dial(ctx)
	if err != nil {
		return result{}, err
	}
	defer c.close()
	began := time.Now()
	res, err := c.get(ctx, harness.BodyPath("large", body, harness.Fixed))
	if err != nil {
		return result{}, err
	}
	defer res.Body.Close()
	got, n, err := harness.Digest(res.Body)
	took := time.Since(began)
	if err != nil {
		return result{}, fmt.Errorf("after %d bytes: %w", n, err)
	}
	if got != want {
		return result{}, fmt.Errorf("%d bytes of another content", n)
	}
	return result{Exchanges: 1, Bytes: n, PerSecond: float64(n) / took.Seconds()}, nil
}

// requests sends small requests on each connection, one after the other, for the time.
func (l *load) requests(ctx context.Context) (result, error) {
	clients, err := l.clients(ctx, l.connections)
	if err != nil {
		return result{}, err
	}
	number, done := new(atomic.Uint64), new(atomic.Uint64)
	number.Store(l.first)
	errs := make(chan error, len(clients))
	began := time.Now()
	for _, c := range clients {
		go func() {
			defer c.close()
			buffer := make([]byte, smallSize+1)
			for time.Since(began) < l.time {
				if err := getSmall(ctx, c, number.Add(1), buffer); err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
			errs <- nil
		}()
	}
	for range clients {
		err = errors.Join(err, <-errs)
	}
	took := time.Since(began)
	return result{
		Exchanges: done.Load() + uint64(len(clients)),
		PerSecond: float64(done.Load()) / took.Seconds(),
	}, err
}

// latency sends requests at a fixed rate, whether or not earlier ones were answered (an open loop),
// and measures from the moment each was due to its last byte: a wait for a free connection counts.
func (l *load) latency(ctx context.Context) (result, error) {
	clients, err := l.clients(ctx, l.connections)
	if err != nil {
		return result{}, err
	}
	free := make(chan client, len(clients))
	for _, c := range clients {
		free <- c
		defer c.close()
	}
	total := int(l.time.Seconds() * float64(l.rate))
	took := make([]time.Duration, total)
	failed := make([]error, total)
	var wait sync.WaitGroup
	began := time.Now()
	for i := range total {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(l.rate))))
		due := time.Now() // not the planned moment: how late a timer fires is the client's, not the proxy's
		wait.Go(func() {
			c := <-free
			failed[i] = getSmall(ctx, c, l.first+uint64(i), make([]byte, smallSize+1))
			took[i] = time.Since(due)
			free <- c
		})
	}
	wait.Wait()
	return result{
		Exchanges: uint64(total + len(clients)),
		PerSecond: float64(total) / time.Since(began).Seconds(),
		Median:    quantile(took, 0.5),
		P99:       quantile(took, 0.99),
	}, errors.Join(failed...)
}

// firstByte measures from a request to the first byte of its answer's body, for a large body and for a small one,
// on connections that served before.
func (l *load) firstByte(ctx context.Context) (result, error) {
	const rounds = 25
	var large, small []time.Duration
	for i := range uint64(rounds) {
		if err := l.oneFirstByte(ctx, i, &large, &small); err != nil {
			return result{}, err
		}
	}
	return result{
		Exchanges: 3 * rounds,
		Median:    quantile(large, 0.5),
		P99:       quantile(large, 0.99),
		Small:     quantile(small, 0.5),
	}, nil
}

func (l *load) oneFirstByte(ctx context.Context, round uint64, large, small *[]time.Duration) error {
	c, err := l.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // gives up the rest of the large body
	number := l.first + 2*round
	if err := getSmall(ctx, c, number, make([]byte, smallSize+1)); err != nil {
		return err
	}
	took, rest, err := timeFirstByte(ctx, c, smallPath(number+1))
	if err != nil {
		return err
	}
	*small = append(*small, took)
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return err
	}
	took, _, err = timeFirstByte(ctx, c, harness.BodyPath("first", harness.NewBody(l.seed+round, l.size), harness.Fixed))
	*large = append(*large, took)
	return err
}

func timeFirstByte(ctx context.Context, c client, path string) (time.Duration, io.Reader, error) {
	began := time.Now()
	res, err := c.get(ctx, path)
	if err != nil {
		return 0, nil, err
	}
	_, err = io.ReadFull(res.Body, make([]byte, 1))
	return time.Since(began), res.Body, err
}

func (l *load) clients(ctx context.Context, n int) ([]client, error) {
	clients := make([]client, n)
	for i := range clients {
		c, err := l.dial(ctx)
		if err != nil {
			return nil, err
		}
		// Handshakes and first dials are not what is measured.
		if err := getSmall(ctx, c, l.first, make([]byte, smallSize+1)); err != nil {
			return nil, err
		}
		clients[i] = c
	}
	return clients, nil
}

// getSmall takes the small body with the number and checks it. The buffer has room for one byte more than it.
func getSmall(ctx context.Context, c client, number uint64, buffer []byte) error {
	res, err := c.get(ctx, smallPath(number))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.ReadFull(res.Body, buffer)
	if err != io.ErrUnexpectedEOF {
		return fmt.Errorf("small body %d: more than %d bytes, or %w", number, n, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("small body %d: %s", number, res.Status)
	}
	return checkSmall(buffer[:n], number)
}

// quantile returns the q-th of the times, in milliseconds.
func quantile(took []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1_000
}
