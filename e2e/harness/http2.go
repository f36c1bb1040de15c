package harness

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Conn2 is a client's HTTP/2 connection through a proxy, frame by frame. Nobody reads it unless the test does.
type Conn2 struct {
	*http2.Framer
	net.Conn

	authority string
	fields    bytes.Buffer
	encoder   *hpack.Encoder
}

// DialHTTP2 opens a tunnel through the proxy to the authority (host:port), speaks TLS and sends the preface with the settings.
func DialHTTP2(proxy, authority string, roots *x509.CertPool, settings ...http2.Setting) (*Conn2, error) {
	secure, err := DialTLS(proxy, authority, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err != nil {
		return nil, fmt.Errorf("open HTTP/2 connection: %w", err)
	}
	if got := secure.ConnectionState().NegotiatedProtocol; got != "h2" {
		_ = secure.Close()
		return nil, fmt.Errorf("open HTTP/2 connection: the other side chose %q", got)
	}
	c := &Conn2{Framer: http2.NewFramer(secure, bufio.NewReader(secure)), Conn: secure, authority: authority}
	c.encoder = hpack.NewEncoder(&c.fields)
	if _, err := io.WriteString(secure, http2.ClientPreface); err != nil {
		return nil, err
	}
	return c, c.WriteSettings(settings...)
}

// DialTLS opens a tunnel through the proxy to the authority (host:port) and does TLS in it. Where config names no server, it is the authority's host.
func DialTLS(proxy, authority string, config *tls.Config) (*tls.Conn, error) {
	conn, err := Dial(proxy, authority)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(authority)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// Dial opens a tunnel through the proxy to the authority (host:port).
func Dial(proxy, authority string) (net.Conn, error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	if err := connect(conn, authority); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", authority, err)
	}
	return conn, nil
}

// connect reads the answer byte by byte: what upstream says first comes right behind it.
func connect(conn net.Conn, authority string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return err
	}
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		var one [1]byte
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			return err
		}
		head = append(head, one[0])
	}
	if string(head) != Connected {
		return fmt.Errorf("the proxy answered %q", head)
	}
	return nil
}

// Connected is how the program answers a CONNECT: without any field.
const Connected = "HTTP/1.1 200 Connection established\r\n\r\n"

// Get sends a request without a body on the stream. Streams are odd, and only grow.
func (c *Conn2) Get(stream uint32, path string) error {
	c.fields.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: http.MethodGet},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: c.authority},
		{Name: ":path", Value: path},
	} {
		if err := c.encoder.WriteField(f); err != nil {
			return err
		}
	}
	return c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      stream,
		BlockFragment: c.fields.Bytes(),
		EndHeaders:    true,
		EndStream:     true,
	})
}
