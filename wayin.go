package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"millpond/proxy"
)

// wayIn are the flags about clients of the proxy.
type wayIn struct {
	Proxy              []string  `env:"MILLPOND_PROXY" default:"127.0.0.1:8080" placeholder:"ADDR" help:"A listener of the proxy, HOST:PORT, for HTTP and SOCKS5 alike; may be repeated. Port 0 picks one; 0.0.0.0 or [::] lets devices in the network use it, see --proxy-auth. ${default} where left out."`
	ProxyAuth          string    `env:"MILLPOND_PROXY_AUTH" placeholder:"USER:PASSWORD" help:"What clients of the proxy must show. Needed for a listener beyond loopback, unless --allow-open-proxy is given."`
	AllowOpenProxy     bool      `env:"MILLPOND_ALLOW_OPEN_PROXY" help:"Let a listener beyond loopback serve whoever reaches it. For a network that you trust."`
	AllowPublicClients bool      `env:"MILLPOND_ALLOW_PUBLIC_CLIENTS" help:"Serve clients whose address is one of the open internet's, too. Without it only loopback, private, link-local and carrier addresses are served."`
	ProxyTLS           bool      `env:"MILLPOND_PROXY_TLS" name:"proxy-tls" help:"Let clients speak TLS to the proxy itself (an https:// proxy), on the same port. The certificate is from Millpond's authority."`
	Reverse            []reverse `env:"MILLPOND_REVERSE" placeholder:"URL=ADDR" help:"A listener that forwards to one upstream, as https://api.example=127.0.0.1:9000; may be repeated. Host becomes upstream's."`
}

// reverse is a value of --reverse.
type reverse struct {
	to   proxy.Reverse
	addr string

	refused error
}

// check returns why a value with credentials is refused; see checker.
func (r *reverse) check() error { return r.refused }

// UnmarshalText reads URL=ADDR.
func (r *reverse) UnmarshalText(text []byte) error {
	if bytes.ContainsRune(text, '@') {
		_, r.refused = proxy.ParseReverse(string(text))
		return nil
	}
	i := bytes.LastIndexByte(text, '=')
	if i < 0 {
		return fmt.Errorf("%q is not URL=ADDR, as https://api.example=127.0.0.1:9000", text)
	}
	to, err := proxy.ParseReverse(string(text[:i]))
	if err != nil {
		return err
	}
	addr := string(text[i+1:])
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%q is not the address of a listener, as 127.0.0.1:9000: %w", addr, err)
	}
	r.to, r.addr = to, addr
	return nil
}

// credentials returns what clients must show; nil for nothing.
func (w *wayIn) credentials() (*proxy.Credentials, error) {
	if w.ProxyAuth == "" {
		return nil, nil
	}
	c, err := proxy.ParseCredentials(w.ProxyAuth)
	if err != nil {
		return nil, fmt.Errorf("read --proxy-auth: %w", err)
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
func (w *wayIn) listen() (*listeners, error) {
	for _, r := range w.Reverse {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("read --reverse: %w", err)
		}
	}
	open := &listeners{}
	for _, addr := range w.Proxy {
		if err := w.permit(addr); err != nil {
			open.close()
			return nil, err
		}
		l, err := listen("proxy", addr)
		if err != nil {
			open.close()
			return nil, err
		}
		open.proxy = append(open.proxy, l)
	}
	if len(open.proxy) == 0 {
		return nil, errors.New("listen for the proxy: --proxy names no address")
	}
	for _, r := range w.Reverse {
		l, err := listen("reverse", r.addr)
		if err != nil {
			open.close()
			return nil, err
		}
		open.reverse = append(open.reverse, reverseListener{l, r.to})
	}
	return open, nil
}

// permit refuses a listener that would be an open proxy without having been asked to: such are found and abused within hours.
func (w *wayIn) permit(addr string) error {
	if w.ProxyAuth != "" || w.AllowOpenProxy {
		return nil
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for the proxy on %s: %w", addr, err)
	}
	if at.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen for the proxy on %s: whoever reaches it could use it. Give it a user name and a password with --proxy-auth USER:PASSWORD, "+
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
