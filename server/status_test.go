package server

import (
	"net/netip"
	"testing"
)

func TestDeviceAddresses(t *testing.T) {
	for _, test := range []struct {
		listener string
		want     []string
	}{
		{"127.0.0.1:8080", nil},
		{"[::1]:8080", nil},
		{"192.0.2.7:8080", []string{"192.0.2.7:8080"}},
		{"[2001:db8::7]:8080", []string{"[2001:db8::7]:8080"}},
	} {
		got := deviceAddresses([]netip.AddrPort{netip.MustParseAddrPort(test.listener)})
		if got == nil || len(got) != len(test.want) || len(got) == 1 && got[0] != test.want[0] {
			t.Errorf("%s: got %#v, want %v", test.listener, got, test.want)
		}
	}
	// On all addresses: this machine's, whatever they are, but none that only this machine can use.
	for _, listener := range []string{"0.0.0.0:8080", "[::]:8080"} {
		for _, text := range deviceAddresses([]netip.AddrPort{netip.MustParseAddrPort(listener)}) {
			addr, err := netip.ParseAddrPort(text)
			if err != nil || addr.Port() != 8080 || addr.Addr().IsLoopback() || addr.Addr().IsUnspecified() || addr.Addr().IsLinkLocalUnicast() {
				t.Errorf("%s: got %s, %v", listener, text, err)
			}
		}
	}
}

// A phone in the same network is likelier to reach a private address of a network card than one that only containers know.
func TestDeviceAddressesRank(t *testing.T) {
	last := -1
	for _, test := range []struct{ name, ip string }{
		{"wlan0", "192.168.1.7"},
		{"eth0", "203.0.113.7"},
		{"eth0", "fd00::7"},
		{"eth0", "2001:db8::7"},
		{"docker0", "172.17.0.1"},
		{"br-5e1f", "fd01::1"},
	} {
		got := rank(test.name, netip.MustParseAddr(test.ip))
		if got <= last {
			t.Errorf("%s of %s ranks %d, not after %d", test.ip, test.name, got, last)
		}
		last = got
	}
	if listed := deviceAddresses([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:8080"), netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("192.0.2.8:9090")}); len(listed) != 2 {
		t.Errorf("several listeners: got %v", listed)
	}
}

// The dashboard shows a command that works as it stands.
func TestStatusNamesTheCertificate(t *testing.T) {
	const path = "/data/ca/cert.pem"
	r := newRig(t, func(c *Config) { c.CAFile = path })
	var status Status
	r.json(r.call("GET", "/api/status", ""), 200, &status)
	if status.CA != path {
		t.Errorf("got %q, want %q", status.CA, path)
	}
}
