package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"millpond/e2e/harness"
)

// process is a running program that says on standard output, in lines of a word and a value, where it listens.
type process struct {
	cmd  *exec.Cmd
	said map[string]string
	log  bytes.Buffer // standard error; read after stop
}

// launch starts the program and waits until it has said each of the words.
func launch(ctx context.Context, words []string, program string, args ...string) (*process, error) {
	return await(exec.CommandContext(ctx, program, args...), words)
}

// await starts the program, which must have a context, and waits until it has said each of the words.
func await(cmd *exec.Cmd, words []string) (*process, error) {
	p := &process{cmd: cmd, said: map[string]string{}}
	p.cmd.Stderr = &p.log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		ready <- p.listen(out, words)
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case err = <-ready:
	case <-time.After(stopTime):
		err = errors.New("it did not become ready")
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", cmd.Path, err, p.log.String())
	}
	return p, nil
}

func (p *process) listen(out io.Reader, words []string) error {
	for lines := bufio.NewScanner(out); len(p.said) < len(words); {
		if !lines.Scan() {
			return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
		}
		word, value, _ := strings.Cut(lines.Text(), " ")
		p.said[word] = value
	}
	return nil
}

// cpu returns the processor time it has used; 0 where that is not known, or where it is no process.
func (p *process) cpu() time.Duration {
	if p.cmd == nil {
		return 0
	}
	used, err := harness.CPU(p.cmd.Process.Pid)
	if err != nil {
		return 0 // only Linux tells
	}
	return used
}

// stop ends the process and waits until it is gone.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// itself starts a role of this program.
func itself(ctx context.Context, words []string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch(ctx, words, self, args...)
}
