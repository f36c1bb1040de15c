package proxy

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestIsPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "::ffff:127.0.0.1": false,
		"10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.0.1": false, "fd00::1": false, "::ffff:10.0.0.1": false,
		"169.254.1.1": false, "fe80::1": false, "fe80::1%eth0": false,
		"100.64.0.1": false, "100.127.255.254": false,
		"100.63.255.255": true, "100.128.0.0": true, "172.32.0.1": true, "8.8.8.8": true, "2001:db8::1": true, "::ffff:8.8.8.8": true,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %v, want %v", address, got, want)
		}
	}
}

// fromElsewhere is a listener whose clients seem to come from another address: loopback is the only network that a test has.
type fromElsewhere struct {
	net.Listener
	address string
}

func (l fromElsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return elsewhereConn{c, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.address))}, nil
}

type elsewhereConn struct {
	net.Conn
	remote net.Addr
}

func (c elsewhereConn) RemoteAddr() net.Addr { return c.remote }

func TestPublicClientsAreTurnedAway(t *testing.T) {
	for _, test := range []struct {
		from  string
		allow bool
		want  bool
	}{
		{"203.0.113.9:4000", false, false},
		{"[2001:db8::9]:4000", false, false},
		{"203.0.113.9:4000", true, true},
		{"192.168.1.9:4000", false, true},
	} {
		p := startProxy(t, Config{AllowPublic: test.allow})
		addr := p.listenToo("127.0.0.1:0", func(l net.Listener) error { return p.p.Serve(fromElsewhere{l, test.from}) })
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c := newPeer(t, nc)
		c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		answer, _ := c.rest()
		nc.Close()
		if got := strings.HasPrefix(answer, "HTTP/1.1 200"); got != test.want {
			t.Errorf("a client from %s, allowed %v: answered %v, want %v: %q", test.from, test.allow, got, test.want, answer)
		}
	}
}

func TestParseCredentials(t *testing.T) {
	long := strings.Repeat("x", 256)
	for text, want := range map[string]bool{
		"a:b": true, "a:b:c": true, "ä:ö": true, long[1:] + ":" + long[1:]: true,
		"": false, "a": false, ":b": false, "a:": false, long + ":b": false, "a:" + long: false,
	} {
		c, err := ParseCredentials(text)
		if (err == nil) != want {
			t.Errorf("%.20q: %v", text, err)
		}
		if err != nil && text != "" && text != "a" && strings.Contains(err.Error(), long) {
			t.Errorf("the error quotes what was given: %v", err)
		}
		if user, password, _ := strings.Cut(text, ":"); c != nil && (!c.match(user, password) || c.match(user, password+"x") || c.match(password, user) && user != password) {
			t.Errorf("%.20q does not match itself alone", text)
		}
	}
}

// Whoever tries passwords by the thousand fills neither the log nor the disk.
func TestRefusalsAreLoggedSeldom(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	lines := 0
	for range 1000 {
		if _, say := r.note(now); say {
			lines++
		}
	}
	if before, say := r.note(now.Add(refusalPause)); lines != 1 || !say || before != 999 {
		t.Errorf("%d lines, then %v with %d before; want 1, then one that counts 999", lines, say, before)
	}
}
