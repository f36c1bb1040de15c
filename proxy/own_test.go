package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"millpond/storage"
)

func TestOwns(t *testing.T) {
	var ofMachine string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			ofMachine = n.IP.String()
		}
	}
	for _, test := range []struct {
		listener, target string
		want             bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "[::ffff:127.0.0.1]:80", true},
		{"127.0.0.1:80", "0.0.0.0:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false}, // another listener may be there
		{"127.0.0.1:80", "192.0.2.1:80", false},
		{"[::1]:80", "[::1]:80", true},
		{"[::1]:80", "127.0.0.1:80", false},
		{"0.0.0.0:80", "127.0.0.2:80", true},
		{"[::]:80", "127.0.0.1:80", true},
		{"[::]:80", "[::1]:80", true},
		{"[::]:80", "192.0.2.1:80", false},
		{"[::]:80", net.JoinHostPort(ofMachine, "80"), true},
		{"[fe80::1%eth0]:80", "[fe80::1%eth0]:80", true},
	} {
		if test.target == ":80" {
			t.Log("this machine has no address but loopback")
			continue
		}
		l := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.listener))
		if got := Owns(l)(netip.MustParseAddrPort(test.target)); got != test.want {
			t.Errorf("a listener on %s owns %s: %v, want %v", test.listener, test.target, got, test.want)
		}
	}
}

func TestOwnAddressIsRefused(t *testing.T) {
	dashboard := listenLocal(t)
	dashboardPort := dashboard.Addr().(*net.TCPAddr).Port
	p := startProxy(t, Config{Own: Owns(dashboard.Addr())})
	proxyPort := int(netip.MustParseAddrPort(p.addr).Port())
	hosts := []string{"127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]"}
	n := 0
	for _, port := range []int{proxyPort, dashboardPort} {
		for _, host := range hosts {
			n++
			_, res := p.connect(fmt.Sprintf("%s:%d", host, port))
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusLoopDetected || !strings.Contains(string(body), "Millpond's own") {
				t.Errorf("CONNECT %s:%d: %s %q, want 508", host, port, res.Status, body)
			}
		}
	}
	// Other addresses of this machine, where nothing of ours listens, are refused by the system.
	_, res := p.connect(fmt.Sprintf("127.0.0.2:%d", proxyPort))
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("CONNECT 127.0.0.2: %s, want 502", res.Status)
	}
	for _, s := range p.all(n + 1) {
		if s.State != storage.Failed || s.Status == 0 || s.Error == "" || len(s.Sides[storage.Response].Head) == 0 {
			t.Errorf("session %+v, want failed, with the answer", s)
		}
	}
}
