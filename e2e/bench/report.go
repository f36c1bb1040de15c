package main

import (
	"fmt"
	"math"
	"strings"

	"millpond/e2e/harness"
)

// report is all that one run found.
type report struct {
	*runner
	machine string
	cells   []cell
}

// bare is the peer that a ratio compares with: it captures nothing.
var bare = map[harness.Protocol]string{harness.HTTP: "martian", harness.HTTPS: "martian", harness.HTTP2: "reverse"}

var titles = map[harness.Protocol]string{harness.HTTP: "HTTP/1.1", harness.HTTPS: "HTTP/1.1 over TLS", harness.HTTP2: "HTTP/2"}

func (r *report) cell(protocol harness.Protocol, subject string) *cell {
	for i := range r.cells {
		if r.cells[i].protocol == protocol && r.cells[i].subject == subject {
			return &r.cells[i]
		}
	}
	return nil
}

// markdown writes a table for each protocol, and what Millpond promises beside what it reached.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Loads of many requests: %s each. Large body: %s. In brackets: the ratio to the proxy that captures nothing.\n",
		r.machine, r.time, bytesText(r.size))
	for _, protocol := range harness.Protocols {
		if r.cell(protocol, "direct") == nil && r.cell(protocol, "millpond") == nil {
			continue
		}
		fmt.Fprintf(&b, "\n| %s | requests/s | CPU, µs each | large body, MB/s | CPU, s/GB | added latency, median ms | p99 ms | first byte, large/small body, ms | peak resident, MB |\n", titles[protocol])
		b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		for i := range r.cells {
			if r.cells[i].protocol == protocol {
				b.WriteString(r.row(&r.cells[i]))
			}
		}
	}
	if promises := r.promises(); promises != "" {
		b.WriteString("\n| promise | target | measured | |\n|---|---:|---:|---|\n" + promises)
	}
	for i := range r.cells {
		if c := &r.cells[i]; c.err != nil {
			fmt.Fprintf(&b, "\n%s over %s: %s\n", c.subject, titles[c.protocol], strings.ReplaceAll(c.err.Error(), "\n", "; "))
		}
	}
	return b.String()
}

func (r *report) row(c *cell) string {
	base := r.cell(c.protocol, bare[c.protocol])
	direct := r.cell(c.protocol, "direct")
	rate := func(task string, unit float64) string {
		found, ok := c.results[task]
		if !ok {
			return "failed"
		}
		text := grouped(found.PerSecond / unit)
		if base != nil && base.results[task].PerSecond > 0 && c.subject != "direct" && c != base {
			text += fmt.Sprintf(" (%.2f×)", found.PerSecond/base.results[task].PerSecond)
		}
		return text
	}
	var each, perGB string
	if found := c.results["requests"]; found.CPU > 0 {
		each = fmt.Sprintf("%.0f", float64(found.CPU.Microseconds())/float64(found.Exchanges))
	}
	if found := c.results["large"]; found.CPU > 0 {
		perGB = fmt.Sprintf("%.2f", found.CPU.Seconds()/float64(found.Bytes)*1e9)
	}
	latency, p99, first, peak := "failed", "failed", "failed", ""
	if found, ok := c.results["latency"]; ok {
		latency, p99 = fmt.Sprintf("%.2f", found.Median), fmt.Sprintf("%.2f", found.P99)
		if c.subject == "direct" {
			latency = "(" + latency + ")"
		} else if direct != nil {
			latency = fmt.Sprintf("%.2f", found.Median-direct.results["latency"].Median)
		}
	}
	if found, ok := c.results["first"]; ok {
		first = fmt.Sprintf("%.2f / %.2f", found.Median, found.Small)
	}
	if c.peak > 0 {
		peak = fmt.Sprintf("%.0f", float64(c.peak)/1e6)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
		c.shown, rate("requests", 1), each, rate("large", 1e6), perGB, latency, p99, first, peak)
}

// promises compares what Millpond reached with what it promises.
func (r *report) promises() string {
	var b strings.Builder
	line := func(promise, target string, measured float64, format string, met bool) {
		if math.IsNaN(measured) || math.IsInf(measured, 0) {
			return
		}
		fmt.Fprintf(&b, "| %s | %s | "+format+" | %s |\n", promise, target, measured, verdict(met))
	}
	for _, protocol := range harness.Protocols {
		ours, base, direct, mitm := r.cell(protocol, "millpond"), r.cell(protocol, bare[protocol]), r.cell(protocol, "direct"), r.cell(protocol, "mitmdump")
		if ours == nil || base == nil || direct == nil {
			continue
		}
		ratio := func(task string, to *cell) float64 { return ours.results[task].PerSecond / to.results[task].PerSecond }
		name := titles[protocol]
		large, target := ratio("large", base), 1.0
		if protocol == harness.HTTP {
			target = 0.7
		}
		line(name+": large body, to no capture", fmt.Sprintf("≥ %.2f×", target), large, "%.2f×", large >= target)
		requests := ratio("requests", base)
		line(name+": requests/s, to no capture", "≥ 1.25×", requests, "%.2f×", requests >= 1.25)
		if mitm != nil {
			requests := ratio("requests", mitm)
			line(name+": requests/s, to mitmdump", "≥ 8×", requests, "%.1f×", requests >= 8)
		}
		added := ours.results["latency"].Median - direct.results["latency"].Median
		line(name+": added latency, median", "< 0.5 ms", added, "%.2f ms", added < 0.5)
		first := ours.results["first"]
		late := (first.Median - first.Small) - (direct.results["first"].Median - direct.results["first"].Small)
		line(name+": first byte, how much later for a large body than for a small one, beyond the origin's own", "< 0.5 ms", late, "%.2f ms", late < 0.5)
		const connections, limit = 16, 64<<20 + 2*16*256<<10 // a connection to the client and one to upstream each
		line(fmt.Sprintf("%s: peak resident size, %d clients", name, connections), fmt.Sprintf("≤ %d MB", limit/1_000_000),
			float64(ours.peak)/1e6, "%.0f MB", ours.peak > 0 && ours.peak <= limit)
	}
	return b.String()
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "**not met**"
}

// line tells in one line, for whoever watches the run, what was found.
func (c *cell) line() string {
	text := fmt.Sprintf("%-6s %-9s %8.0f requests/s %6.0f MB/s %6.2f ms p99 %6.2f ms first byte %6.2f ms %5.0f MB",
		c.protocol, c.subject, c.results["requests"].PerSecond, c.results["large"].PerSecond/1e6,
		c.results["latency"].Median, c.results["latency"].P99, c.results["first"].Median, float64(c.peak)/1e6)
	if c.keeps {
		text += fmt.Sprintf(", kept %d of %d", c.kept, c.sent)
	}
	if c.err != nil {
		text += "\n       " + c.err.Error()
	}
	return text
}

func bytesText(n int64) string {
	if n >= 1<<30 && n%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// grouped writes a whole number with its thousands set apart.
func grouped(f float64) string {
	n := int64(math.Round(f))
	if n < 1_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(float64(n/1_000)), n%1_000)
}
