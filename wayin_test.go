package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestOpenProxyIsRefused(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		_, errOut, code := output(t, "--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--proxy", addr, "--dashboard", "127.0.0.1:0")
		if code != 1 || !strings.Contains(errOut, "--proxy-auth USER:PASSWORD") || !strings.Contains(errOut, "--allow-open-proxy") {
			t.Errorf("--proxy %s: %d: %s", addr, code, errOut)
		}
	}
	for _, w := range []wayIn{{AllowOpenProxy: true}, {ProxyAuth: "a:b"}} {
		if err := w.permit("0.0.0.0:0"); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []listenAddr{"127.0.0.1:0", "[::1]:0", "127.0.0.2:80", "localhost:0"} {
		if err := (&wayIn{}).permit(addr); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongWaysInAreRefused(t *testing.T) {
	for _, flags := range [][]string{
		{"--proxy-auth", "ann", "want USER:PASSWORD"},
		{"--reverse", "api.example", "is not URL=ADDR"},
		{"--reverse", "api.example=127.0.0.1:0", "neither a path nor a URL"},
		{"--reverse", "https://api.example/v1=127.0.0.1:0", "more than scheme, host and port"},
		{"--reverse", "https://api.example=9000", "not the address of a listener"},
	} {
		_, errOut, code := output(t, "--data", t.TempDir(), "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", flags[0], flags[1])
		if code == 0 || !strings.Contains(errOut, flags[2]) || !strings.Contains(errOut, flags[0]) || strings.Count(errOut, "\n") > 2 {
			t.Errorf("%v: %d: %s", flags[:2], code, errOut)
		}
	}
}

// A program with credentials, a second listener over IPv6 and one in reverse mode.
func TestProgramServesEachWayIn(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	t.Cleanup(origin.Close)
	p := serve(t, "--data", t.TempDir(), "--proxy", "[::1]:0", "--proxy-auth", "ann:secret", "--reverse", origin.URL+"=127.0.0.1:0")
	at, to, _ := strings.Cut(p.said["reverse"], " to ")
	if to != origin.URL || !strings.HasPrefix(p.said["proxy"], "[::1]:") {
		t.Fatalf("it said %v", p.said)
	}
	through := &url.URL{Scheme: "http", User: url.UserPassword("ann", "secret"), Host: p.said["proxy"]}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: func(*http.Request) (*url.URL, error) { return through, nil }}}
	direct := http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	for name, get := range map[string]func() (*http.Response, error){
		"through the proxy": func() (*http.Response, error) { return client.Get(origin.URL) },
		"in reverse":        func() (*http.Response, error) { return direct.Get("http://" + at) },
	} {
		res, err := get()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || "http://"+string(body) != origin.URL {
			t.Errorf("%s: %s, %q", name, res.Status, body)
		}
	}
	refused, err := p.client.Get(origin.URL) // which shows none
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("without credentials: %s", refused.Status)
	}
}
