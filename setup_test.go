package main

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The page's commands work as they stand, with the credentials filled in and another address to fetch: one that the proxy answers itself, over TLS.
func TestSetupCommands(t *testing.T) {
	const fetched = "https://check.millpond.internal/yes.svg"
	p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--proxy-auth", "me:secret")
	dir := t.TempDir()
	shell := func(script string) (string, error) {
		cmd := exec.Command("bash", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "no_proxy=", "NO_PROXY=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	page, err := exec.Command("curl", "-fsS", "--noproxy", "*", "http://"+p.said["proxy"]+"/").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := func(after string) (found []string) {
		t.Helper()
		_, rest, ok := strings.Cut(string(page), after)
		if !ok {
			t.Fatalf("the page has no %s", after)
		}
		for {
			part, more, _ := strings.Cut(rest, "</code></pre>")
			text, code, ok := strings.Cut(part, "<pre><code>")
			if !ok || strings.Contains(text, "</details>") || strings.Contains(text, "</section>") {
				return found
			}
			found, rest = append(found, strings.ReplaceAll(html.UnescapeString(code), "USER:PASSWORD", "me:secret")), more
		}
	}
	if out, err := shell(commands(`id="get-title"`)[0]); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	python := `python3 -c 'import urllib.request as u; print(u.urlopen("` + fetched + `").read().decode())'`
	for _, test := range []struct{ id, program, from, to, want string }{
		{"curl", "curl", "https://example.com/", fetched, "<svg"},
		{"python", "python3", "python3 app.py", python, "<svg"},
		// It is no repository, which git finds out once it trusts the server.
		{"git", "git", "clone https://example.com/repository.git", "ls-remote " + fetched + " 2>&1 | grep 'not found'", "not found"},
		{"java", "keytool", "", "", "Certificate was added to keystore"},
	} {
		t.Run(test.id, func(t *testing.T) {
			if _, err := exec.LookPath(test.program); err != nil {
				t.Skip(err)
			}
			command := commands(`<details id="` + test.id + `"`)[0]
			if !strings.Contains(command, test.from) {
				t.Fatalf("%s does not hold %s", command, test.from)
			}
			if test.from != "" {
				command = strings.Replace(command, test.from, test.to, 1)
			}
			if out, err := shell(command); err != nil || !strings.Contains(out, test.want) {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		})
	}
	t.Run("java fetches", func(t *testing.T) {
		if out, err := shell("javac -version"); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		app := `import java.net.*;
class App {
	public static void main(String[] args) throws Exception {
		Authenticator.setDefault(new Authenticator() {
			protected PasswordAuthentication getPasswordAuthentication() { return new PasswordAuthentication("me", "secret".toCharArray()); }
		});
		System.out.println(new String(new URI("` + fetched + `").toURL().openStream().readAllBytes()));
	}
}`
		if err := os.WriteFile(filepath.Join(dir, "App.java"), []byte(app), 0o600); err != nil {
			t.Fatal(err)
		}
		command := strings.Replace(commands(`<details id="java"`)[1], "-jar app.jar", "-Djdk.http.auth.tunneling.disabledSchemes= App.java", 1)
		if out, err := shell(command); err != nil || !strings.Contains(out, "<svg") {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	})
}
