package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine tells when and on what the figures were measured.
func Machine(ctx context.Context) string {
	processor := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				processor = strings.TrimSpace(value)
				break
			}
		}
	}
	commit := "unknown commit"
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		commit = "commit " + strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Measured on %s at %s: %d × %s, %s, %s",
		time.Now().UTC().Format("2 January 2006"), commit, runtime.NumCPU(), processor, runtime.GOOS, runtime.Version())
}

// Insert puts the text between the marks of a Markdown file that name it: "<!-- NAME: how it is made -->" and "<!-- end of NAME -->".
func Insert(path, name, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), "<!-- "+name+": ")
	made, rest, _ := strings.Cut(rest, "\n")
	_, after, ends := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !found || !ends {
		return fmt.Errorf("write figures into %s: it has no place for them", path)
	}
	return os.WriteFile(path, []byte(before+"<!-- "+name+": "+made+"\n\n"+text+"\n<!-- end of "+name+" -->"+after), 0o644)
}
