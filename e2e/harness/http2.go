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
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	secure, err := tunnel(conn, authority, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open HTTP/2 connection: %w", err)
	}
	c := &Conn2{Framer: http2.NewFramer(secure, bufio.NewReader(secure)), Conn: secure, authority: authority}
	c.encoder = hpack.NewEncoder(&c.fields)
	if _, err := io.WriteString(secure, http2.ClientPreface); err != nil {
		return nil, err
	}
	return c, c.WriteSettings(settings...)
}

func tunnel(conn net.Conn, authority string, config *tls.Config) (*tls.Conn, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return nil, err
	}
	// The server says nothing in TLS before the client does, so nothing is lost in this buffer.
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("connect: %s", res.Status)
	}
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		return nil, err
	}
	config.ServerName = host
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		return nil, err
	}
	if got := secure.ConnectionState().NegotiatedProtocol; got != "h2" {
		return nil, fmt.Errorf("connect: the other side chose %q", got)
	}
	return secure, nil
}

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
