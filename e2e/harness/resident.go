package harness

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Resident returns a process's resident size now and at its peak, in bytes, as Linux tells them (proc(5), VmRSS and VmHWM).
func Resident(pid int) (now, peak int64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read resident size: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		var into *int64
		switch name {
		case "VmRSS":
			into = &now
		case "VmHWM":
			into = &peak
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read resident size of process %d: %w", pid, err)
		}
		*into = kib << 10
	}
	return now, peak, nil
}

// ResetPeak makes the process's peak its size of now (proc(5), clear_refs).
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset peak resident size: %w", err)
	}
	return nil
}

// SizeText writes a number of bytes for people.
func SizeText(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
