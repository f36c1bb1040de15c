package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	xproxy "golang.org/x/net/proxy"

	"millpond/settings"
	"millpond/storage"
)

// rules returns what holds now of the ways out. A connection keeps to those that held when it was made.
func (p *Proxy) rules() *settings.Rules {
	if p.cfg.Rules == nil {
		return noRules
	}
	return p.cfg.Rules()
}

var noRules = new(settings.Rules)

// anyOf asks a rule about a host by the names under which it is known, the one of TLS first, and the port of the authority that was asked for.
func anyOf[T comparable](rule func(host, port string) T, name, authority string) T {
	var none T
	host, port, err := splitAuthority(authority)
	if err != nil {
		return none
	}
	if v := rule(name, port); v != none || name == host {
		return v
	}
	return rule(host, port)
}

// passes reports whether what goes to an authority is to pass unread.
func (p *Proxy) passes(authority string) bool {
	host, _, err := splitAuthority(authority)
	return err == nil && anyOf(p.rules().Passthrough, host, authority)
}

// reach connects over TCP to an authority, directly or through the upstream proxy via. Its errors are those of dialContext, or *upstreamError.
func (p *Proxy) reach(ctx context.Context, via *settings.UpstreamProxy, authority string) (net.Conn, error) {
	if via == nil {
		return p.dialContext(ctx, "tcp", authority)
	}
	host, port, err := splitAuthority(authority)
	if err != nil {
		return nil, err
	}
	target := net.JoinHostPort(host, port)
	if p.isOwn(target) { // what is a name is the upstream proxy's to resolve
		return nil, fmt.Errorf("dial %s: %w", authority, errLoop)
	}
	nc, err := p.dialProxy(ctx, via)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.DialTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(longAgo) })
	out := nc
	if via.Scheme == "socks5" {
		err = askSOCKS(ctx, via, nc, target)
	} else {
		out, err = p.askConnect(ctx, via, nc, target)
	}
	if !stop() { // its deadline may be set yet, or later
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		nc.Close()
		return nil, explainProxy(via, target, err)
	}
	return out, nil
}

// dialProxy connects to the upstream proxy itself. Its errors are *upstreamError.
func (p *Proxy) dialProxy(ctx context.Context, via *settings.UpstreamProxy) (net.Conn, error) {
	nc, err := p.dialContext(ctx, "tcp", via.Authority)
	if err != nil {
		e := explainDial(via.Authority, err)
		e.reason = "the upstream proxy cannot be used: " + e.reason
		return nil, e
	}
	if via.Scheme != "https" {
		return nc, nil
	}
	host, _, _ := splitAuthority(via.Authority) // dialContext took it
	tc := tls.Client(nc, &tls.Config{
		ServerName: host, RootCAs: p.cfg.UpstreamRoots, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: p.cfg.InsecureUpstream || anyOf(p.rules().Insecure, host, via.Authority),
	})
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.DialTime)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		e := explainTLS(via.Authority, err)
		e.reason = "the upstream proxy cannot be used: " + e.reason
		return nil, e
	}
	return tc, nil
}

// proxyRefusal is an upstream proxy's answer to CONNECT that is no yes.
type proxyRefusal int

func (e proxyRefusal) Error() string {
	if e == http.StatusProxyAuthRequired {
		return "it wants other credentials (407)"
	}
	return fmt.Sprintf("it answers %d %s", int(e), http.StatusText(int(e)))
}

// askConnect asks an HTTP proxy for a tunnel, and returns the connection with what came after the answer.
func (p *Proxy) askConnect(ctx context.Context, via *settings.UpstreamProxy, nc net.Conn, target string) (net.Conn, error) {
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	for _, f := range p.fieldsForProxy(via, hopsOf(ctx)) {
		request += f.name + ": " + f.value + "\r\n"
	}
	if _, err := io.WriteString(nc, request+"\r\n"); err != nil {
		return nil, err
	}
	r := bufio.NewReader(nc)
	for limit := p.cfg.Limits.Head; ; {
		raw, err := readHead(r, limit)
		if err != nil {
			return nil, err
		}
		answer, err := parseResponseHead(raw)
		if err != nil {
			return nil, err
		}
		switch {
		case answer.status < 200:
			limit -= len(raw)
			continue
		case answer.status >= 300:
			return nil, proxyRefusal(answer.status)
		case r.Buffered() == 0:
			return nc, nil
		}
		return &bufferedConn{Conn: nc, r: r}, nil // upstream has spoken already
	}
}

// askSOCKS asks a SOCKS5 proxy for a connection to target, whose name it resolves.
func askSOCKS(ctx context.Context, via *settings.UpstreamProxy, nc net.Conn, target string) error {
	var auth *xproxy.Auth
	if via.User != nil {
		password, _ := via.User.Password()
		auth = &xproxy.Auth{User: via.User.Username(), Password: password}
	}
	d, err := xproxy.SOCKS5("tcp", via.Authority, auth, nil)
	if err != nil {
		return err
	}
	asker, ok := d.(interface {
		DialWithConn(ctx context.Context, c net.Conn, network, address string) (net.Addr, error)
	})
	if !ok {
		return errors.New("the SOCKS library cannot use a connection that stands")
	}
	_, err = asker.DialWithConn(ctx, nc, "tcp", target)
	return err
}

// explainProxy says why the upstream proxy gave no connection to target.
func explainProxy(via *settings.UpstreamProxy, target string, err error) *upstreamError {
	status, why := http.StatusBadGateway, strings.TrimPrefix(ended(err), "unknown error ")
	switch {
	case errors.Is(err, context.Canceled):
		why = "the client left before the connection stood"
	case isTimeout(err):
		status, why = http.StatusGatewayTimeout, "it did not answer in time"
	case errors.Is(err, proxyRefusal(http.StatusLoopDetected)):
		status = http.StatusLoopDetected
	}
	return &upstreamError{status, fmt.Sprintf("the upstream proxy %s gave no connection to %s: %s", via.Authority, target, why), err}
}

// dialRequest connects for a request to an authority. Where that is plain HTTP and an HTTP proxy lies between, the proxy is sent the request itself,
// in absolute form (RFC 9112, section 3.2.2), which many allow where they refuse CONNECT.
func (p *Proxy) dialRequest(ctx context.Context, scheme, authority string) (*upstreamConn, error) {
	via := p.rules().UpstreamProxy(authority)
	if scheme != "http" || via == nil || via.Scheme == "socks5" {
		return p.dial(ctx, scheme, authority)
	}
	if p.isOwn(authority) {
		return nil, explainDial(authority, errLoop)
	}
	times := storage.Setup{Connect: time.Now()}
	nc, err := p.dialProxy(noteLookUp(ctx, &times), via)
	if err != nil {
		return nil, err
	}
	times.Connected = time.Now()
	up := newUpstream(nc, nc.RemoteAddr().String(), times, nil)
	up.asked, up.via, up.absolute = authority, via, true
	return up, nil
}

// toProxy makes of a head for an origin the one that an HTTP proxy gets.
func (p *Proxy) toProxy(h *head, up *upstreamConn, t target, hops []string) *head {
	path := h.target
	if path == "*" { // RFC 9112, section 3.2.4
		path = ""
	}
	fields := append(append(make([]field, 0, len(h.fields)+2), h.fields...), p.fieldsForProxy(up.via, hops)...)
	return h.with(h.method+" "+t.scheme+"://"+t.host+path+" "+h.proto, fields)
}

// fieldsForProxy returns the fields that are for an upstream proxy alone.
func (p *Proxy) fieldsForProxy(via *settings.UpstreamProxy, hops []string) []field {
	var fields []field
	if via.User != nil {
		fields = append(fields, field{name: credentialsField, value: "Basic " + basic(via.User)})
	}
	return append(fields, field{name: hopsField, value: strings.Join(append(hops[:len(hops):len(hops)], p.mark), ", ")})
}

func basic(u *url.Userinfo) string {
	password, _ := u.Password()
	return base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + password))
}

// hopsField names, to an upstream proxy alone, the Millponds that a request came through, so that a ring of them is seen. No origin is sent it.
const hopsField = "Millpond-Hops"

// maxHops bounds a chain of proxies that all are Millponds.
const maxHops = 8

type hopsKey struct{}

func withHops(ctx context.Context, hops []string) context.Context {
	if len(hops) == 0 {
		return ctx
	}
	return context.WithValue(ctx, hopsKey{}, hops)
}

func hopsOf(ctx context.Context) []string {
	hops, _ := ctx.Value(hopsKey{}).([]string)
	return hops
}

// hopsIn returns the hops that a request for the proxy names. Where this proxy is one of them, or they are too many, it reports false.
func (p *Proxy) hopsIn(h *head) (hops []string, ok bool) {
	value, named := h.value(hopsField)
	if !named {
		return nil, true
	}
	for hop := range strings.SplitSeq(value, ",") {
		hop = strings.Trim(hop, " \t")
		if hop == p.mark || len(hops) == maxHops {
			return nil, false
		}
		hops = append(hops, hop)
	}
	return hops, true
}

// looped says why a request is refused that hopsIn is against.
var looped = "the request came back to Millpond, or through " + strconv.Itoa(maxHops) + " others: its upstream proxy leads to itself"
