package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

func TestWget(t *testing.T) {
	w := startWorld(t)
	for _, protocol := range []harness.Protocol{harness.HTTP, harness.HTTPS} {
		t.Run(string(protocol), func(t *testing.T) {
			c := w.client(t, "wget", protocol)
			proxies := []string{"http_proxy=http://" + w.program.Proxy, "https_proxy=http://" + w.program.Proxy}
			saved := filepath.Join(t.TempDir(), "down")
			c.exec(proxies, "wget", "--quiet", "--no-config", "--ca-certificate", w.program.CA, "--output-document", saved, c.down(harness.Open))
			c.expectDown(saved, "HTTP/1.1")
			answer := c.exec(proxies, "wget", "--quiet", "--no-config", "--ca-certificate", w.program.CA, "--output-document", "-", "--post-file", c.file, c.up())
			c.expectUp(answer, "HTTP/1.1")
		})
	}
}

// git clones over HTTPS, commits, and pushes what is too large to be sent in one piece.
func TestGit(t *testing.T) {
	w := startWorld(t)
	for _, protocol := range []harness.Protocol{harness.HTTPS, harness.HTTP2} {
		t.Run(string(protocol), func(t *testing.T) {
			c := w.client(t, "git", protocol)
			repositories := t.TempDir()
			bare := filepath.Join(repositories, string(protocol)+".git")
			config := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0", "GIT_SSL_CAINFO=" + w.program.CA}
			git := func(args ...string) string {
				return strings.TrimSpace(c.exec(config, "git", append([]string{
					"-c", "http.proxy=http://" + w.program.Proxy, "-c", "user.name=Test", "-c", "user.email=test@origin.test",
					"-c", "http.version=" + map[harness.Protocol]string{harness.HTTPS: "HTTP/1.1", harness.HTTP2: "HTTP/2"}[protocol],
				}, args...)...))
			}
			git("init", "--quiet", "--bare", "--initial-branch=main", bare)
			git("--git-dir", bare, "config", "http.receivepack", "true")
			backend := &cgi.Handler{
				Path: filepath.Join(git("--exec-path"), "git-http-backend"), Root: "/git-" + string(protocol),
				Env: append(config, "GIT_PROJECT_ROOT="+repositories, "GIT_HTTP_EXPORT_ALL=1"),
			}
			w.origin.Handle(backend.Root+"/", unchunked(backend))
			url := w.origin.URL(protocol, backend.Root+"/"+string(protocol)+".git")

			work, copied := filepath.Join(t.TempDir(), "work"), filepath.Join(t.TempDir(), "copy")
			git("clone", "--quiet", url, work)
			data, err := os.ReadFile(c.file)
			c.must(err)
			c.must(os.WriteFile(filepath.Join(work, "large.bin"), data, 0o600))
			git("-C", work, "add", "large.bin")
			git("-C", work, "commit", "--quiet", "--message", "Large")
			git("-C", work, "push", "--quiet", "origin", "HEAD:main")
			git("clone", "--quiet", url, copied)

			if sent, kept := git("-C", work, "rev-parse", "HEAD"), git("--git-dir", bare, "rev-parse", "main"); sent != kept {
				t.Errorf("pushed %s, the server has %s", sent, kept)
			}
			if got, err := os.ReadFile(filepath.Join(copied, "large.bin")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("cloned %d bytes that are others, %v", len(got), err)
			}
			for service, mediaType := range map[string]string{"git-receive-pack": "application/x-git-receive-pack-result", "git-upload-pack": "application/x-git-upload-pack-result"} {
				s := w.program.Await(t, backend.Root+"/"+string(protocol)+".git/"+service, func(s harness.Summary) bool {
					return harness.Ended(s) && s.Path == backend.Root+"/"+string(protocol)+".git/"+service
				})
				c.expectDone(s, 200)
				large := s.ResponseBytes
				if service == "git-receive-pack" {
					large = s.RequestBytes
				}
				if s.Protocol != protocolNames[protocol] || s.ContentType != mediaType || large < c.body.Size/2 {
					t.Errorf("%s: session in %s with %s, %d and %d bytes", service, s.Protocol, s.ContentType, s.RequestBytes, s.ResponseBytes)
				}
			}
		})
	}
}

// unchunked tells a CGI program the length, without which net/http/cgi refuses a body.
func unchunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		h.ServeHTTP(w, r)
	})
}

// nodeFetch is Node's own fetch, whose connections are made through CONNECT by hand: Node 20 has no proxy setting.
const nodeFetch = `
import http from "node:http";
import tls from "node:tls";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
const [proxy, ca, down, up, file] = process.argv.slice(2);
const [host, port] = proxy.split(":");
await fetch("data:,"); // loads the client that fetch uses
const { constructor: Agent } = globalThis[Symbol.for("undici.globalDispatcher.1")];
const dispatcher = new Agent({
	connect({ hostname, port: to, protocol }, done) {
		const ask = http.request({ host, port, method: "CONNECT", path: hostname + ":" + (to || 443) });
		ask.on("error", done).on("connect", (answer, socket) => {
			if (answer.statusCode !== 200) return done(new Error("CONNECT: " + answer.statusCode));
			if (protocol !== "https:") return done(null, socket);
			const secure = tls.connect({ socket, host: hostname, ca: readFileSync(ca), ALPNProtocols: ["http/1.1"] }, () => done(null, secure));
			secure.on("error", done);
		}).end();
	},
});
const got = await fetch(down, { dispatcher });
console.log(createHash("sha256").update(Buffer.from(await got.arrayBuffer())).digest("hex"));
const sent = await fetch(up, { dispatcher, method: "POST", body: readFileSync(file) });
console.log(await sent.text());
const streamed = await fetch(up, { dispatcher, method: "POST", duplex: "half", body: new Blob([readFileSync(file)]).stream() });
console.log(await streamed.text());
await dispatcher.close();
`

func TestNodeFetch(t *testing.T) {
	w := startWorld(t)
	for _, protocol := range []harness.Protocol{harness.HTTP, harness.HTTPS} {
		t.Run(string(protocol), func(t *testing.T) {
			c := w.client(t, "node", protocol)
			script := filepath.Join(t.TempDir(), "fetch.mjs")
			c.must(os.WriteFile(script, []byte(nodeFetch), 0o600))
			out := c.exec(nil, "node", script, w.program.Proxy, w.program.CA, c.down(harness.Fixed), c.up(), c.file)
			if n := strings.Count(out, c.body.SHA256()); n != 3 {
				t.Errorf("of three bodies %d are right: %s", n, out)
			}
			c.expectKept(w.program.Await(t, c.path+"/down", harness.Ended), "response", "HTTP/1.1")
			for _, s := range w.program.Sessions(t, c.path+"/up") {
				c.expectKept(w.program.Session(t, s.ID), "request", "HTTP/1.1")
			}
		})
	}
}

const pythonURLLib = `
import hashlib, ssl, sys, urllib.request
proxy, ca, down, up, path = sys.argv[1:]
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({"http": "http://" + proxy, "https": "http://" + proxy}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
print(hashlib.sha256(opener.open(down).read()).hexdigest())
body = open(path, "rb").read()
print(opener.open(up, data=body).read().decode())
print(opener.open(urllib.request.Request(up, data=iter([body[:70000], body[70000:]]), method="POST")).read().decode())
`

func TestPythonURLLib(t *testing.T) {
	w := startWorld(t)
	for _, protocol := range []harness.Protocol{harness.HTTP, harness.HTTPS} {
		t.Run(string(protocol), func(t *testing.T) {
			c := w.client(t, "python3", protocol)
			out := c.exec(nil, "python3", "-c", pythonURLLib, w.program.Proxy, w.program.CA, c.down(harness.Open), c.up(), c.file)
			if n := strings.Count(out, c.body.SHA256()); n != 3 {
				t.Errorf("of three bodies %d are right: %s", n, out)
			}
			c.expectKept(w.program.Await(t, c.path+"/down", harness.Ended), "response", "HTTP/1.1")
			for _, s := range w.program.Sessions(t, c.path+"/up") {
				c.expectKept(w.program.Session(t, s.ID), "request", "HTTP/1.1")
			}
		})
	}
}

// openssl, without SNI, by its own CONNECT.
func TestOpenSSL(t *testing.T) {
	w := startWorld(t)
	c := w.client(t, "openssl", harness.HTTPS)
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", strings.TrimPrefix(c.down(harness.Fixed), "https://"+w.origin.Addr(harness.HTTPS)))
	c.must(os.WriteFile(filepath.Join(filepath.Dir(c.file), "request"), []byte(request), 0o600))
	out := c.exec(nil, "sh", "-c", fmt.Sprintf(
		"openssl s_client -proxy %s -connect %s -noservername -verify_ip 127.0.0.1 -verify_return_error -CAfile '%s' -quiet < request",
		w.program.Proxy, w.origin.Addr(harness.HTTPS), w.program.CA))
	_, body, _ := strings.Cut(out, "\r\n\r\n")
	saved := filepath.Join(t.TempDir(), "down")
	c.must(os.WriteFile(saved, []byte(body), 0o600))
	s := c.expectDown(saved, "HTTP/1.1")
	if got := c.tlsOf(w.program, s.ID); got.ServerName != "" {
		t.Errorf("the session tells the name %q", got.ServerName)
	}
}
