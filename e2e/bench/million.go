package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"millpond/e2e/harness"
)

// million measures how Millpond is with very many sessions: a directory is filled with them once, and each run works on a copy of it.
type million struct {
	runner
	sessions int
	rate     int
	repeats  int
	fresh    bool

	dir  string // of the filled directory and the copy
	made filling
	rows []figure
}

// figure is a line of the table: what was measured while nothing else went on, with the processor time that it took, and while sessions were captured.
type figure struct {
	what, target     string
	alone, cpu, busy string
	met              string
}

func runMillion(ctx context.Context, args []string, out io.Writer) error {
	var m million
	flags := flag.NewFlagSet("million", flag.ExitOnError)
	flags.StringVar(&m.millpond, "millpond", "bin/millpond", "the Millpond to measure")
	flags.StringVar(&m.dir, "dir", filepath.Join(os.TempDir(), "millpond-million"), "where the sessions are made, and kept for the next run; it needs 3 GB for a million")
	flags.IntVar(&m.sessions, "sessions", 1_000_000, "how many sessions")
	flags.DurationVar(&m.time, "time", 2*defaultTime, "how long sessions are captured")
	flags.IntVar(&m.rate, "rate", 1_000, "sessions a second that are captured")
	flags.BoolVar(&m.fresh, "fresh", false, "make the sessions again")
	smoke := flags.Bool("smoke", false, "only see that everything runs")
	write := flags.String("write", "", "put the table into this Markdown file, between its marks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	m.repeats = 9
	if *smoke {
		m.time, m.rate, m.repeats = smokeTime, 100, 1
	}
	text, err := m.run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(out, text)
	if *write != "" {
		return harness.Insert(*write, "million", text)
	}
	return nil
}

func (m *million) run(ctx context.Context) (text string, err error) {
	base := filepath.Join(m.dir, fmt.Sprint(m.sessions))
	if m.fresh {
		if err := os.RemoveAll(base); err != nil {
			return "", err
		}
	}
	if m.made, err = fill(ctx, base, m.sessions); err != nil {
		return "", err
	}
	work := filepath.Join(m.dir, "work")
	if err := errors.Join(os.RemoveAll(work), os.CopyFS(work, os.DirFS(filepath.Join(base, "data")))); err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if m.origin, err = m.startOrigin(ctx, work+"-origin"); err != nil {
		return "", err
	}
	defer m.origin.stop()
	defer os.RemoveAll(work + "-origin")

	if err := m.sizes(work); err != nil {
		return "", err
	}
	for _, step := range []func(context.Context, string) error{m.starts, m.reads, m.commitCosts, m.capture, m.retention, m.afterKill} {
		if err := step(ctx, work); err != nil {
			return "", err
		}
	}
	return m.markdown(ctx), nil
}

func (m *million) startOrigin(ctx context.Context, dir string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	words := []string{"ca"}
	for _, p := range harness.Protocols {
		words = append(words, string(p))
	}
	return itself(ctx, words, "origin", "--dir", dir)
}

// start starts Millpond on the directory, on so many processors, 0 for all, and returns how long it took until it said that it listens.
func (m *million) start(ctx context.Context, dir string, processors int, args ...string) (*process, time.Duration, error) {
	cmd := exec.CommandContext(ctx, m.millpond, append([]string{
		"--data", dir, "--token", token, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--upstream-ca", m.origin.said["ca"],
	}, args...)...)
	if processors > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", processors))
	}
	began := time.Now()
	p, err := await(cmd, []string{"dashboard", "proxy", "ca"})
	return p, time.Since(began), err
}

// starts measures starts, from a disk whose files are in the page cache and from one where they are not.
func (m *million) starts(ctx context.Context, dir string) error {
	var warm, cold []time.Duration
	for range (m.repeats + 1) / 2 {
		p, took, err := m.start(ctx, dir, 1)
		if err != nil {
			return err
		}
		warm = append(warm, took)
		p.stop()
		if err := dropCache(dir); err != nil {
			return err
		}
		if p, took, err = m.start(ctx, dir, 1); err != nil {
			return err
		}
		cold = append(cold, took)
		p.stop()
	}
	m.time1("start until it listens, files in the page cache", "≤ 1 s", median(warm), time.Second)
	m.time1("start until it listens, files on disk", "", median(cold), 0)

	var first, second, page []time.Duration
	for range (m.repeats + 2) / 3 {
		if err := dropCache(dir); err != nil {
			return err
		}
		p, _, err := m.start(ctx, dir, 1)
		if err != nil {
			return err
		}
		for i, path := range []string{"limit=100", "limit=100&filter=" + rareText, "limit=100&filter=" + rareText} {
			took, _, err := m.ask(ctx, p, path)
			if err != nil {
				p.stop()
				return err
			}
			into := []*[]time.Duration{&page, &first, &second}[i]
			*into = append(*into, took)
		}
		p.stop()
	}
	m.time1("first page straight after a start with files on disk", "", median(page), 0)
	m.time1("filter that matches rarely, straight after that", "", median(first), 0)
	m.time1("the same filter again", "", median(second), 0)
	return nil
}

// resident notes the resident size.
func (m *million) resident(p *process, when string, busy bool) error {
	s, err := residentParts(p.cmd.Process.Pid)
	if err != nil {
		return nil // only Linux tells
	}
	f := figure{what: "resident size " + when + ", at its peak, MB", target: "< 256", met: met(s.peak < 256<<20)}
	now := figure{what: "of it at the end: own memory + pages of files, MB"}
	text, parts := grouped(float64(s.peak)/1e6), fmt.Sprintf("%.0f + %.0f", float64(s.anon)/1e6, float64(s.file)/1e6)
	if busy {
		f.busy, now.busy = text, parts
	} else {
		f.alone, now.alone = text, parts
	}
	m.add(f)
	m.add(now)
	return nil
}

// sizes notes what the directory takes.
func (m *million) sizes(dir string) error {
	index, _, err := sizeOf(filepath.Join(dir, "index.db"))
	if err != nil {
		return err
	}
	log, logBlocks, err1 := sizeOf(filepath.Join(dir, "log"))
	chunks, chunkBlocks, err2 := sizeOf(filepath.Join(dir, "chunks"))
	row, err3 := meanRow(filepath.Join(dir, "index.db"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	n := float64(m.sessions)
	m.add(figure{what: "index, bytes for each session", alone: fmt.Sprintf("%.0f", float64(index)/n)})
	m.add(figure{what: "row of the index, mean, bytes", target: "≤ 140", alone: fmt.Sprintf("%.1f", row), met: met(row <= 140)})
	m.add(figure{what: "log, bytes for each session", alone: fmt.Sprintf("%.0f", float64(log)/n)})
	m.add(figure{what: "chunks, MB", alone: grouped(float64(chunks) / 1e6)})
	m.add(figure{what: "disk taken by log and chunks, for each byte of a body", alone: fmt.Sprintf("%.3f", float64(logBlocks+chunkBlocks)/float64(m.made.Bytes))})
	return nil
}

// sizeOf adds up the bytes of the files at or below a path, and what they take of the disk where that is known.
func sizeOf(path string) (bytes, blocks int64, err error) {
	err = filepath.WalkDir(path, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
			blocks += blocksOf(info)
		}
		return err
	})
	return bytes, blocks, err
}

// meanRow is the mean size of a row of the index, which nothing else has open.
func meanRow(path string) (float64, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, fmt.Errorf("open the index: %w", err)
	}
	defer db.Close()
	bytes, n := 0, 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, rows *bbolt.Bucket) error {
			if !strings.HasPrefix(string(name), "rows") { // a number follows, the format's
				return nil
			}
			return rows.ForEach(func(_, v []byte) error {
				bytes += len(v)
				n++
				return nil
			})
		})
	})
	if err == nil && n == 0 {
		err = errors.New("the index has no rows")
	}
	return float64(bytes) / float64(n), err
}

func (m *million) add(f figure) { m.rows = append(m.rows, f) }

// time1 adds a time that was measured with nothing else going on.
func (m *million) time1(what, target string, took, limit time.Duration) {
	f := figure{what: what, target: target, alone: msText(took)}
	if limit > 0 {
		f.met = met(took <= limit)
	}
	m.add(f)
	fmt.Fprintln(os.Stderr, what, msText(took))
}

// busy adds to the figure of that name the time while sessions were captured.
func (m *million) busy(r reading, took time.Duration, ended bool) {
	i := slices.IndexFunc(m.rows, func(f figure) bool { return f.what == r.what })
	m.rows[i].busy = msText(took)
	if ended {
		m.rows[i].busy += " (capture was over)"
	}
	if r.limit > 0 && !r.ofCPU && took > r.limit {
		m.rows[i].met = met(false)
	}
	fmt.Fprintln(os.Stderr, "while capturing:", r.what, msText(took))
}

func met(is bool) string {
	if is {
		return "met"
	}
	return "**not met**"
}

func msText(d time.Duration) string {
	switch ms := d.Seconds() * 1000; {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return grouped(ms) + " ms"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

func (m *million) markdown(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s sessions with %.1f GB of bodies, made in %.0f s; paths and queries have %.0f bytes on average. Captured beside it: %d sessions a second for %s. Medians of %d, and of %d beside it.\n\n",
		harness.Machine(ctx), grouped(float64(m.sessions)), float64(m.made.Bytes)/1e9, m.made.Seconds, float64(m.made.URLBytes)/float64(m.sessions), m.rate, m.time, m.repeats, (m.repeats+2)/3)
	b.WriteString("| what | target | alone, on one processor | processor time of that | while sessions are captured | |\n|---|---:|---:|---:|---:|---|\n")
	for _, f := range m.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", f.what, f.target, f.alone, f.cpu, f.busy, f.met)
	}
	return b.String()
}
