package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
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

// reading is one thing that a dashboard asks.
type reading struct {
	what  string
	limit time.Duration // 0: none
	ofCPU bool          // the limit is of the processor time, which is what takes long there
	do    func(ctx context.Context, p *process) (time.Duration, error)
}

func (r reading) target() string {
	switch {
	case r.limit == 0:
		return ""
	case r.ofCPU:
		return "≤ " + msText(r.limit) + " of a processor"
	}
	return "≤ " + msText(r.limit)
}

func (m *million) readings() []reading {
	get := func(query func() string) func(context.Context, *process) (time.Duration, error) {
		return func(ctx context.Context, p *process) (time.Duration, error) {
			took, _, err := m.ask(ctx, p, query())
			return took, err
		}
	}
	fixed := func(query string) func() string { return func() string { return query } }
	middle := func() string { return fmt.Sprint("limit=100&before=", 1+rand.IntN(m.sessions)) }
	const rare = "that matches rarely"
	const page, filter = 100 * time.Millisecond, 500 * time.Millisecond
	return []reading{
		{"list: first page of 100", page, false, get(fixed("limit=100"))},
		{"list: page at a random place", page, false, get(middle)},
		{"live view: until the first window", page, false, m.live("", false)},
		{"live view: until the newest 50 rows and the total", 0, false, m.live("", true)},
		{"live view: window at a random place", page, false, m.liveJump},
		{"live view with a filter " + rare + ": until all is looked at", filter, true, m.live(rareText, true)},
		{"list with a filter by a frequent host", page, false, get(fixed("limit=100&filter=" + url.QueryEscape(hostName(0))))},
		{"list with a filter by a rare host", filter, true, get(fixed("limit=100&filter=" + url.QueryEscape(hostName(hosts-3))))},
		{"list with a filter by a part of the URL " + rare, filter, true, get(fixed("limit=100&filter=" + rareText))},
		{"the same, of letters that are not ASCII", filter, true, get(fixed("limit=100&filter=" + url.QueryEscape("straße")))},
		{"list with a filter by a frequent status", page, false, get(fixed("limit=100&filter=status:404"))},
		{"list with a filter by a status that none has", filter, true, get(fixed("limit=100&filter=status:599"))},
		{"count of a status", filter, true, get(fixed("limit=100&count=true&filter=status:404"))},
		{"count of what a filter matches, a tenth of all", filter, true, get(fixed("limit=100&count=true&filter=" + url.QueryEscape(partText)))},
	}
}

// ask asks the API for sessions.
func (m *million) ask(ctx context.Context, p *process, query string) (time.Duration, []byte, error) {
	began := time.Now()
	text, err := askMillpond(ctx, p, "api/sessions?"+query)
	return time.Since(began), text, err
}

func (m *million) reads(ctx context.Context, dir string) error {
	p, _, err := m.start(ctx, dir, 1)
	if err != nil {
		return err
	}
	defer p.stop()
	if _, _, err := m.ask(ctx, p, "limit=100&filter="+rareText); err != nil { // the file is read ahead
		return err
	}
	for _, r := range m.readings() {
		before := p.cpu()
		took, err := repeat(ctx, p, r, m.repeats)
		if err != nil {
			return err
		}
		cpu := (p.cpu() - before) / time.Duration(m.repeats)
		f := figure{what: r.what, target: r.target(), alone: msText(median(took)), cpu: msText(cpu)}
		switch {
		case r.ofCPU:
			f.met = met(cpu <= r.limit)
		case r.limit > 0:
			f.met = met(median(took) <= r.limit)
		}
		m.add(f)
		fmt.Fprintln(os.Stderr, r.what, f.alone, "processor", f.cpu)
	}
	return m.resident(p, "after all of these", false)
}

func repeat(ctx context.Context, p *process, r reading, times int) (took []time.Duration, err error) {
	for range times {
		one, err := r.do(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.what, err)
		}
		took = append(took, one)
	}
	return took, nil
}

// window is what a live view tells.
type window struct {
	Type     string
	Total    uint64
	From     uint64
	Scanning bool
	Rows     []json.RawMessage
}

func (m *million) dialLive(ctx context.Context, p *process) (*websocket.Conn, error) {
	dashboard, _, _ := strings.Cut(p.said["dashboard"], "#")
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(dashboard, "http", "ws", 1)+"api/live", http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return nil, fmt.Errorf("open the live connection: %w", err)
	}
	_ = res.Body.Close()
	_ = ws.SetReadDeadline(time.Now().Add(taskTime))
	return ws, nil
}

func awaitWindow(ws *websocket.Conn, is func(window) bool) error {
	for {
		var w window
		if err := ws.ReadJSON(&w); err != nil {
			return fmt.Errorf("read the live connection: %w", err)
		}
		if w.Type == "invalid" {
			return errors.New("the view was refused")
		}
		if w.Type == "window" && is(w) {
			return nil
		}
	}
}

// live opens a view of the newest 50 rows, and waits for its first window, or for the one in which all sessions were looked at.
func (m *million) live(filter string, whole bool) func(context.Context, *process) (time.Duration, error) {
	return func(ctx context.Context, p *process) (time.Duration, error) {
		ws, err := m.dialLive(ctx, p)
		if err != nil {
			return 0, err
		}
		defer ws.Close()
		began := time.Now()
		if err := ws.WriteJSON(map[string]any{"type": "view", "id": 1, "filter": filter, "count": 50, "tail": true}); err != nil {
			return 0, err
		}
		err = awaitWindow(ws, func(w window) bool { return !whole || !w.Scanning })
		return time.Since(began), err
	}
}

// liveJump moves the window of a view of everything.
func (m *million) liveJump(ctx context.Context, p *process) (took time.Duration, err error) {
	ws, err := m.dialLive(ctx, p)
	if err != nil {
		return 0, err
	}
	defer ws.Close()
	view := map[string]any{"type": "view", "id": 1, "count": 50, "tail": true}
	if err := ws.WriteJSON(view); err != nil {
		return 0, err
	}
	var total uint64
	if err := awaitWindow(ws, func(w window) bool { total = w.Total; return !w.Scanning }); err != nil {
		return 0, err
	}
	from := rand.Uint64N(max(total, 51) - 50)
	began := time.Now()
	view["from"], view["tail"] = from, false
	if err := ws.WriteJSON(view); err != nil {
		return 0, err
	}
	err = awaitWindow(ws, func(w window) bool { return w.From == from && len(w.Rows) == 50 })
	return time.Since(began), err
}

// capture measures the same while sessions are captured, what a commit costs then, and deletions.
func (m *million) capture(ctx context.Context, dir string) error {
	p, _, err := m.start(ctx, dir, 0)
	if err != nil {
		return err
	}
	defer p.stop()
	if _, _, err := m.ask(ctx, p, "limit=100&filter="+rareText); err != nil {
		return err
	}
	done := make(chan error, 1)
	var reached result
	cpu0, began := p.cpu(), time.Now()
	go func() {
		var err error
		reached, err = m.loadAt(ctx, p)
		done <- err
	}()
	time.Sleep(m.time / 10)
	var errs []error
	ended := false
	for _, r := range m.readings() {
		took, err := repeat(ctx, p, r, (m.repeats+2)/3) // fewer, so that the capture lasts for all
		if err != nil {
			errs = append(errs, err)
			continue
		}
		select {
		case err := <-done:
			errs = append(errs, err)
			ended = true
		default:
		}
		m.busy(r, median(took), ended)
	}
	if !ended {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took := time.Since(began)
	cpu1 := p.cpu()
	m.add(figure{what: "sessions captured a second, 10,000 bytes each", target: fmt.Sprintf("≥ %d", m.rate), busy: grouped(reached.PerSecond), met: met(reached.PerSecond >= 0.99*float64(m.rate))})
	m.add(figure{what: "such an exchange from the client, median and 99th percentile, ms", busy: fmt.Sprintf("%.2f, %.2f", reached.Median, reached.P99)})
	m.add(figure{what: "processors used by Millpond meanwhile", busy: fmt.Sprintf("%.2f", (cpu1-cpu0).Seconds()/took.Seconds())})
	return errors.Join(m.deleteTenth(ctx, p), m.resident(p, "after capture and the deletion", true))
}

// commitCosts measures what a commit costs while sessions are captured, with few sessions and with all.
func (m *million) commitCosts(ctx context.Context, dir string) error {
	const few = 10_000
	other := filepath.Join(m.dir, "few")
	defer os.RemoveAll(other)
	if _, err := fill(ctx, other, min(few, m.sessions)); err != nil {
		return err
	}
	for _, d := range []struct {
		dir  string
		rows int
	}{{filepath.Join(other, "data"), min(few, m.sessions)}, {dir, m.sessions}} {
		p, _, err := m.start(ctx, d.dir, 0)
		if err != nil {
			return err
		}
		text, err := m.commitCost(ctx, d.dir, p)
		p.stop()
		if err != nil {
			return err
		}
		m.add(figure{what: fmt.Sprintf("a commit with %s sessions: until a note is durable, ms; commits a second; KB written for each to the log, which has the bodies, and to the index", grouped(float64(d.rows))), busy: text})
		fmt.Fprintln(os.Stderr, "commit with", d.rows, "sessions:", text)
	}
	return nil
}

// commitCost puts notes on a session while others are captured: that waits for a commit of its own.
func (m *million) commitCost(ctx context.Context, dir string, p *process) (string, error) {
	done := make(chan error, 1)
	log0, _, err := sizeOf(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	before, io0, began := commits(dir), written(p), time.Now()
	go func() {
		_, err := m.loadAt(ctx, p)
		done <- err
	}()
	var took []time.Duration
	for {
		select {
		case err := <-done:
			if err != nil || len(took) == 0 {
				return "", err
			}
			seconds, n := time.Since(began).Seconds(), float64(max(commits(dir)-before, 1))
			log1, _, err := sizeOf(filepath.Join(dir, "log"))
			toLog := float64(log1 - log0)
			return fmt.Sprintf("%.1f; %.1f; %s + %s", median(took).Seconds()*1000, n/seconds, grouped(toLog/n/1000), grouped((float64(written(p)-io0)-toLog)/n/1000)), err
		case <-time.After(m.time / 50):
		}
		one := time.Now()
		if _, err := callMillpond(ctx, http.MethodPatch, p, "api/sessions/5", fmt.Sprintf(`{"note":"%d"}`, len(took))); err != nil {
			return "", err
		}
		took = append(took, time.Since(one))
	}
}

// loadAt runs the load client at the rate.
func (m *million) loadAt(ctx context.Context, p *process) (result, error) {
	return m.load(ctx, "latency", harness.HTTP, p, 1<<40, "--rate", fmt.Sprint(m.rate))
}

// deleteTenth deletes a tenth of the sessions, which a filter names.
func (m *million) deleteTenth(ctx context.Context, p *process) error {
	began, cpu := time.Now(), p.cpu()
	text, err := callMillpond(ctx, http.MethodDelete, p, "api/sessions?filter="+url.QueryEscape(partText), "")
	if err != nil {
		return err
	}
	took := time.Since(began)
	var gone struct{ Deleted int }
	if err := json.Unmarshal(text, &gone); err != nil {
		return err
	}
	if gone.Deleted < m.sessions/11 {
		return fmt.Errorf("deleted %d of %d sessions", gone.Deleted, m.sessions/10)
	}
	m.add(figure{what: fmt.Sprintf("deletion of %s sessions by a filter", grouped(float64(gone.Deleted))), alone: msText(took), cpu: msText(p.cpu() - cpu)})
	return nil
}

// retention measures how long a limit that is a tenth lower takes to be kept to.
func (m *million) retention(ctx context.Context, dir string) error {
	help, err := exec.CommandContext(ctx, m.millpond, "serve", "--help").Output()
	if err != nil || !strings.Contains(string(help), "--max-sessions") {
		return err // it has no such limit
	}
	p, _, err := m.start(ctx, dir, 0)
	if err != nil {
		return err
	}
	before, err := millpondKept(p)
	p.stop()
	if err != nil {
		return err
	}
	most := before - uint64(m.sessions/10)
	began := time.Now()
	if p, _, err = m.start(ctx, dir, 0, "--max-sessions", fmt.Sprint(most)); err != nil {
		return err
	}
	defer p.stop()
	for limit := began.Add(10 * taskTime); ; time.Sleep(50 * time.Millisecond) {
		now, err := millpondKept(p)
		if err != nil {
			return err
		}
		if now <= most {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d sessions were kept where %d may be", now, most)
		}
	}
	m.add(figure{what: fmt.Sprintf("start with --max-sessions, until the %s sessions beyond it are gone", grouped(float64(m.sessions/10))), alone: msText(time.Since(began)), cpu: msText(p.cpu())})
	return nil
}

// afterKill measures the start after a SIGKILL, which has the index looked through.
func (m *million) afterKill(ctx context.Context, dir string) error {
	p, _, err := m.start(ctx, dir, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(p.cmd.Process.Kill(), ignoreExit(p.cmd.Wait())); err != nil {
		return err
	}
	p, took, err := m.start(ctx, dir, 1)
	if err != nil {
		return err
	}
	defer p.stop()
	m.time1("start after a SIGKILL, with the index looked through", "", took, 0)
	return m.resident(p, "after that", false)
}

func ignoreExit(err error) error {
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil
	}
	return err
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
