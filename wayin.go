package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"millpond/proxy"
	"millpond/settings"
)

// wayIn are the flags about clients of the proxy.
type wayIn struct {
	Proxy              []listenAddr `env:"MILLPOND_PROXY" default:"127.0.0.1:8080" placeholder:"ADDR" help:"A listener of the proxy, HOST:PORT, for HTTP and SOCKS5 alike; may be repeated. Port 0 picks one; 0.0.0.0 or [::] lets devices in the network use it, see --proxy-auth. ${default} where left out."`
	ProxyAuth          proxyAuth    `env:"MILLPOND_PROXY_AUTH" placeholder:"USER:PASSWORD" help:"What clients of the proxy must show. Needed for a listener beyond loopback, unless --allow-open-proxy is given."`
	AllowOpenProxy     bool         `env:"MILLPOND_ALLOW_OPEN_PROXY" help:"Let a listener beyond loopback serve whoever reaches it. For a network that you trust."`
	AllowPublicClients bool         `env:"MILLPOND_ALLOW_PUBLIC_CLIENTS" help:"Serve clients whose address is one of the open internet's, too. Without it only loopback, private, link-local and carrier addresses are served."`
	ProxyTLS           bool         `env:"MILLPOND_PROXY_TLS" name:"proxy-tls" help:"Let clients speak TLS to the proxy itself (an https:// proxy), on the same port. The certificate is from Millpond's authority."`
	Reverse            []reverse    `env:"MILLPOND_REVERSE" placeholder:"URL=ADDR" help:"A listener that forwards to one upstream, as https://api.example=127.0.0.1:9000; may be repeated. Host becomes upstream's."`
}

// listenAddr is HOST:PORT.
type listenAddr string

// check implements checker. Whether a name resolves and a port is free shows when it is listened on.
func (a listenAddr) check() error {
	host, port, err := net.SplitHostPort(string(a))
	switch {
	case err != nil || port == "":
		return fmt.Errorf("%q is not the address of a listener: want HOST:PORT, as 127.0.0.1:8080 or [::1]:8080", string(a))
	case strings.Trim(port, "0123456789") == "":
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%q is not the address of a listener: %s is no port, which are 0 to 65535; 0 picks one", string(a), port)
		}
	default:
		if _, err := net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("%q is not the address of a listener: %q is no port, which are 0 to 65535; 0 picks one", string(a), port)
		}
	}
	if host == "" {
		return nil // every address
	}
	p, err := settings.ParsePattern(strings.SplitN(host, "%", 2)[0]) // without a zone
	if err == nil {
		_, err = p.Host()
	}
	if err != nil {
		return fmt.Errorf("%q is not the address of a listener: %q is neither an address nor a name", string(a), host)
	}
	return nil
}

// reverse is a value of --reverse.
type reverse string

// parse reads URL=ADDR.
func (r reverse) parse() (to proxy.Reverse, addr listenAddr, err error) {
	if strings.Contains(string(r), "@") { // wherever it is, not to be quoted
		_, err = proxy.ParseReverse(string(r))
		return to, "", err
	}
	i := strings.LastIndexByte(string(r), '=')
	if i < 0 {
		return to, "", fmt.Errorf("%q is not URL=ADDR, as https://api.example=127.0.0.1:9000", string(r))
	}
	if to, err = proxy.ParseReverse(string(r[:i])); err != nil {
		return to, "", err
	}
	addr = listenAddr(r[i+1:])
	return to, addr, addr.check()
}

// check implements checker.
func (r reverse) check() error {
	_, _, err := r.parse()
	return err
}

// proxyAuth is USER:PASSWORD.
type proxyAuth string

// check implements checker.
func (a proxyAuth) check() error {
	_, err := proxy.ParseCredentials(string(a))
	return err
}

// credentials returns what clients must show; nil for nothing.
func (w *wayIn) credentials(o origins) (*proxy.Credentials, error) {
	if w.ProxyAuth == "" {
		return nil, nil
	}
	c, err := proxy.ParseCredentials(string(w.ProxyAuth))
	if err != nil {
		return nil, o.wrong("proxy-auth", 0, err)
	}
	return c, nil
}

// listeners are where clients come in.
type listeners struct {
	proxy   []net.Listener
	reverse []reverseListener
}

type reverseListener struct {
	net.Listener
	to proxy.Reverse
}

// listen opens every listener, or none.
func (w *wayIn) listen(o origins) (*listeners, error) {
	open := &listeners{}
	for i, addr := range w.Proxy {
		err := w.permit(addr)
		var l net.Listener
		if err == nil {
			l, err = listen(addr)
		}
		if err != nil {
			open.close()
			return nil, o.wrong("proxy", i, err)
		}
		open.proxy = append(open.proxy, l)
	}
	if len(open.proxy) == 0 {
		return nil, o.wrong("proxy", 0, errors.New("it names no address: give it one, or leave it out"))
	}
	for i, r := range w.Reverse {
		to, addr, err := r.parse()
		var l net.Listener
		if err == nil {
			l, err = listen(addr)
		}
		if err != nil {
			open.close()
			return nil, o.wrong("reverse", i, err)
		}
		open.reverse = append(open.reverse, reverseListener{l, to})
	}
	return open, nil
}

// permit refuses a listener that would be an open proxy without having been asked to: such are found and abused within hours.
func (w *wayIn) permit(addr listenAddr) error {
	if w.ProxyAuth != "" || w.AllowOpenProxy {
		return nil
	}
	at, err := net.ResolveTCPAddr("tcp", string(addr))
	if err != nil {
		return fmt.Errorf("find the address of a listener: %w", err)
	}
	if at.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("whoever reaches the listener on %s could use the proxy. Give it a user name and a password with --proxy-auth USER:PASSWORD, "+
		"or start with --allow-open-proxy in a network that you trust, or listen on 127.0.0.1", addr)
}

// proxyAddrs returns where the proxy listens.
func (l *listeners) proxyAddrs() (addrs []netip.AddrPort) {
	for _, each := range l.proxy {
		addrs = append(addrs, addrPort(each))
	}
	return addrs
}

func (l *listeners) close() {
	for _, each := range l.proxy {
		each.Close()
	}
	for _, each := range l.reverse {
		each.Close()
	}
}
