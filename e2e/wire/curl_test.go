package wire

import (
	"path/filepath"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

// curl: each version of HTTP, through the proxy by HTTP and by SOCKS5, up and down.
func TestCurl(t *testing.T) {
	w := startWorld(t)
	for _, test := range []struct {
		name     string
		protocol harness.Protocol
		args     []string
		session  string
	}{
		{"HTTP 1.0", harness.HTTP, []string{"--http1.0"}, "HTTP/1.0"},
		{"HTTP 1.0 in TLS", harness.HTTPS, []string{"--http1.0"}, "HTTP/1.0"},
		{"HTTP 1.1", harness.HTTP, []string{"--http1.1"}, "HTTP/1.1"},
		{"HTTP 1.1 in TLS", harness.HTTPS, []string{"--http1.1"}, "HTTP/1.1"},
		{"HTTP 2", harness.HTTP2, []string{"--http2"}, "HTTP/2"},
		{"SOCKS5", harness.HTTP, []string{"--socks5-hostname", w.program.Proxy}, "HTTP/1.1"},
		{"SOCKS5 and TLS", harness.HTTPS, []string{"--socks5-hostname", w.program.Proxy, "--http1.1"}, "HTTP/1.1"},
		{"SOCKS5 and HTTP 2", harness.HTTP2, []string{"--socks5-hostname", w.program.Proxy, "--http2"}, "HTTP/2"},
		{"CONNECT without TLS", harness.HTTP, []string{"--proxytunnel", "--proxy", w.program.Proxy}, "HTTP/1.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := w.client(t, "curl", test.protocol)
			args := append([]string{"--silent", "--show-error", "--fail", "--cacert", w.program.CA, "--noproxy", ""}, test.args...)
			if !strings.Contains(strings.Join(test.args, " "), w.program.Proxy) {
				args = append(args, "--proxy", w.program.Proxy)
			}
			curl := func(more ...string) string { return c.exec(nil, "curl", append(args, more...)...) }

			saved := filepath.Join(t.TempDir(), "down")
			curl("--output", saved, c.down(harness.Fixed))
			c.expectDown(saved, test.session)

			c.expectUp(curl("--data-binary", "@"+c.file, "--header", "Expect:", c.up()), test.session)

			s := c.expectUp(curl("--request", "POST", "--upload-file", c.file, "--header", "Expect: 100-continue", c.up()), test.session)
			if continued := len(s.Response.Informational) == 1; continued != (test.session != "HTTP/1.0") {
				t.Errorf("informational heads: %q", s.Response.Informational)
			}
			if test.session == "HTTP/1.0" {
				return // it has no chunked coding
			}
			// What curl reads from standard input has no length.
			piped := c.exec(nil, "sh", append([]string{"-c", `exec curl "$@" < "$0"`, c.file}, append(args, "--request", "POST", "--upload-file", "-", "--header", "Expect:", c.up())...)...)
			s = c.expectUp(piped, test.session)
			if test.session == "HTTP/1.1" && !strings.Contains(s.Request.Head, "chunked") {
				t.Errorf("head is %q", s.Request.Head)
			}
		})
	}
}

// A refused upload is not sent: curl waits for the verdict.
func TestCurlUploadIsRefused(t *testing.T) {
	w := startWorld(t)
	c := w.client(t, "curl", harness.HTTPS)
	addr := c.listen(func(o *conn) error {
		if _, err := o.head(); err != nil {
			return err
		}
		o.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		return o.expectEnd()
	})
	out := c.exec(nil, "curl", "--silent", "--show-error", "--noproxy", "", "--proxy", w.program.Proxy, "--cacert", w.program.CA, "--http1.1", "--header", "Expect: 100-continue",
		"--write-out", " %{http_code} %{size_upload}", "--request", "PUT", "--upload-file", c.file, "--expect100-timeout", "30", "https://"+addr+c.path)
	if out != "no 401 0" {
		t.Errorf("curl: %s", out)
	}
	if s := c.firstSession(); s.Status != 401 || s.RequestBytes != 0 {
		t.Errorf("session with status %d passed %d bytes of the upload", s.Status, s.RequestBytes)
	}
}
