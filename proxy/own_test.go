package proxy

import (
	"net"
	"net/netip"
	"testing"
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
