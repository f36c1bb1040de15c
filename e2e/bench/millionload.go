package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millpond/e2e/harness"
)

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
