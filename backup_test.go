package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millpond/storage"
)

// sessions lists what the dashboard says of every session, and the hash of each response's body.
func (p *program) sessions(t *testing.T) map[string]string {
	t.Helper()
	var list struct{ Sessions []json.RawMessage }
	p.call(t, "/api/sessions?limit=500", &list)
	all := make(map[string]string)
	for _, raw := range list.Sessions {
		var s struct {
			ID    uint64
			State string
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint(s.ID)] = s.State
		base, token, _ := strings.Cut(p.said["dashboard"], "/#token=")
		req, err := http.NewRequest("GET", fmt.Sprintf("%s/api/sessions/%d/response/body", base, s.ID), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			t.Errorf("session %d: %s, %v", s.ID, res.Status, err)
		}
		all[fmt.Sprint(s.ID)] += fmt.Sprintf(" %x", sha256.Sum256(body))
	}
	return all
}

// capture has so many sessions captured, and waits until they are durable.
func (p *program) capture(t *testing.T, n int) {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var size int
		fmt.Sscan(r.URL.Path[1:], &size)
		_, _ = w.Write(bytes.Repeat([]byte(r.URL.Path), size/len(r.URL.Path)))
	}))
	defer origin.Close()
	for i := range n {
		res, err := p.client.Get(fmt.Sprintf("%s/%d", origin.URL, []int{100, 50_001, 300_002, 5_000_003}[i%4]+10*i))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var list struct{ Sessions []struct{ Durable bool } }
		p.call(t, "/api/sessions?limit=500", &list)
		durable := 0
		for _, s := range list.Sessions {
			if s.Durable {
				durable++
			}
		}
		if durable >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d sessions are durable", durable, n)
		}
	}
}

func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("stop: %v\n%s", err, p.log)
	}
}

// millpond backup does it while a Millpond runs, and when none does; what it makes can be served, and has the same in it.
func TestBackupCommand(t *testing.T) {
	data, to := filepath.Join(t.TempDir(), "data"), t.TempDir()
	p := serve(t, "--data", data)
	p.capture(t, 12)
	want := p.sessions(t)
	if info, err := os.Stat(filepath.Join(data, "control")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control file: %v, %v", info, err)
	}
	backUp := func(name string, flags ...string) {
		t.Helper()
		dir := filepath.Join(to, name)
		out, errOut, code := output(t, append([]string{"--data", data, "backup", dir}, flags...)...)
		if code != 0 || !strings.HasPrefix(out, "backed up 12 sessions to "+dir+": ") || !strings.Contains(errOut, " to copy, ") {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errOut)
		}
		if out, errOut, code := output(t, "--data", dir, "verify", "--full"); code != 0 {
			t.Errorf("%s: verify: exit %d, %s%s", name, code, out, errOut)
		}
		_, err := os.Stat(filepath.Join(dir, "ca", "key.pem"))
		if without := strings.Contains(strings.Join(flags, " "), "--without-ca"); (err == nil) == without {
			t.Errorf("%s: the authority's key: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "control")); err == nil {
			t.Errorf("%s: it has the control file", name)
		}
		again := serve(t, "--data", dir)
		got := again.sessions(t)
		again.stop(t)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	backUp("running")
	backUp("running, copied", "--copy", "--without-ca")
	if out, errOut, code := output(t, "--data", data, "backup", filepath.Join(to, "running")); code != 1 || !strings.Contains(errOut, "is not empty") {
		t.Errorf("again: exit %d, %s%s", code, out, errOut)
	}
	if out, errOut, code := output(t, "--data", data, "backup", filepath.Join(data, "inside")); code != 1 || !strings.Contains(errOut, "inside the data directory") {
		t.Errorf("inside: exit %d, %s%s", code, out, errOut)
	}
	p.stop(t)
	if _, err := os.Lstat(filepath.Join(data, "control")); err == nil {
		t.Error("the control file is there after a clean stop")
	}
	backUp("stopped")

	// What a killed Millpond left does not mislead the command.
	p = serve(t, "--data", data)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	stale, err := os.ReadFile(filepath.Join(data, "control"))
	if err != nil {
		t.Fatal(err)
	}
	backUp("killed")
	release, err := storage.Hold(data)
	if err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := output(t, "--data", data, "backup", filepath.Join(to, "held")); code != 1 || !strings.Contains(errOut, "takes no backup now") {
		t.Errorf("held by another: exit %d, %s%s", code, out, errOut)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	p = serve(t, "--data", data)
	if fresh, err := os.ReadFile(filepath.Join(data, "control")); err != nil || bytes.Equal(fresh, stale) {
		t.Errorf("the control file of the next start: %v", err)
	}
	backUp("running after a kill")
	p.stop(t)

	if err := os.Remove(filepath.Join(data, "log", "000001")); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := output(t, "--data", data, "backup", filepath.Join(to, "damaged")); code != 1 || !strings.Contains(out, "log/000001: it is gone") || !strings.Contains(errOut, "is incomplete") {
		t.Errorf("of a damaged one: exit %d, %s%s", code, out, errOut)
	}
	if out, errOut, code := output(t, "--data", data, "backup", ""); code != 1 || !strings.Contains(errOut, "its name is empty") {
		t.Errorf("to no name: exit %d, %s%s", code, out, errOut)
	}
}

// TestCommandsWithoutData: a path that holds nothing of Millpond's is a mistake in the path, not damage. Nothing is left there.
func TestCommandsWithoutData(t *testing.T) {
	dir := t.TempDir()
	for _, data := range []string{dir, filepath.Join(dir, "none")} {
		for _, args := range [][]string{{"verify"}, {"verify", "--full"}, {"verify", "--repair"}, {"backup", filepath.Join(t.TempDir(), "to")}, {"compact"}} {
			out, errOut, code := output(t, append(args, "--data", data)...)
			if code != 1 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, data+": there is no Millpond data there") || !strings.Contains(errOut, "check the path") {
				t.Errorf("%v of %s: exit %d, %s%s", args, data, code, out, errOut)
			}
		}
		empty, err := os.ReadDir(dir)
		if err != nil || len(empty) > 0 {
			t.Errorf("left in it: %v, %v", empty, err)
		}
	}
}

// TestBackupOfDamagedDataWhileServing: what is gone is told, as of a stopped Millpond, and what there is is backed up.
func TestBackupOfDamagedDataWhileServing(t *testing.T) {
	data, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	p := serve(t, "--data", data)
	p.capture(t, 4)
	chunks, err := filepath.Glob(filepath.Join(data, "chunks", "*", "*"))
	if err != nil || len(chunks) < 2 {
		t.Fatal(chunks, err)
	}
	if err := errors.Join(os.Remove(chunks[0]), os.Truncate(chunks[1], 1000)); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--copy"}} {
		out, errOut, code := output(t, append([]string{"--data", data, "backup", to}, flags...)...)
		if code != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(errOut, "is incomplete: 2 things") ||
			!strings.Contains(out, filepath.Base(chunks[0])+": it is gone") || !strings.Contains(out, filepath.Base(chunks[1])+": 1000 bytes long, want ") {
			t.Errorf("%v: exit %d, %s%s", flags, code, out, errOut)
		}
		again := serve(t, "--data", to)
		var list struct{ Sessions []struct{ ID uint64 } }
		if again.call(t, "/api/sessions?limit=500", &list); len(list.Sessions) != 4 {
			t.Errorf("%v: it has %d sessions", flags, len(list.Sessions))
		}
		again.stop(t)
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
}

// A backup that the user interrupts leaves nothing, and the Millpond that made it goes on.
func TestBackupCommandInterrupted(t *testing.T) {
	data, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	p := serve(t, "--data", data)
	p.capture(t, 40)
	broken := 0
	for try := 0; try < 20 && broken < 2; try++ {
		cmd := command("--data", data, "backup", to, "--copy")
		errOut, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = errOut.Read(make([]byte, 1)) // it has begun
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(errOut)
		if err := cmd.Wait(); err == nil { // it was done already
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		broken++
		if !strings.Contains(string(text), "broken off") {
			t.Errorf("it says %s", text)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Lstat(to); err != nil {
				break
			}
			if _, err := os.Lstat(filepath.Join(to, "format")); err == nil { // it was done just then
				if err := os.RemoveAll(to); err != nil {
					t.Fatal(err)
				}
			}
			if time.Now().After(deadline) {
				t.Fatal("what it made stays")
			}
		}
	}
	if broken == 0 {
		t.Error("none was broken off")
	}
	p.capture(t, 4)
	p.stop(t)
	if out, errOut, code := output(t, "--data", data, "verify", "--full"); code != 0 {
		t.Errorf("verify: exit %d, %s%s", code, out, errOut)
	}
}

func TestCompactCommand(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data)
	p.capture(t, 12)
	want := p.sessions(t)
	if out, errOut, code := output(t, "--data", data, "compact"); code != 1 || !strings.Contains(errOut, "stop that Millpond first") {
		t.Errorf("while it runs: exit %d, %s%s", code, out, errOut)
	}
	p.stop(t)
	out, errOut, code := output(t, "--data", data, "compact")
	if code != 0 || !strings.HasPrefix(out, "the index had ") || !strings.Contains(errOut, " are needed on the disk") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	t.Log(errOut, out)
	if out, errOut, code := output(t, "--data", data, "verify", "--full"); code != 0 {
		t.Errorf("verify: exit %d, %s%s", code, out, errOut)
	}
	p = serve(t, "--data", data)
	if got := p.sessions(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.stop(t)
}
