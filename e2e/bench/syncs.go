package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"millpond/e2e/harness"
)

// syncs measures what the disk's syncs cost whoever uses the proxy: the same loads while a sync takes what it takes, and 200 ms more.
// strace delays the calls; with a filter in the kernel it stops the program at no others.
type syncs struct {
	millpond string
	dir      string
	time     time.Duration
	origin   *harness.Origin
}

const (
	syncsRate   = 200      // small requests a second
	syncsSize   = 32 << 20 // of the large body
	syncsPerSec = 20 << 20 // bytes a second, which any disk takes
)

func runSyncs(ctx context.Context, args []string, out io.Writer) error {
	var s syncs
	flags := flag.NewFlagSet("syncs", flag.ExitOnError)
	flags.StringVar(&s.millpond, "millpond", "bin/millpond", "the Millpond to measure")
	flags.StringVar(&s.dir, "dir", os.TempDir(), "where it keeps what it captures")
	flags.DurationVar(&s.time, "time", 2*defaultTime, "how long each load lasts")
	write := flags.String("write", "", "put the table into this Markdown file, between its marks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := s.run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(out, text)
	if *write != "" {
		return harness.Insert(*write, "syncs", text)
	}
	return nil
}

// run measures each delay, and then the first again: what differs between the two is the machine's.
func (s *syncs) run(ctx context.Context) (text string, err error) {
	if s.origin, err = harness.NewOrigin(); err != nil {
		return "", err
	}
	defer s.origin.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %d requests a second for %v, 10,000 bytes each; and bodies of %s at %d MB/s, one after the other, which take %.1f s from an origin that is alone.\n\n",
		harness.Machine(ctx), syncsRate, s.time, bytesText(syncsSize), syncsPerSec>>20, float64(syncsSize)/syncsPerSec)
	b.WriteString("| a sync takes | small request, median ms | p99 ms | most ms | large body, s | longest pause in it, ms | syncs |\n|---|---:|---:|---:|---:|---:|---:|\n")
	var first *syncsFound
	for i, delay := range []time.Duration{0, 200 * time.Millisecond, 0} {
		found, err := s.measure(ctx, delay)
		if err != nil {
			return "", fmt.Errorf("with syncs of %v: %w", delay, err)
		}
		name := fmt.Sprintf("%v more", delay)
		switch {
		case i == 0:
			name, first = "what it takes", found
		case delay == 0:
			name = "what it takes, again"
		}
		ratio := func(x, to float64, format string) string {
			return fmt.Sprintf(format+" (%.2f×)", x, x/to)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %s | %.0f | %d |\n", name, ratio(found.median, first.median, "%.2f"), ratio(found.p99, first.p99, "%.1f"), found.most,
			ratio(found.large, first.large, "%.2f"), found.pause, found.syncs)
	}
	return b.String(), nil
}

// syncsFound are times in milliseconds; large in seconds.
type syncsFound struct {
	median, p99, most, large, pause float64
	syncs                           int
}

func (s *syncs) measure(ctx context.Context, delay time.Duration) (*syncsFound, error) {
	dir, err := os.MkdirTemp(s.dir, "millpond-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ca, err := s.origin.Authority.WriteFile(dir)
	if err != nil {
		return nil, err
	}
	calls := filepath.Join(dir, "calls")
	args := []string{"-D", "-f", "--seccomp-bpf", "-qq", "-o", calls, "-e", "trace=fdatasync,fsync"}
	if delay > 0 {
		args = append(args, "-e", fmt.Sprintf("inject=fdatasync,fsync:delay_exit=%d", delay.Microseconds()))
	}
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, err
	}
	args = append(args, s.millpond, "--data", filepath.Join(dir, "data"), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--upstream-ca", ca)
	p, err := harness.Run("strace", args...)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	roots, err := harness.ReadPool(p.CA)
	if err != nil {
		return nil, err
	}
	client := harness.NewClient(harness.HTTP, p.Proxy, roots)
	defer client.CloseIdleConnections()

	var found syncsFound
	var wg sync.WaitGroup
	var large, pauses []float64
	var failed error
	began := time.Now()
	wg.Go(func() {
		for n := uint64(1); failed == nil && time.Since(began) < s.time; n++ {
			body := harness.NewBody(1<<40+n, syncsSize)
			pace := fmt.Sprintf("&pace=%d,%v", 64<<10, time.Second*(64<<10)/syncsPerSec)
			took, pause, err := s.get(client, harness.BodyPath(fmt.Sprintf("large-%d", n), body, harness.Fixed)+pace, body)
			if err != nil {
				failed = err
			}
			large, pauses = append(large, took.Seconds()), append(pauses, float64(pause)/1e6)
		}
	})
	small := make([]float64, int(s.time.Seconds()*syncsRate))
	failures := make([]error, len(small))
	for i := range small {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / syncsRate)))
		due := time.Now()
		wg.Go(func() {
			body := harness.NewBody(uint64(i)+1, smallSize)
			_, _, failures[i] = s.get(client, harness.BodyPath(fmt.Sprintf("small-%d", i), body, harness.Fixed), body)
			small[i] = float64(time.Since(due)) / 1e6
		})
	}
	wg.Wait()
	for _, err := range append(failures, failed) {
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(small)
	slices.Sort(large)
	found.median, found.p99, found.most = small[len(small)/2], small[len(small)*99/100], small[len(small)-1]
	found.large, found.pause = large[len(large)/2], slices.Max(pauses)
	p.Kill()
	text, err := os.ReadFile(calls)
	found.syncs = strings.Count(string(text), "sync(")
	return &found, err
}

// get gets a body, and returns how long that took and the longest time between two reads of it.
func (s *syncs) get(client *http.Client, path string, want harness.Body) (took, pause time.Duration, err error) {
	began := time.Now()
	res, err := client.Get(s.origin.URL(harness.HTTP, path))
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	r := &pausing{Reader: res.Body, last: time.Now()}
	digest, n, err := harness.Digest(r)
	if err == nil && digest != want.SHA256() {
		err = fmt.Errorf("got %d bytes that are not %v", n, want)
	}
	return time.Since(began), r.longest, err
}

// pausing notes the longest time between the ends of two reads.
type pausing struct {
	io.Reader
	last    time.Time
	longest time.Duration
}

func (r *pausing) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	now := time.Now()
	r.longest, r.last = max(r.longest, now.Sub(r.last)), now
	return n, err
}
