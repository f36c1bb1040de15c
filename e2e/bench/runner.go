package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millpond/e2e/harness"
)

// How much is measured, and how long anything may take.
const (
	defaultTime = 10 * time.Second
	smokeTime   = 300 * time.Millisecond
	smokeSize   = 8 << 20
	taskTime    = 3 * time.Minute  // for one load; a proxy that needs longer has failed it
	keepTime    = 5 * time.Second  // for the last exchange to be counted as kept
	stopTime    = 20 * time.Second // for a process to become ready, or to end
)

// runner measures each subject with each protocol.
type runner struct {
	millpond  string
	dir       string
	only      string
	protocols string
	time      time.Duration
	size      int64
	strict    bool
	profile   string // where to put profiles of Millpond; empty for none

	origin *process
}

// subject is something to measure.
type subject struct {
	name      string
	shown     string
	protocols []harness.Protocol
	// start runs it, keeping its files in dir. Nil: nothing stands between client and origin.
	start func(r *runner, ctx context.Context, dir string) (*process, error)
	// kept returns how many exchanges it has kept. Nil: it keeps none.
	kept func(p *process) (uint64, error)
}

var subjects = []subject{
	{name: "direct", shown: "no proxy", protocols: harness.Protocols},
	{name: "martian", shown: "bare Martian 3.3.3, no capture", protocols: []harness.Protocol{harness.HTTP, harness.HTTPS}, start: (*runner).startMartian},
	{name: "reverse", shown: "net/http's reverse proxy, no capture", protocols: []harness.Protocol{harness.HTTP2}, start: (*runner).startReverse},
	{name: "millpond", shown: "**Millpond, everything kept**", protocols: harness.Protocols, start: (*runner).startMillpond, kept: millpondKept},
	{name: "mitmdump", shown: "mitmdump, streaming above 1 MB", protocols: harness.Protocols, start: (*runner).startMitmdump},
}

// cell is what was measured of one subject with one protocol.
type cell struct {
	protocol harness.Protocol
	subject  string
	shown    string
	results  map[string]result // by task; without those that failed
	peak     int64             // bytes resident; 0 where it is not known
	sent     uint64
	kept     uint64
	keeps    bool
	err      error
}

// taskOrder has the large body last: what it leaves to be written to disk must not slow the others.
var taskOrder = []string{"first", "latency", "requests", "large"}

func (r *runner) run(ctx context.Context) (*report, error) {
	dir, err := os.MkdirTemp(r.dir, "millpond-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	words := []string{"ca"}
	for _, p := range harness.Protocols {
		words = append(words, string(p))
	}
	if r.origin, err = itself(ctx, words, "origin", "--dir", dir); err != nil {
		return nil, err
	}
	defer r.origin.stop()

	found := &report{runner: r, machine: harness.Machine(ctx)}
	for _, protocol := range harness.Protocols {
		for _, s := range subjects {
			if !r.wants(s, protocol) {
				continue
			}
			c := r.measure(ctx, s, protocol, filepath.Join(dir, s.name+"-"+string(protocol)))
			fmt.Fprintln(os.Stderr, c.line())
			found.cells = append(found.cells, c)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if c.err != nil && r.strict {
				return nil, fmt.Errorf("%s over %s: %w", s.name, protocol, c.err)
			}
		}
	}
	return found, nil
}

func (r *runner) wants(s subject, protocol harness.Protocol) bool {
	if s.name == "mitmdump" {
		if _, err := exec.LookPath("mitmdump"); err != nil {
			return false
		}
	}
	return slices.Contains(s.protocols, protocol) &&
		slices.Contains(strings.Split(r.protocols, ","), string(protocol)) &&
		(r.only == "" || slices.Contains(strings.Split(r.only, ","), s.name))
}

// measure runs every task against the subject, started afresh.
func (r *runner) measure(ctx context.Context, s subject, protocol harness.Protocol, dir string) cell {
	c := cell{protocol: protocol, subject: s.name, shown: s.shown, results: map[string]result{}, keeps: s.kept != nil}
	if c.err = os.Mkdir(dir, 0o700); c.err != nil {
		return c
	}
	defer os.RemoveAll(dir)
	through := &process{said: map[string]string{"ca": r.origin.said["ca"]}}
	if s.start != nil {
		if through, c.err = s.start(r, ctx, dir); c.err != nil {
			return c
		}
		defer through.stop()
	}
	// Numbers of small bodies, and so the bodies, differ between tasks.
	for i, task := range taskOrder {
		profiled := r.profileDuring(ctx, through, s.name, protocol, task)
		before := through.cpu()
		found, err := r.load(ctx, task, protocol, through, uint64(i+1)<<40)
		found.CPU = through.cpu() - before
		if err := errors.Join(err, profiled()); err != nil {
			c.err = errors.Join(c.err, err)
			continue
		}
		c.results[task] = found
		c.sent += found.Exchanges
	}
	if s.start == nil {
		return c
	}
	var err error
	if _, c.peak, err = harness.Resident(through.cmd.Process.Pid); err != nil {
		c.peak = 0 // only Linux tells
	}
	if s.kept != nil {
		c.err = errors.Join(c.err, c.count(s, through))
	}
	return c
}

// count compares what was kept with what was sent. The last of it may still be on its way to the disk.
func (c *cell) count(s subject, through *process) (err error) {
	for limit := time.Now().Add(keepTime); ; time.Sleep(50 * time.Millisecond) {
		if c.kept, err = s.kept(through); err != nil || c.kept == c.sent {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("kept %d of %d exchanges", c.kept, c.sent)
		}
	}
}

// load runs a load client to its end.
func (r *runner) load(ctx context.Context, task string, protocol harness.Protocol, through *process, first uint64, more ...string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{
		"load", "--task", task,
		"--protocol", string(protocol),
		"--origin", r.origin.said[string(protocol)],
		"--proxy", through.said["proxy"],
		"--ca", through.said["ca"],
		"--time", r.time.String(),
		"--size", fmt.Sprint(r.size),
		"--first", fmt.Sprint(first),
	}, more...)...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("%s: %w: %s", task, err, strings.TrimSpace(log.String()))
	}
	var found result
	if err := json.Unmarshal(out, &found); err != nil {
		return result{}, fmt.Errorf("%s: %w", task, err)
	}
	return found, nil
}

func (r *runner) startMartian(ctx context.Context, dir string) (*process, error) {
	return itself(ctx, []string{"proxy", "ca"}, "martian", "--dir", dir, "--upstream-ca", r.origin.said["ca"])
}

func (r *runner) startReverse(ctx context.Context, dir string) (*process, error) {
	return itself(ctx, []string{"proxy", "ca"}, "reverse", "--dir", dir, "--upstream-ca", r.origin.said["ca"])
}

// token is Millpond's dashboard token, so that what it kept can be asked for.
const token = "bench-token-bench-token-bench-token"

func (r *runner) startMillpond(ctx context.Context, dir string) (*process, error) {
	args := []string{
		"--data", dir, "--token", token,
		"--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--upstream-ca", r.origin.said["ca"],
	}
	if r.profile != "" {
		args = append(args, "--profiles")
	}
	return launch(ctx, []string{"dashboard", "proxy", "ca"}, r.millpond, args...)
}

func millpondKept(p *process) (uint64, error) {
	var list struct{ Total uint64 }
	text, err := askMillpond(context.Background(), p, "api/sessions?limit=1&count=true")
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return 0, fmt.Errorf("count what Millpond kept: %w", err)
	}
	return list.Total, nil
}

func askMillpond(ctx context.Context, p *process, path string) ([]byte, error) {
	return callMillpond(ctx, http.MethodGet, p, path, "")
}

// callMillpond calls the API, with a body of JSON where it is not empty.
func callMillpond(ctx context.Context, method string, p *process, path, body string) ([]byte, error) {
	dashboard, _, _ := strings.Cut(p.said["dashboard"], "#")
	req, err := http.NewRequestWithContext(ctx, method, dashboard+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return text, err
}

// profileDuring takes a processor profile of Millpond while it serves a task, where profiles are asked for.
// What it returns waits for the profile's end.
func (r *runner) profileDuring(ctx context.Context, p *process, name string, protocol harness.Protocol, task string) (wait func() error) {
	if r.profile == "" || name != "millpond" || (task != "requests" && task != "large") {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		seconds := max(int(r.time.Seconds()), 1)
		text, err := askMillpond(ctx, p, fmt.Sprintf("debug/pprof/profile?seconds=%d", seconds))
		if err == nil {
			err = os.WriteFile(filepath.Join(r.profile, fmt.Sprintf("%s-%s.prof", protocol, task)), text, 0o600)
		}
		done <- err
	}()
	return func() error { return <-done }
}

func (r *runner) startMitmdump(ctx context.Context, dir string) (*process, error) {
	// mitmdump does not say which port it got, so it is given one that was free just now.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	p, err := launch(ctx, nil, "mitmdump", "-q", "--listen-host", "127.0.0.1", "--listen-port", fmt.Sprint(address.Port),
		"--set", "confdir="+dir, "--set", "stream_large_bodies=1m", "--set", "ssl_verify_upstream_trusted_ca="+r.origin.said["ca"])
	if err != nil {
		return nil, err
	}
	p.said["proxy"], p.said["ca"] = address.String(), filepath.Join(dir, "mitmproxy-ca-cert.pem")
	limit := time.Now().Add(stopTime)
	for {
		conn, err := net.Dial("tcp", address.String())
		if err == nil {
			return p, conn.Close()
		}
		if time.Now().After(limit) {
			p.stop()
			return nil, fmt.Errorf("start mitmdump: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
