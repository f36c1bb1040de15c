package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"millpond/storage"
)

// SOCKS5, RFC 1928. What clients ask for is CONNECT, and it is served as a CONNECT over HTTP is.

const (
	socksVersion = 5
	socks4       = 4 // the version before, also 4a; not served

	socksNoAuth       = 0x00
	socksPassword     = 0x02 // RFC 1929
	socksNoAcceptable = 0xff

	socksConnect      = 1
	socksBind         = 2
	socksUDPAssociate = 3

	socksIPv4   = 1
	socksDomain = 3
	socksIPv6   = 4
)

// The reply codes. RFC 1928, section 6.
const (
	socksSucceeded          = 0
	socksFailure            = 1
	socksNotAllowed         = 2
	socksNetworkUnreachable = 3
	socksHostUnreachable    = 4
	socksRefused            = 5
	socksNoSuchCommand      = 7
	socksNoSuchAddressType  = 8
)

// socksError is a request that is answered with a reply code and goes nowhere.
type socksError struct {
	reply byte
	why   string
}

func (e *socksError) Error() string { return e.why }

// serveSOCKS serves a client whose first byte is SOCKS5's.
func (p *Proxy) serveSOCKS(ctx context.Context, c *conn) {
	defer c.Close()
	started := time.Now()
	c.reads.exactly(p.cfg.Limits.HeadTime)
	c.writes.within(p.cfg.Limits.HeadTime)
	if !p.greetSOCKS(c) {
		return
	}
	authority, err := readSOCKS(c.r)
	c.reads.clear()
	s := storage.Session{
		Client: c.client, Method: http.MethodConnect, Scheme: "tcp", Host: authority, Protocol: "TCP",
		Timing: storage.Timing{Started: started},
	}
	var refused *socksError
	switch {
	case errors.As(err, &refused):
		c.Write(socksReply(refused.reply, nil))
		p.record(s, storage.Failed, refused.why)
		lingerClose(c)
		return
	case err != nil:
		return // it left or fell silent, and has not said what it wanted
	}
	p.serveTarget(ctx, c, s, authority, socksAnswer{})
}

// greetSOCKS agrees with the client on how it says who it is, and judges that. It reports whether the client may go on.
func (p *Proxy) greetSOCKS(c *conn) bool {
	var head [2]byte // version, number of methods
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c.r, methods); err != nil {
		return false
	}
	method := byte(socksNoAcceptable)
	switch {
	case p.cfg.Auth == nil && slices.Contains(methods, socksNoAuth):
		method = socksNoAuth
	case slices.Contains(methods, socksPassword): // where none is wanted, some clients send one all the same: any will do
		method = socksPassword
	}
	if _, err := c.Write([]byte{socksVersion, method}); err != nil {
		return false
	}
	switch method {
	case socksNoAuth:
		return true
	case socksNoAcceptable:
		p.turnAway(c.client, "no credentials for the proxy, over SOCKS5")
		lingerClose(c)
		return false
	}
	return p.checkSOCKS(c)
}

// checkSOCKS reads a user name and a password and answers whether they are right. RFC 1929, section 2.
func (p *Proxy) checkSOCKS(c *conn) bool {
	const version = 1
	if v, err := c.r.ReadByte(); err != nil || v != version {
		return false
	}
	user, err := readShort(c.r)
	if err != nil {
		return false
	}
	password, err := readShort(c.r)
	if err != nil {
		return false
	}
	if p.cfg.Auth != nil && !p.cfg.Auth.match(user, password) {
		p.turnAway(c.client, "wrong credentials for the proxy, over SOCKS5")
		c.Write([]byte{version, 1})
		lingerClose(c)
		return false
	}
	_, err = c.Write([]byte{version, 0})
	return err == nil
}

// readSOCKS reads a request and returns its target, host:port. Its errors are *socksError, with the target as far as it is known, or the connection's.
func readSOCKS(r io.Reader) (authority string, err error) {
	var head [4]byte // version, command, reserved, address type
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	if head[0] != socksVersion {
		return "", &socksError{socksFailure, "the client's SOCKS request is not of version 5"}
	}
	var host string
	switch head[3] {
	case socksIPv4, socksIPv6:
		raw := make([]byte, 4)
		if head[3] == socksIPv6 {
			raw = make([]byte, 16)
		}
		if _, err := io.ReadFull(r, raw); err != nil {
			return "", err
		}
		ip, _ := netip.AddrFromSlice(raw)
		host = ip.String()
	case socksDomain:
		if host, err = readShort(r); err != nil {
			return "", err
		}
	default:
		return "", &socksError{socksNoSuchAddressType, "the client's SOCKS request has an address of an unknown type"}
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return "", err
	}
	authority = net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:]))))
	switch head[1] {
	case socksConnect:
		return authority, nil
	case socksBind:
		return authority, &socksError{socksNoSuchCommand, "the client asked over SOCKS for a listener (BIND); only CONNECT is served"}
	case socksUDPAssociate:
		return authority, &socksError{socksNoSuchCommand, "the client asked over SOCKS for UDP (UDP ASSOCIATE); only CONNECT is served, and clients of HTTP/3 then use TCP"}
	}
	return authority, &socksError{socksNoSuchCommand, fmt.Sprintf("the client asked over SOCKS for the unknown command %d; only CONNECT is served", head[1])}
}

// readShort reads a string of at most 255 bytes after its length.
func readShort(r io.Reader) (string, error) {
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", err
	}
	b := make([]byte, length[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

// socksReply renders a reply. bound is our end of the connection to the target; nil for none.
func socksReply(code byte, bound net.Addr) []byte {
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if tcp, ok := bound.(*net.TCPAddr); ok {
		at = netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap().WithZone(""), tcp.AddrPort().Port())
	}
	kind := byte(socksIPv4)
	if at.Addr().Is6() {
		kind = socksIPv6
	}
	out := append([]byte{socksVersion, code, 0, kind}, at.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(out, at.Port())
}

// socksAnswer tells a SOCKS5 client what became of its CONNECT.
type socksAnswer struct{}

func (socksAnswer) granted(_ *storage.Session, up net.Conn) []byte {
	if up == nil {
		return socksReply(socksSucceeded, nil)
	}
	return socksReply(socksSucceeded, up.LocalAddr())
}

func (socksAnswer) refused(_ *storage.Session, e *upstreamError) (answer, body []byte) {
	code := byte(socksFailure)
	var dns *net.DNSError
	switch {
	case errors.Is(e, errLoop), errors.Is(e, syscall.EACCES), errors.Is(e, syscall.EPERM):
		code = socksNotAllowed
	case errors.Is(e, syscall.ENETUNREACH):
		code = socksNetworkUnreachable
	case errors.Is(e, syscall.EHOSTUNREACH), errors.As(e, &dns), isTimeout(e):
		code = socksHostUnreachable
	case errors.Is(e, syscall.ECONNREFUSED):
		code = socksRefused
	}
	return socksReply(code, nil), nil
}
