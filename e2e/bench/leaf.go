package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"millpond/e2e/harness"
)

// How many names get a leaf: as many as TestManyHosts has, or a few where it is only to be seen that it runs.
const (
	leafNames  = 10_000
	smokeNames = 100
)

var leafFigures = regexp.MustCompile(`(?m)^BenchmarkLeaf\S*\s.*\s([\d.]+) median-ms\s.*\s([\d.]+) p99-ms`)

// measureLeaves has a Go benchmark issue leaves, which only the proxy's own package can, and returns what docs/benchmarks.md says of them.
// It needs the source, in the working directory.
func measureLeaves(ctx context.Context, names int) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "./proxy", "-run=^$", "-bench=^BenchmarkLeaf$", fmt.Sprintf("-benchtime=%dx", names)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("measure leaves: %w: %s", err, out)
	}
	found := leafFigures.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("measure leaves: no figures in %s", out)
	}
	var median, p99 float64
	for i, to := range []*float64{&median, &p99} {
		if *to, err = strconv.ParseFloat(string(found[i+1]), 64); err != nil {
			return "", fmt.Errorf("measure leaves: %w", err)
		}
	}
	return fmt.Sprintf("%s. %s names.\n\n| promise | target | measured | 99th percentile | |\n|---|---:|---:|---:|---|\n"+
		"| a leaf for a new name, median | < 1 ms | %.2f ms | %.1f ms | %s |\n", harness.Machine(ctx), grouped(float64(names)), median, p99, verdict(median < 1)), nil
}
