package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"millpond/proxy"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "millpond.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// wrongValues are values of each setting that are refused, as the file and as a flag or a variable says them, and why.
func wrongValues(t *testing.T) map[string][]wrongValue {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text := file("text", []byte("no PEM"))
	var certs, keys [2]string
	for i := range certs {
		made := filepath.Join(dir, fmt.Sprint("ca", i))
		if _, err := proxy.LoadCA(made); err != nil {
			t.Fatal(err)
		}
		certs[i], keys[i] = filepath.Join(made, "cert.pem"), filepath.Join(made, "key.pem")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	hosts := []wrongValue{
		{"[", "brackets stand around an IPv6 address"},
		{"a b", "want a host (api.example)"},
		{"https://a.example", "want a host name, not a URL"},
		{"a.example:65536", `"65536" is not a port`},
		{":80", "a port and no host"},
		{"192.0.2.0/33", "want a host (api.example)"},
		{"a*", "want a host (api.example)"},
	}
	listener := []wrongValue{
		{"foo", "want HOST:PORT"},
		{"127.0.0.1", "want HOST:PORT"},
		{"127.0.0.1:", "want HOST:PORT"},
		{"::1:80", "want HOST:PORT"},
		{"127.0.0.1:65536", "0 to 65535"},
		{"127.0.0.1:-1", "0 to 65535"},
		{"127.0.0.1:nothing", "0 to 65535"},
		{"a b:80", "neither an address nor a name"},
		{taken.Addr().String(), "in use"},
	}
	const secret = "want USER:PASSWORD"
	return map[string][]wrongValue{
		"data":                 {{text, "is not a directory"}, {text + "/below", "not a directory"}},
		"proxy":                append(listener, wrongValue{"0.0.0.0:0", "--proxy-auth USER:PASSWORD"}),
		"proxy-auth":           {{"secret", secret}, {":secret", secret}, {"secret:", secret}, {"a:" + strings.Repeat("secret", 50), "longer than 255"}},
		"allow-open-proxy":     nil, // a switch: see below
		"allow-public-clients": nil,
		"proxy-tls":            nil,
		"reverse": {
			{"a", "is not URL=ADDR"},
			{"ftp://a=127.0.0.1:0", "another scheme"},
			{"http://a.example/x=127.0.0.1:0", "more than scheme, host and port"},
			{"http://a.example=foo", "want HOST:PORT"},
			{"http://a.example=127.0.0.1:65536", "0 to 65535"},
			{"http://a.example:65536=127.0.0.1:0", "port"},
			{"http://=127.0.0.1:0", "not name a host"},
			{"http://a:secret@a.example=127.0.0.1:0", "takes no credentials"},
			{"http://a.example=" + taken.Addr().String(), "in use"},
		},
		"upstream-proxy": {{"ftp://u:secret@a", "the scheme \"ftp\""}, {"http://", "names no host"}, {"http://a:65536", "is not a port"}, {"http://a/x", "more than scheme"}},
		"max-bytes":      {{"much", "is not a size"}, {"-1GiB", "is not a size"}, {"1e30", "is not a size"}, {"20GiBs", "is not a size"}, {"1MiB", "too little"}, {"0", "write none for no limit"}, {"9999PiB", "more than a disk"}},
		"max-age":        {{"old", "is not a time"}, {"7", "is not a time"}, {"-7d", "is not a time"}, {"1s", "between a minute"}, {"0", "write none for no limit"}, {"0s", "write none for no limit"}, {"60000w", "between a minute"}},
		"max-sessions":   {{"many", "is not a number"}, {"0", "write none for no limit"}, {"00", "write none for no limit"}, {"-1", "is not a number"}, {"1.5", "is not a number"}, {"99999999999999999999", "is not a number"}},
		"no-proxy":       hosts,
		"passthrough":    hosts,
		"insecure-host":  hosts,
		"client-cert": {
			{"a", "is not HOST=FILE"},
			{"a=/none/at/all", "no such file"},
			{"a=" + text, "want a certificate and its private key"},
			{"a=" + certs[0], "private key"},
			{"a=" + certs[0] + "+" + keys[1], "private key does not match"},
			{"a b=" + certs[0] + "+" + keys[0], "want a host"},
			{"a=" + dir, "is a directory"},
		},
		"min-tls":           {{"a=1.7", "want 1.0, 1.1, 1.2 or 1.3"}, {"a", "is not HOST=VERSION"}, {"a b=1.0", "want a host"}},
		"dashboard":         listener,
		"token":             {{"a b", "letters, digits"}, {"a+b", "letters, digits"}, {"a#b", "letters, digits"}, {"ä", "letters, digits"}},
		"allow-host":        {{"a/b", "want NAME or NAME:PORT"}, {"*.example", "want NAME or NAME:PORT"}, {"http://a", "want NAME or NAME:PORT"}, {"a:65536", "want NAME or NAME:PORT"}, {"192.0.2.0/24", "want NAME or NAME:PORT"}},
		"insecure-upstream": nil,
		"upstream-ca":       {{text, "holds no PEM certificate"}, {"/none/at/all", "no such file"}, {dir, "is a directory"}},
		"slow-disk":         {{"never", `"never" is not one of wait, cut`}},
		"log-format":        {{"xml", `"xml" is not one of text, json`}},
	}
}

type wrongValue struct{ value, why string }

// rightValue is a value of each list, in TOML.
var rightValue = map[string]string{
	"proxy": `"127.0.0.1:0"`, "reverse": `"http://a.example=127.0.0.1:0"`, "no-proxy": `"a.example"`, "passthrough": `"a.example"`, "insecure-host": `"a.example"`,
	"client-cert": `"a=/none"`, "min-tls": `"a=1.0"`, "allow-host": `"pond.example:8443"`,
}

// bounded is command for a program that is to refuse to start: what starts all the same is ended.
func bounded(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	plain := command(args...)
	cmd := exec.CommandContext(ctx, plain.Path, plain.Args[1:]...)
	cmd.Env = plain.Env
	return cmd
}

// Each setting that is wrong is refused, wherever it stands: with the file and the line, the flag, or the variable, and the reason. A setting without a row here is a
// mistake in this test.
func TestWrongConfigIsRefused(t *testing.T) {
	rows := wrongValues(t)
	parser, err := kong.New(&commandLine{}, kong.Vars{"data": "x"})
	if err != nil {
		t.Fatal(err)
	}
	var serve *kong.Node
	for _, node := range parser.Model.Children {
		if node.Name == "serve" {
			serve = node
		}
	}
	for _, flags := range serve.AllFlags(false) {
		for _, flag := range flags {
			if slices.Contains(notInConfig, flag.Name) || flag.Hidden {
				continue
			}
			row, ok := rows[flag.Name]
			if flag.IsBool() {
				row = []wrongValue{{"maybe", ""}}
			}
			if !ok || len(row) == 0 {
				t.Errorf("no row for the setting %s", flag.Name)
			}
			if len(flag.Envs) != 1 {
				t.Errorf("%s has the variables %q, want one", flag.Name, flag.Envs)
				continue
			}
			if !flag.IsBool() {
				why := "it is empty"
				switch {
				case flag.Tag.Type == "path": // relative to where it was started
					why = "is a directory"
				case flag.Name == "client-cert", flag.Name == "min-tls":
					why = `"" is not HOST=`
				}
				row = append(row, wrongValue{"", why})
			}
			if testing.Short() {
				row = row[:min(1, len(row))] // each is several processes
			}
			for i, wrong := range row {
				t.Run(fmt.Sprintf("%s %d", flag.Name, i), func(t *testing.T) {
					refused := func(cmd *exec.Cmd, at, why string) {
						t.Helper()
						out, err := cmd.CombinedOutput()
						if err == nil || !strings.Contains(string(out), at) || !strings.Contains(string(out), why) || strings.Contains(string(out), "secret") {
							t.Errorf("%v: %.2000s\nwant %q and %q", err, out, at, why)
						}
					}
					program := func(args ...string) *exec.Cmd {
						for name, value := range map[string]string{"data": t.TempDir(), "proxy": "127.0.0.1:0", "dashboard": "127.0.0.1:0"} {
							if name != flag.Name {
								args = append(args, "--"+name, value)
							}
						}
						return bounded(t, args...)
					}
					name := writeConfig(t, fmt.Sprintf("# c\n%s = %q\n", flag.Name, wrong.value))
					refused(program("--config", name), name+":2: "+flag.Name+": ", wrong.why)
					if flag.IsSlice() {
						name := writeConfig(t, fmt.Sprintf("%s = [\n\t%s,\n\t%q,\n]\n", flag.Name, rightValue[flag.Name], wrong.value))
						refused(program("--config", name), name+":3: "+flag.Name+": ", wrong.why)
					}
					refused(program("--"+flag.Name+"="+wrong.value), "--"+flag.Name+": ", wrong.why)
					if wrong.value != "" { // which says nothing
						cmd := program()
						cmd.Env = append(cmd.Env, flag.Envs[0]+"="+wrong.value)
						refused(cmd, flag.Envs[0], wrong.why)
					}
				})
			}
		}
	}
}

// What is wrong in a settings file is told with its line and the reason, all at once.
func TestWrongFileIsRefused(t *testing.T) {
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
			":1: proxy-tls: want true or false", ":2: slow-disk: \"never\" is not one of wait, cut", ":6: passthrough: host pattern \"a b\": want a host",
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

// An empty item of a list is refused wherever it stands in it.
func TestEmptyItemIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--no-proxy=a.example,"},
		{"--no-proxy=,a.example"},
		{"--no-proxy=a.example", "--no-proxy="},
		{"--no-proxy=", "--no-proxy=a.example"},
	} {
		out, err := bounded(t, append(args, "--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0")...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--no-proxy: it is empty") {
			t.Errorf("%q: %v: %.2000s", args, err, out)
		}
	}
}

// A password in a flag or a variable is not told to whoever reads the log.
func TestPasswordsAreNotQuoted(t *testing.T) {
	for _, test := range []struct{ flag, variable, value, want string }{
		{"--upstream-proxy", "MILLPOND_UPSTREAM_PROXY", "ftp://u:secret@proxy", ": the scheme \"ftp\""},
		{"--reverse", "MILLPOND_REVERSE", "https://u:secret@api.example=127.0.0.1:0", ": the URL of an upstream takes no credentials"},
		{"--reverse", "MILLPOND_REVERSE", "https://u:s=secret@api.example", ": the URL of an upstream takes no credentials"},
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
