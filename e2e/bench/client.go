package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"millpond/e2e/harness"
)

// target says whom a load goes to, and which way.
type target struct {
	protocol harness.Protocol
	origin   string // host:port
	proxy    string // host:port; empty for none
	roots    *x509.CertPool
}

// client is one connection, which carries one exchange at a time.
type client interface {
	// get asks for the path and returns the response, whose body is to be read to its end.
	get(ctx context.Context, path string) (*http.Response, error)
	close()
}

func (t target) dial(ctx context.Context) (client, error) {
	if t.protocol == harness.HTTP2 {
		return &client2{harness.NewClient(t.protocol, t.proxy, t.roots), "https://" + t.origin}, nil
	}
	return t.dial1(ctx)
}

// client1 is a client of HTTP/1.1 that does no more than it must, so that what is measured is not the client.
type client1 struct {
	conn   net.Conn
	r      *bufio.Reader
	before string // of the path in a request
	after  string
}

func (t target) dial1(ctx context.Context) (client, error) {
	address := t.origin
	if t.proxy != "" {
		address = t.proxy
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &client1{conn: conn, before: "GET ", after: " HTTP/1.1\r\nHost: " + t.origin + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"}
	if t.proxy != "" && t.protocol == harness.HTTP {
		c.before = "GET http://" + t.origin
	}
	if t.protocol == harness.HTTPS {
		if c.conn, err = t.secure(ctx, conn); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	c.r = bufio.NewReaderSize(c.conn, 64<<10)
	return c, nil
}

// secure asks the proxy, where there is one, for a tunnel, and speaks TLS in it.
func (t target) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if t.proxy != "" {
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", t.origin, t.origin); err != nil {
			return nil, err
		}
		// The server says nothing in TLS before the client does, so nothing is lost in this buffer.
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err != nil {
			return nil, fmt.Errorf("open tunnel: %w", err)
		}
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("open tunnel: %s", res.Status)
		}
	}
	host, _, err := net.SplitHostPort(t.origin)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: t.roots, ServerName: host, NextProtos: []string{"http/1.1"}})
	return secure, secure.HandshakeContext(ctx)
}

func (c *client1) get(ctx context.Context, path string) (*http.Response, error) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.conn.SetDeadline(deadline)
	}
	var request strings.Builder
	request.WriteString(c.before)
	request.WriteString(path)
	request.WriteString(c.after)
	if _, err := io.WriteString(c.conn, request.String()); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, nil)
}

func (c *client1) close() { _ = c.conn.Close() }

// client2 is net/http's client of HTTP/2, with a connection of its own.
type client2 struct {
	*http.Client
	base string
}

func (c *client2) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err == nil && res.ProtoMajor != 2 {
		res.Body.Close()
		return nil, fmt.Errorf("get %s: answered in %s", path, res.Proto)
	}
	return res, err
}

func (c *client2) close() { c.CloseIdleConnections() }
