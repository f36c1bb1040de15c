package wire

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/e2e/harness"
)

// These tests drive clients that are not ours, each with its own idea of HTTP and TLS. Each compares the bytes at both ends, and the session.

// clientRun is one client program's run through the program, over one protocol.
type clientRun struct {
	*run
	file string // of body
	body harness.Body
}

// client makes a run for a client, whose program must be there.
func (w *world) client(t *testing.T, program string, protocol harness.Protocol) *clientRun {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(err)
	}
	b := newBody(3<<20 + 1)
	c := &clientRun{
		run:  &run{T: t, world: w, protocol: protocol, path: "/" + strings.NewReplacer(" ", "-", "/", "-").Replace(t.Name())},
		body: b, file: filepath.Join(t.TempDir(), "body"),
	}
	f, err := os.Create(c.file)
	c.must(err)
	_, err = harness.Copy(f, b.Reader())
	c.must(err)
	c.must(f.Close())
	return c
}

// exec runs the program to its end and returns what it wrote to standard output; env are NAME=value. No proxy of the environment is used.
func (c *clientRun) exec(env []string, program string, args ...string) string {
	c.Helper()
	out, err := c.tryExec(env, program, args...)
	if err != nil {
		c.Fatalf("%s: %v", program, err)
	}
	return out
}

func (c *clientRun) tryExec(env []string, program string, args ...string) (string, error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Dir(c.file)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.Logf("%s %s said: %s%s", program, strings.Join(args, " "), clip(string(out)), clip(stderr.String()))
	}
	return string(out), err
}

// down is the address of the run's body at the shared origin, up is where bodies are sent to.
func (c *clientRun) down(framing harness.Framing) string {
	return c.origin.URL(c.protocol, harness.BodyPath(c.path[1:]+"/down", c.body, framing))
}

func (c *clientRun) up() string { return c.origin.URL(c.protocol, "/put"+c.path+"/up") }

// expectDown checks the file that a client saved, and the session.
func (c *clientRun) expectDown(file, protocol string) harness.Session {
	c.Helper()
	f, err := os.Open(file)
	c.must(err)
	defer f.Close()
	if digest, n, err := harness.Digest(f); err != nil || digest != c.body.SHA256() {
		c.Errorf("the client saved %d bytes that are others, %v", n, err)
	}
	s := c.program.Await(c, c.path+"/down", harness.Ended)
	c.expectKept(s, "response", protocol)
	return s
}

// expectUp checks what the origin said it got, and the session.
func (c *clientRun) expectUp(answer, protocol string) harness.Session {
	c.Helper()
	if !strings.Contains(answer, c.body.SHA256()) {
		c.Errorf("the origin got another body: %s", answer)
	}
	s := c.program.Await(c, c.path+"/up", harness.Ended)
	c.expectKept(s, "request", protocol)
	return s
}

func (c *clientRun) expectKept(s harness.Session, side, protocol string) {
	c.Helper()
	c.expectDone(s, 200)
	if s.Protocol != protocol {
		c.Errorf("session is in %s, want %s", s.Protocol, protocol)
	}
	if digest, n := c.program.Download(c, harness.BodyURL(s.ID, side), ""); digest != c.body.SHA256() {
		c.Errorf("kept %d bytes of the %s that are others", n, side)
	}
}

// protocolNames are how the API names them.
var protocolNames = map[harness.Protocol]string{harness.HTTP: "HTTP/1.1", harness.HTTPS: "HTTP/1.1", harness.HTTP2: "HTTP/2"}
