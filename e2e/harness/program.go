package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Program is a running Millpond.
type Program struct {
	Dir       string // its data directory
	Dashboard string // http://host:port
	Token     string
	Proxy     string // host:port
	CA        string // path of its certificate authority, PEM

	cmd    *exec.Cmd
	log    *buffer
	exited chan struct{} // closed when the process has ended
	err    error         // how it ended; read after exited
}

// Binary returns the path of the program: MILLPOND_BINARY, or else what is built now, once for all tests.
func Binary() (string, error) {
	if path := os.Getenv("MILLPOND_BINARY"); path != "" {
		return path, nil
	}
	return buildOnce()
}

var buildOnce = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..")
	path := filepath.Join(root, "bin", "e2e", "millpond")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build millpond: %w\n%s", err, out)
	}
	return path, nil
})

// Start runs the program on free ports with the data directory dir (empty: a new one) and waits until it is ready.
// It is stopped at the test's end; what it logged is shown where the test failed.
func Start(t testing.TB, dir string, args ...string) *Program {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		dir = t.TempDir()
	}
	p, err := Run(binary, append([]string{"--data", dir, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	p.Dir = dir
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("millpond logged:\n%s", p.log)
		}
	})
	return p
}

// Run starts the binary and waits until it has said where it listens.
func Run(binary string, args ...string) (*Program, error) {
	p := &Program{log: &buffer{limit: 256 << 10}, exited: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stderr = p.log
	p.cmd.Env = append(os.Environ(), "MILLPOND_TOKEN=")
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	ready := make(chan error, 1)
	go func() {
		ready <- p.readLines(out)
		_, _ = io.Copy(io.Discard, out)
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	select {
	case err = <-ready:
	case <-time.After(30 * time.Second):
		err = errors.New("not ready after 30 s")
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // logs what each goroutine waits for
		select {
		case <-p.exited:
		case <-time.After(5 * time.Second):
		}
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		<-p.exited
		return nil, fmt.Errorf("start %s %s: %w\n%s", binary, strings.Join(args, " "), err, p.log)
	}
	return p, nil
}

// readLines reads the three lines that say where the program listens and where its certificate is.
func (p *Program) readLines(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for p.Dashboard == "" || p.Proxy == "" || p.CA == "" {
		if !lines.Scan() {
			return fmt.Errorf("ended before it was ready: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
		}
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "dashboard":
			u, err := url.Parse(rest)
			if err != nil {
				return fmt.Errorf("read the dashboard's address: %w", err)
			}
			p.Token = strings.TrimPrefix(u.Fragment, "token=")
			p.Dashboard = "http://" + u.Host
		case "proxy":
			p.Proxy = rest
		case "ca":
			p.CA = rest
		}
	}
	return nil
}

// Stop ends the program as a user would, with SIGTERM, and waits until it is gone. A second call does nothing.
func (p *Program) Stop() error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // logs what each goroutine waits for
		<-p.exited
		return fmt.Errorf("millpond did not stop within 30 s of SIGTERM; it logged:\n%s", p.log)
	}
	if p.err != nil {
		return fmt.Errorf("millpond ended with %w; it logged:\n%s", p.err, p.log)
	}
	return nil
}

// Kill ends the program with SIGKILL, and waits until it is gone.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Exited is closed when the process has ended.
func (p *Program) Exited() <-chan struct{} { return p.exited }

// PID is the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Log returns what the program has logged so far.
func (p *Program) Log() string { return p.log.String() }

// buffer keeps the last limit bytes written to it.
type buffer struct {
	mu    sync.Mutex
	limit int
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes.Write(p)
	if over := b.bytes.Len() - b.limit; over > 0 {
		b.bytes.Next(over)
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}
