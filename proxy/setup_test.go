package proxy

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// The page, and what it checks with, is there in every way that leads to the proxy, wants no credentials and no upstream, and is no session.
func TestOwnNames(t *testing.T) {
	seen := make(chan string, 100)
	p := startProxy(t, Config{Auth: mustCredentials(t, "ann:secret"), Setup: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		seen <- r.Host + r.URL.Path + " at " + local.String()
		w.Write([]byte("here"))
	})})
	ca := caFile(t)
	for _, test := range []struct {
		args []string
		host string
	}{
		{[]string{"http://" + p.addr + "/x"}, p.addr},
		{[]string{"http://millpond.internal/x", "-x", "http://" + p.addr}, "millpond.internal"},
		{[]string{"http://Millpond.INTERNAL/x", "-x", "http://" + p.addr}, "millpond.internal"},
		{[]string{"http://millpond.internal/x", "-p", "-x", "http://" + p.addr}, "millpond.internal"},
		{[]string{"https://millpond.internal/x", "--cacert", ca, "-x", "http://" + p.addr}, "millpond.internal"},
		{[]string{"http://check.millpond.internal/x", "-x", "http://" + p.addr}, "check.millpond.internal"},
		{[]string{"https://check.millpond.internal/x", "--cacert", ca, "-x", "http://" + p.addr}, "check.millpond.internal"},
		{[]string{"https://check.millpond.internal/x", "--cacert", ca, "--socks5-hostname", p.addr, "-U", "ann:secret"}, "check.millpond.internal"},
	} {
		if out, code := run(t, "", "curl", append([]string{"-sS"}, test.args...)...); code != 0 || out != "here" {
			t.Errorf("curl %v: %d: %s", test.args, code, out)
			continue
		}
		if got, want := strings.ToLower(<-seen), test.host+"/x at "+p.addr; got != want {
			t.Errorf("curl %v: the page was asked for %s, want %s", test.args, got, want)
		}
	}
	if out, code := run(t, "", "curl", "-sS", "https://check.millpond.internal/x", "-x", "http://"+p.addr); code != 60 {
		t.Errorf("a device that does not trust us: curl: %d: %s", code, out)
	}
	if n := p.sessions(); n != 0 {
		t.Errorf("%d sessions, want none", n)
	}
	if !p.p.accepted.by("127.0.0.1:1") {
		t.Error("a device that loaded the check is not known to trust us")
	}
	if out, code := run(t, "", "curl", "-sS", "https://millpond.internal/x", "-x", "http://"+p.addr); code != 60 {
		t.Errorf("a device that does not trust us: curl: %d: %s", code, out)
	}
	if s := p.next(); s.Host == "" || !strings.Contains(s.Error, "unknown_ca") {
		t.Errorf("session %+v", s)
	}
}
