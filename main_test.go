package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
)

// The tests start this program as a user does: a process of its own, which is the test binary with asProgram set.
const asProgram = "MILLPOND_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MILLPOND_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, asProgram+"=1")
	return cmd
}

// output runs the program to its end.
func output(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// program is a Millpond that serves.
type program struct {
	*exec.Cmd
	said   map[string]string // by the first word of each line
	log    *bytes.Buffer     // to be read after Wait
	client *http.Client      // through the proxy
}

func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return start(t, command(append([]string{"--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}, args...)...))
}

// start starts a command that serves, and reads what it says.
func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	log := &bytes.Buffer{}
	p := startLogging(t, cmd, log)
	p.log = log
	return p
}

// startLogging is start for a program that logs to a writer.
func startLogging(t *testing.T, cmd *exec.Cmd, log io.Writer) *program {
	t.Helper()
	p := &program{Cmd: cmd, said: map[string]string{}}
	p.Stderr = log
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for p.said["ca"] == "" && lines.Scan() { // which it says last
		word, rest, _ := strings.Cut(lines.Text(), " ")
		p.said[word] = rest
	}
	if len(p.said) < 3 {
		_ = p.Wait()
		t.Fatalf("it said %v: %v", p.said, log)
	}
	proxy := &url.URL{Scheme: "http", Host: p.said["proxy"]}
	p.client = &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return proxy, nil }}}
	return p
}

// call asks the dashboard.
func (p *program) call(t *testing.T, path string, answer any) {
	t.Helper()
	base, token, _ := strings.Cut(p.said["dashboard"], "/#token=")
	req, err := http.NewRequest("GET", base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
}

func TestProgramServesAndStops(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data, "--log-format", "json")
	if token := p.said["dashboard"][strings.Index(p.said["dashboard"], "=")+1:]; len(token) < 26 {
		t.Errorf("got token %q, want a random one", token)
	}
	if pem, err := os.ReadFile(p.said["ca"]); err != nil || !bytes.HasPrefix(pem, []byte("-----BEGIN CERTIFICATE-----")) || !filepath.IsAbs(p.said["ca"]) {
		t.Errorf("ca %s: %.40s, %v", p.said["ca"], pem, err)
	}
	res, err := p.client.Get("http://millpond.internal/")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 200 || !bytes.Contains(page, []byte("/ca.crt")) {
		t.Errorf("the set-up page: got %s %s", res.Status, page)
	}

	// The dashboard, by any of its names, cannot be reached through the proxy.
	dashboard, err := url.Parse(p.said["dashboard"])
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"} {
		res, err := p.client.Get(fmt.Sprintf("http://%s:%s/healthz", host, dashboard.Port()))
		if err != nil {
			t.Errorf("the dashboard as %s: the proxy did not answer: %v", host, err)
			continue
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		// A name may also stand for an address at which nothing listens, as localhost for ::1.
		refused := res.StatusCode == http.StatusBadGateway && bytes.Contains(answer, []byte("refused"))
		if res.StatusCode != http.StatusLoopDetected && !refused {
			t.Errorf("the dashboard as %s: got %s %q through the proxy, want 508 or a refused connection", host, res.Status, answer)
		}
	}

	// A second process on the directory learns who holds it.
	for _, args := range [][]string{{"--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}, {"verify"}} {
		_, errOut, code := output(t, append([]string{"--data", data}, args...)...)
		if code != 1 || !strings.Contains(errOut, fmt.Sprint(p.Process.Pid)) || !strings.Contains(errOut, dashboard.Host) {
			t.Errorf("a second process (%v): exit %d, %s", args, code, errOut)
		}
	}
	_, errOut, code := output(t, "--data", filepath.Join(t.TempDir(), "other"), "--proxy", p.said["proxy"])
	if code != 1 || !strings.Contains(errOut, "--proxy") || !strings.Contains(errOut, "in use") {
		t.Errorf("a port in use: exit %d, %s", code, errOut)
	}

	// A download is running when the program is asked to stop.
	origin := newOrigin(t)
	download, err := p.client.Get(origin.url)
	if err != nil {
		t.Fatal(err)
	}
	defer download.Body.Close()
	if _, err := io.ReadFull(download.Body, make([]byte, origin.sent)); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.Wait(); err != nil {
		t.Errorf("stop: %v: %s", err, p.log)
	}
	if took := time.Since(start); took > stopTime+5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	for line := range strings.Lines(p.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is no JSON: %s", line)
		}
	}
	if out, errOut, code := output(t, "--data", data, "verify", "--full"); code != 0 || !strings.HasPrefix(out, "nothing is wrong; looked at 5 sessions, 1 log segment, 0 chunks, ") || !strings.HasSuffix(out, ": every byte\n") {
		t.Errorf("verify: exit %d, %s%s", code, out, errOut)
	}

	again := serve(t, "--data", data)
	var list struct {
		Sessions []struct {
			State         string
			Host          string
			ResponseBytes int `json:"response_bytes"`
		}
	}
	again.call(t, "/api/sessions?limit=1", &list)
	if len(list.Sessions) != 1 || list.Sessions[0].State != "interrupted" || list.Sessions[0].ResponseBytes != origin.sent {
		t.Errorf("what was in flight: got %+v, want interrupted with %d bytes", list.Sessions, origin.sent)
	}
}

// TestVerifyTellsOfABrokenAuthority: the proxy would refuse to start with it.
func TestVerifyTellsOfABrokenAuthority(t *testing.T) {
	data := t.TempDir()
	store, err := storage.OpenStore(storage.Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := output(t, "ca", "--data", data); code != 0 {
		t.Fatalf("ca: exit %d, %s", code, errOut)
	}
	if out, errOut, code := output(t, "verify", "--data", data); code != 0 {
		t.Errorf("verify: exit %d, %s%s", code, out, errOut)
	}
	if err := os.WriteFile(filepath.Join(data, "ca", "cert.pem"), []byte("xx"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := output(t, "verify", "--data", data); code != 1 || !strings.Contains(out, "authority") {
		t.Errorf("verify of a broken authority: exit %d, %s%s", code, out, errOut)
	}
}

// TestDamagedSettingsAreNotTheDefaults: by which sessions would be deleted, and what was to pass unread be read.
func TestDamagedSettingsAreNotTheDefaults(t *testing.T) {
	data := t.TempDir()
	store, err := storage.OpenStore(storage.Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.PutSetting("out", []byte(`{"passthrough":["bank.example"],"max_bytes":"none"}`)), store.Close()); err != nil {
		t.Fatal(err)
	}
	serve(t, "--data", data).stop(t)
	file := filepath.Join(data, "settings", "out.1")
	if err := os.Truncate(file, 20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify"}, {"verify", "--full"}, {"verify", "--repair"}, {"--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"}} {
		out, errOut, code := output(t, append(args, "--data", data)...)
		if code != 1 || !strings.Contains(out+errOut, file) || !strings.Contains(out+errOut, "remove it") {
			t.Errorf("%v: exit %d, %s%s", args, code, out, errOut)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	serve(t, "--data", data).stop(t)
}

// TestRepairByTheCommandLine loses the index, then a record: the exit code tells whether anything was lost.
func TestRepairByTheCommandLine(t *testing.T) {
	data := t.TempDir()
	store, err := storage.OpenStore(storage.Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	r := store.Begin(storage.Session{Method: "GET", Host: "example.com", Path: "/the-only-one"})
	r.End(storage.Done, "")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	repair := func(code int, said string) {
		t.Helper()
		out, errOut, got := output(t, "verify", "--repair", "--data", data)
		if got != code || !strings.Contains(out+errOut, said) {
			t.Errorf("repair: exit %d, %s%s; want exit %d and %q", got, out, errOut, code, said)
		}
		if out, errOut, got := output(t, "verify", "--full", "--data", data); got != 0 {
			t.Errorf("verify after it: exit %d, %s%s", got, out, errOut)
		}
	}
	repair(0, "nothing is wrong, and nothing was changed")
	if err := os.WriteFile(filepath.Join(data, "index.db"), []byte("xx"), 0o600); err != nil {
		t.Fatal(err)
	}
	repair(0, "all is mended, and nothing was lost")
	segment := filepath.Join(data, "log", "000001")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, bytes.Replace(b, []byte("/the-only-one"), []byte("/the-0nly-0ne"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := data
	data = filepath.Join(t.TempDir(), "without its index")
	if err := errors.Join(os.CopyFS(data, os.DirFS(whole)), os.Remove(filepath.Join(data, "index.db"))); err != nil {
		t.Fatal(err)
	}
	repair(1, "what else may be lost is not marked: deletions, pins and notes")
	data = whole
	repair(1, "1 session lost something, and is marked\n")
}

// TestDamagedFormatSaysWhatToDo, and that helps.
func TestDamagedFormatSaysWhatToDo(t *testing.T) {
	data := t.TempDir()
	serve(t, "--data", data).stop(t)
	format := filepath.Join(data, "format")
	whole, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(format, 0); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := output(t, "verify", "--repair", "--data", data); code != 1 || !strings.Contains(errOut, fmt.Sprintf("write the line %q", strings.TrimSpace(string(whole)))) {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	if err := os.WriteFile(format, bytes.TrimSpace(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := output(t, "verify", "--full", "--data", data); code != 0 {
		t.Errorf("after it: exit %d, %s%s", code, out, errOut)
	}
}

func TestCommands(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if out, _, code := output(t, "version"); code != 0 || !strings.HasPrefix(out, "millpond "+version+" go") {
		t.Errorf("version: exit %d, %s", code, out)
	}
	first, _, code := output(t, "ca", "--data", data)
	if code != 0 || !strings.HasPrefix(first, "-----BEGIN CERTIFICATE-----\n") {
		t.Errorf("ca: exit %d, %s", code, first)
	}
	if second, _, _ := output(t, "ca", "--data", data); second != first {
		t.Error("ca makes another certificate each time")
	}
	if _, errOut, code := output(t, "verify", "--data", filepath.Join(data, "none")); code != 1 || errOut == "" {
		t.Errorf("verify of nothing: exit %d, %s", code, errOut)
	}
	if _, errOut, code := output(t, "--no-such-flag"); code == 0 || !strings.Contains(errOut, "--no-such-flag") || !strings.HasSuffix(errOut, "\nsee millpond serve --help\n") || strings.Count(errOut, "\n") != 2 {
		t.Errorf("an unknown flag: exit %d, %s", code, errOut)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := output(t, "--data", filepath.Join(file, "data")); code != 1 || !strings.Contains(errOut, file) {
		t.Errorf("a directory that cannot be made: exit %d, %s", code, errOut)
	}
	if _, errOut, code := output(t, "--data", data, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--upstream-ca", file); code != 1 || !strings.Contains(errOut, "no PEM certificate") {
		t.Errorf("roots that are none: exit %d, %s", code, errOut)
	}
	if _, _, code := output(t, "healthcheck", "--dashboard", "127.0.0.1:1"); code != 1 {
		t.Errorf("healthcheck of nothing: exit %d", code)
	}
	p := serve(t, "--data", data, "--token", "given")
	if !strings.HasSuffix(p.said["dashboard"], "/#token=given") {
		t.Errorf("got %s", p.said["dashboard"])
	}
	at, _ := url.Parse(p.said["dashboard"])
	if _, errOut, code := output(t, "healthcheck", "--dashboard", at.Host); code != 0 {
		t.Errorf("healthcheck: exit %d, %s", code, errOut)
	}
}

// origin sends the beginning of a body, and then nothing until the test is over.
type origin struct {
	url  string
	sent int
}

func newOrigin(t *testing.T) *origin {
	o := &origin{sent: 100_000}
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(make([]byte, o.sent))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	o.url = server.URL
	return o
}

// A new authority is made while no Millpond runs, or by the one that does; the old one is kept, and verify minds neither.
func TestRegenerateTheAuthority(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	first, _, _ := output(t, "ca", "--data", data)
	second, errOut, code := output(t, "ca", "--regenerate", "--data", data)
	if code != 0 || second == first || !strings.HasPrefix(second, "-----BEGIN CERTIFICATE-----\n") || !strings.Contains(errOut, "replaced-") {
		t.Fatalf("ca --regenerate: exit %d, %s%s", code, second, errOut)
	}
	if again, _, _ := output(t, "ca", "--data", data); again != second {
		t.Error("the next start has another authority")
	}
	old, err := filepath.Glob(filepath.Join(data, "ca", "replaced-*", "cert.pem"))
	if err != nil || len(old) != 1 {
		t.Fatalf("the old authority is not kept: %v, %v", old, err)
	}
	if kept, err := os.ReadFile(old[0]); err != nil || string(kept) != first {
		t.Errorf("the kept certificate is %s, %v", kept, err)
	}

	p := serve(t, "--data", data, "--token", "given")
	if _, errOut, code := output(t, "ca", "--regenerate", "--data", data); code != 1 || !strings.Contains(errOut, "stop that Millpond first") {
		t.Errorf("while one runs: exit %d, %s", code, errOut)
	}
	dashboard := strings.TrimSuffix(p.said["dashboard"], "#token=given")
	call := func(method, path, body string, into any) {
		t.Helper()
		req, err := http.NewRequest(method, dashboard+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer given")
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s %s: %s, %v", method, path, res.Status, err)
		}
	}
	var status struct {
		Authority struct{ Fingerprint string }
	}
	call("GET", "api/status", "", &status)
	var made struct{ Fingerprint, Kept string }
	call("POST", "api/ca", `{"replaces":"`+status.Authority.Fingerprint+`"}`, &made)
	if made.Fingerprint == status.Authority.Fingerprint || !strings.HasPrefix(made.Kept, filepath.Join(data, "ca")) {
		t.Errorf("got %+v", made)
	}
	// The set-up page gives the new one, and what trusts the old one alone does not get through.
	check := func(trusted string) error {
		return exec.Command("curl", "-sS", "-o", os.DevNull, "--proxy", "http://"+p.said["proxy"], "--cacert", trusted, "https://check.millpond.internal/yes.svg").Run()
	}
	if err := check(p.said["ca"]); err != nil {
		t.Errorf("with the new authority: %v", err)
	}
	if err := check(old[0]); err == nil {
		t.Error("with the old authority it goes through")
	}
	now, err := exec.Command("curl", "-sS", "--noproxy", "*", "http://"+p.said["proxy"]+"/ca.pem").Output()
	if file, _ := os.ReadFile(p.said["ca"]); err != nil || string(now) != string(file) {
		t.Errorf("the page gives %s, %v", now, err)
	}
}
