package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "millpond.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// What is wrong in a settings file is told with its line and the reason, all at once.
func TestWrongConfigIsRefused(t *testing.T) {
	for text, want := range map[string][]string{
		"proxy = \n":               {":1: toml: "},
		"a = 1\na = 2\n":           {":2: toml: "},
		"\n[serve]\nproxy = 1\n":   {":2: settings stand at the top level"},
		"tls.min = \"1.0\"\n":      {":1: settings stand at the top level"},
		"passthrough = [\"a\", 3]": {":1: passthrough: want a list of texts"},
		"passthrough = 1.5":        {":1: passthrough: want a text"},
		"config = \"x\"":           {`:1: there is no setting "config"`},
		"profiles = true":          {`:1: there is no setting "profiles"`},
		"\ntoken = [\"a\"]":        {":2: token: want one value"},
		"proxy-tls = \"yes\"\nslow-disk = \"never\"\n# c\npassthrough = [\n\t\"*.example\",\n\t\"a b\",\n]\nmin-tls = [\"a=1.7\"]\nwhatever = 1\nclient-cert = \"a=/none\"\nreverse = \"a\"": {
			":1: proxy-tls: want true or false", ":2: slow-disk: must be one of wait,cut", ":6: passthrough: host pattern \"a b\": want a host",
			":8: min-tls: \"1.7\" is not a version", ":9: there is no setting \"whatever\"", ":10: client-cert: ", ":11: reverse: \"a\" is not URL=ADDR",
		},
		"reverse = [\"https://api.example=127.0.0.1:0\",\n\"https://u:secret@api.example=127.0.0.1:0\"]": {":2: reverse: the URL of an upstream takes no credentials"},
		"reverse = \"https://u:secret@api.example=127.0.0.1:0\"":                                         {":1: reverse: the URL of an upstream takes no credentials"},
		"upstream-proxy = \"ftp://u:secret@proxy\"":                                                      {":1: upstream-proxy: the scheme \"ftp\" is not one of"},
	} {
		name := writeConfig(t, text)
		_, errOut, code := output(t, "--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--config", name)
		for _, w := range want {
			if code == 0 || !strings.Contains(errOut, name+w) || strings.Contains(errOut, "secret") {
				t.Errorf("%q: %d, want %q: %s", text, code, w, errOut[max(0, len(errOut)-1000):])
			}
		}
	}
	if runtime.GOOS != "windows" {
		if _, err := readConfig("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero is too large") {
			t.Errorf("a settings file without an end: %v", err)
		}
	}
	large := writeConfig(t, strings.Repeat("# a comment\n", maxConfig/10))
	if _, err := readConfig(large); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("a settings file beyond %d bytes: %v", maxConfig, err)
	}
}

// A password in a flag or a variable is not told to whoever reads the log.
func TestPasswordsAreNotQuoted(t *testing.T) {
	for _, test := range []struct{ flag, variable, value, want string }{
		{"--upstream-proxy", "MILLPOND_UPSTREAM_PROXY", "ftp://u:secret@proxy", "upstream proxy: the scheme"},
		{"--reverse", "MILLPOND_REVERSE", "https://u:secret@api.example=127.0.0.1:0", "--reverse: the URL of an upstream takes no credentials"},
		{"--reverse", "MILLPOND_REVERSE", "https://u:s=secret@api.example", "--reverse: the URL of an upstream takes no credentials"},
	} {
		byFlag := command("--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", test.flag, test.value)
		byVariable := command("--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0")
		byVariable.Env = append(byVariable.Env, test.variable+"="+test.value)
		for _, cmd := range []*exec.Cmd{byFlag, byVariable} {
			out, err := cmd.CombinedOutput()
			if err == nil || strings.Contains(string(out), "secret") || !strings.Contains(string(out), test.want) {
				t.Errorf("%s: %v: %s", test.flag, err, out)
			}
		}
	}
}

// Flags count before variables, and those before the file.
func TestConfig(t *testing.T) {
	name := writeConfig(t, fmt.Sprintf("# what is set once\ndata = %q\nproxy = [\"127.0.0.1:0\", \"[::1]:0\"]\ndashboard = \"127.0.0.1:0\"\ntoken = \"file\"\n", t.TempDir()))
	for _, test := range []struct{ variable, flag, want string }{
		{"", "", "file"}, {"empty", "", "file"}, {"variable", "", "variable"}, {"variable", "flag", "flag"}, {"", "flag", "flag"},
	} {
		var args []string
		if test.flag != "" {
			args = append(args, "--token", test.flag)
		}
		cmd := command(args...)
		cmd.Env = append(cmd.Env, "MILLPOND_CONFIG="+name)
		switch test.variable {
		case "":
		case "empty":
			cmd.Env = append(cmd.Env, "MILLPOND_TOKEN=")
		default:
			cmd.Env = append(cmd.Env, "MILLPOND_TOKEN="+test.variable)
		}
		p := start(t, cmd)
		if _, token, _ := strings.Cut(p.said["dashboard"], "/#token="); token != test.want || !strings.HasPrefix(p.said["proxy"], "[::1]:") {
			t.Errorf("variable %q, flag %q: it said %v, want the token %q", test.variable, test.flag, p.said, test.want)
		}
		p.Process.Kill() // the next one uses its data directory
		p.Wait()
	}
}
