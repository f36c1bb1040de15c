package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestExplainDial(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, test := range []struct {
		err    error
		status int
		want   string
	}{
		{op(os.NewSyscallError("connect", syscall.ECONNREFUSED)), http.StatusBadGateway, "connection refused"},
		{op(&net.DNSError{Name: "nowhere.invalid", IsNotFound: true}), http.StatusBadGateway, "unknown host: no address is known for nowhere.invalid"},
		{op(&net.DNSError{Name: "slow.example", IsTimeout: true}), http.StatusGatewayTimeout, "the name server did not answer"},
		{op(&net.DNSError{Name: "odd.example", Err: "server misbehaving"}), http.StatusBadGateway, "server misbehaving"},
		{op(context.DeadlineExceeded), http.StatusGatewayTimeout, "timed out"},
		{op(os.ErrDeadlineExceeded), http.StatusGatewayTimeout, "timed out"},
		{op(os.NewSyscallError("connect", syscall.ETIMEDOUT)), http.StatusGatewayTimeout, "timed out"},
		{op(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), http.StatusBadGateway, "no route"},
		{op(os.NewSyscallError("connect", syscall.ENETUNREACH)), http.StatusBadGateway, "no route"},
		{op(os.NewSyscallError("socket", syscall.EMFILE)), http.StatusServiceUnavailable, "too many open files"},
		{op(errLoop), http.StatusLoopDetected, "Millpond's own"},
		{op(context.Canceled), http.StatusBadGateway, "the client left"},
		{op(errors.New("something odd")), http.StatusBadGateway, "something odd"},
		{errors.New(`port "x" is not a number`), http.StatusBadRequest, `port "x"`},
	} {
		got := explainDial("example.com:443", test.err)
		if got.status != test.status || !strings.Contains(got.reason, test.want) || !strings.Contains(got.reason, "example.com:443") {
			t.Errorf("%v is explained as %d %q, want %d and %q", test.err, got.status, got.reason, test.status, test.want)
		}
		if !errors.Is(got, test.err) {
			t.Errorf("%q does not wrap its cause", got.reason)
		}
	}
}

func TestSplitAuthority(t *testing.T) {
	for _, test := range []struct{ authority, host, port string }{
		{"Example.COM:443", "example.com", "443"},
		{"example.com.:443", "example.com", "443"},
		{"münchen.example:443", "xn--mnchen-3ya.example", "443"},
		{"[::1]:80", "::1", "80"},
		{"[fe80::1%eth0]:80", "fe80::1%eth0", "80"},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1", "80"},
	} {
		host, port, err := splitAuthority(test.authority)
		if err != nil || host != test.host || port != test.port {
			t.Errorf("splitAuthority(%q) = %q, %q, %v; want %q, %q", test.authority, host, port, err, test.host, test.port)
		}
	}
	for _, authority := range []string{"", "example.com", ":443", "example.com:", "example.com:0", "example.com:65536", "example.com:-1", "example.com:http", "::1:80", "[::1]", "a b:80", "a\r\nb:80"} {
		if _, _, err := splitAuthority(authority); err == nil {
			t.Errorf("splitAuthority(%q) has no error", authority)
		}
	}
}
