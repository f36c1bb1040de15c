package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"time"

	martian "github.com/google/martian/v3"
	martianlog "github.com/google/martian/v3/log"
	"github.com/google/martian/v3/mitm"

	"millpond/e2e/harness"
)

// peerFlags reads what both peers need: where to leave their certificate, and whom to trust.
func peerFlags(name string, args []string) (dir string, roots *x509.CertPool, err error) {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.StringVar(&dir, "dir", "", "where to put the certificate")
	upstream := flags.String("upstream-ca", "", "certificates to trust")
	if err := flags.Parse(args); err != nil {
		return "", nil, err
	}
	roots, err = harness.ReadPool(*upstream)
	return dir, roots, err
}

// runMartian is Martian's own proxy with interception and without any modifier: what it costs to capture nothing.
func runMartian(ctx context.Context, args []string, out io.Writer) error {
	martianlog.SetLevel(martianlog.Silent)
	dir, roots, err := peerFlags("martian", args)
	if err != nil {
		return err
	}
	ca, key, err := mitm.NewAuthority("Bench", "Bench", 24*time.Hour)
	if err != nil {
		return err
	}
	config, err := mitm.NewConfig(ca, key)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "martian.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600); err != nil {
		return err
	}
	proxy := martian.NewProxy()
	proxy.SetRoundTripper(&http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		DisableCompression:  true,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 64, // with net/http's default of two, most requests would dial
	})
	proxy.SetMITM(config)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "proxy", l.Addr())
	fmt.Fprintln(out, "ca", path)
	go func() { <-ctx.Done(); _ = l.Close() }()
	if err := proxy.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// runReverse is net/http's reverse proxy behind an intercepted CONNECT: HTTP/2 to client and origin, capturing nothing.
func runReverse(ctx context.Context, args []string, out io.Writer) error {
	dir, roots, err := peerFlags("reverse", args)
	if err != nil {
		return err
	}
	authority, err := harness.NewAuthority()
	if err != nil {
		return err
	}
	cert, err := authority.Server()
	if err != nil {
		return err
	}
	path, err := authority.WriteFile(dir)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		ForceAttemptHTTP2:   true,
	}
	server := &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host = "https", r.In.Host
			},
			Transport:     transport,
			FlushInterval: -1,
			ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}},
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "proxy", l.Addr())
	fmt.Fprintln(out, "ca", path)
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.Serve(tls.NewListener(&connectListener{l}, server.TLSConfig)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connectListener answers the CONNECT at the start of each connection, whatever its target.
type connectListener struct{ net.Listener }

func (l *connectListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connectConn{Conn: conn}, nil
}

type connectConn struct {
	net.Conn
	open bool
}

func (c *connectConn) Read(p []byte) (int, error) {
	if !c.open {
		c.open = true
		// The client says nothing more before it is answered.
		if _, err := http.ReadRequest(bufio.NewReader(c.Conn)); err != nil {
			return 0, err
		}
		if _, err := io.Copy(c.Conn, bytes.NewBufferString("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}
