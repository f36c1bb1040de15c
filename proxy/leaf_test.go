package proxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLeafVerifies(t *testing.T) {
	ca := testCA()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	long := strings.Repeat("a-long-label.", 12) + "example"
	for _, test := range []struct{ asked, name string }{
		{"example.com", "example.com"},
		{"EXAMPLE.com.", "example.com"},
		{"under_score.example.com", "under_score.example.com"},
		{"münchen.example", "xn--mnchen-3ya.example"},
		{"127.0.0.1", "127.0.0.1"},
		{"::1", "::1"},
		{"[2001:db8::1]", "2001:db8::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{long, long},
	} {
		t.Run(test.asked, func(t *testing.T) {
			pairs, err := ca.current().leaves.get(test.asked)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := pairs[0].PrivateKey.(*ecdsa.PrivateKey); !ok {
				t.Errorf("the preferred leaf has a %T, want ECDSA", pairs[0].PrivateKey)
			}
			if _, ok := pairs[1].PrivateKey.(*rsa.PrivateKey); !ok {
				t.Errorf("the other leaf has a %T, want RSA", pairs[1].PrivateKey)
			}
			for _, pair := range pairs {
				if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: test.name, Roots: roots}); err != nil {
					t.Error(err)
				}
				if total := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore); total > 197*24*time.Hour {
					t.Errorf("valid for %v in all, want at most 197 days", total)
				}
				if n := len(pair.Leaf.SerialNumber.Bytes()); n > 19 {
					t.Errorf("serial number of %d octets", n)
				}
				opensslVerifies(t, ca, pair.Leaf, test.name)
			}
		})
	}
}

// opensslVerifies asks a verifier that is not Go's.
func opensslVerifies(t *testing.T, ca *CA, leaf *x509.Certificate, name string) {
	t.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("no openssl here")
		return
	}
	dir := t.TempDir()
	write := func(file string, c *x509.Certificate) string {
		file = filepath.Join(dir, file)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	flag := "-verify_hostname"
	if len(leaf.IPAddresses) > 0 {
		flag = "-verify_ip"
	}
	out, err := exec.Command(openssl, "verify", "-x509_strict", "-purpose", "sslserver", flag, name, "-CAfile", write("ca.pem", ca.Certificate()), write("leaf.pem", leaf)).CombinedOutput()
	if err != nil {
		t.Errorf("openssl verify: %v\n%s", err, out)
	}
}

func TestNamesThatHaveNoLeaf(t *testing.T) {
	for _, name := range []string{"", ".", "a b", "a\x00b", "\xff\xfe.example", strings.Repeat("a.", 127) + "com"} {
		if _, err := testCA().current().leaves.get(name); err == nil {
			t.Errorf("a leaf was issued for %q", name)
		}
	}
}

func TestLeavesAreSharedByThoseWhoAskAtOnce(t *testing.T) {
	ca := mustLoadCA(t, t.TempDir())
	var pairs [64][]tls.Certificate
	var wg sync.WaitGroup
	for i := range pairs {
		wg.Go(func() {
			var err error
			if pairs[i], err = ca.current().leaves.get("Example.com"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range pairs {
		if len(p) == 0 || p[0].Leaf != pairs[0][0].Leaf {
			t.Fatal("two leaves for one name")
		}
	}
	if ca.current().leaves.issued != 1 {
		t.Errorf("%d leaves were issued, want 1", ca.current().leaves.issued)
	}
}

func TestLeavesStayWithinTheirLimit(t *testing.T) {
	ca := mustLoadCA(t, t.TempDir())
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const names = 2*leafLimit + 100 // the authority is replaced twice
	before := heap()
	for i := range names {
		if _, err := ca.current().leaves.get(fmt.Sprintf("host-%d.example.com", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := ca.current().leaves.kept.Len(); got != leafLimit {
		t.Errorf("%d leaves are kept, want %d", got, leafLimit)
	}
	if grown := int64(heap()) - int64(before); grown > 32<<20 {
		t.Errorf("%d names cost %d MiB", names, grown>>20)
	} else {
		t.Logf("%d names cost %d KiB", names, grown>>10)
	}
	if _, err := ca.current().leaves.get("host-0.example.com"); err != nil { // forgotten, and made again
		t.Error(err)
	}
}

// Ten thousand CONNECTs, each to a host of its own: every client gets the certificate of its own, and what is kept stays bounded.
func TestManyHosts(t *testing.T) {
	names := 10_000
	if testing.Short() {
		names = 2 * leafLimit
	}
	config := &tls.Config{Certificates: []tls.Certificate{upstreamCA().issue(nil, "*.many.localhost")}}
	_, port, _ := net.SplitHostPort(startUglyOrigin(t, func(c net.Conn) { tls.Server(c, config).Handshake() })) // it holds nothing of connections that ended
	p := startProxy(t, Config{})
	roots := x509.NewCertPool()
	roots.AddCert(testCA().Certificate())
	ask := func(name string) error {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", name, port) // below localhost: this machine
		if _, err := readHead(bufio.NewReaderSize(c, 16), 1<<10); err != nil {            // nothing follows before the client speaks
			return err
		}
		return tls.Client(c, &tls.Config{ServerName: name, RootCAs: roots}).Handshake()
	}
	run := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for n := next.Add(1); n <= int64(to) && !t.Failed(); n = next.Add(1) {
					if err := ask(fmt.Sprintf("host-%d.many.localhost", n)); err != nil {
						t.Errorf("host %d: %v", n, err)
					}
				}
			})
		}
		clients.Wait()
		p.quiet()
	}
	first := leafLimit + 100 // the leaves are at their bound
	run(0, first)
	before, sessions := holdings(), p.sessions()
	run(first, names)
	checkHoldings(t, before, uint64(2<<20+512*(p.sessions()-sessions))) // the index of each session, with a host that no other has. A leaf would be 6 KB
	got := testCA().current().leaves.kept.Len()
	if got != leafLimit {
		t.Errorf("%d leaves are kept, want %d", got, leafLimit)
	}
	t.Logf("shown: %d hosts, %d leaves kept", names, got)
}

func TestExpiredLeafIsIssuedAnew(t *testing.T) {
	ca := mustLoadCA(t, t.TempDir())
	old, err := ca.current().leaves.get("example.com")
	if err != nil {
		t.Fatal(err)
	}
	old[0].Leaf.NotAfter = time.Now().Add(-time.Hour)
	old[1].Leaf.NotAfter = time.Now().Add(-time.Hour) // mitm keeps this one too
	renewed, err := ca.current().leaves.get("example.com")
	if err != nil {
		t.Fatal(err)
	}
	if !renewed[0].Leaf.NotAfter.After(time.Now()) {
		t.Error("an expired leaf was handed out")
	}
}
