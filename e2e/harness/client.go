package harness

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
)

// NewClient returns a client that speaks the protocol, through the proxy (empty: directly), and trusts the roots.
// It asks for no compression, follows no redirects, and has no time limit.
func NewClient(p Protocol, proxy string, roots *x509.CertPool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1024,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(p != HTTP2)
	transport.Protocols.SetHTTP2(p == HTTP2)
	if proxy != "" {
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Client returns a client that goes through the program and trusts its authority. Its connections end with the test.
func (p *Program) Client(t testing.TB, protocol Protocol) *http.Client {
	t.Helper()
	roots, err := ReadPool(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	client := NewClient(protocol, p.Proxy, roots)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// StartBoth starts an origin, and the program so that it trusts the origin's authority.
func StartBoth(t testing.TB, args ...string) (*Program, *Origin) {
	t.Helper()
	origin := StartOrigin(t)
	return Start(t, "", append(origin.Trusted(t), args...)...), origin
}

// Trusted returns the arguments that make a program trust the origin's certificates.
func (o *Origin) Trusted(t testing.TB) []string {
	t.Helper()
	path, err := o.Authority.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--upstream-ca", path}
}

// Download gets the address and returns the digest and size of the body.
func Download(client *http.Client, address string) (digest string, size int64, err error) {
	res, err := client.Get(address)
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return "", 0, fmt.Errorf("get %s: %s: %s", address, res.Status, text)
	}
	return Digest(res.Body)
}

// Send posts the body to an origin, with a Content-Length or chunked, and returns what the origin says it received.
func Send(client *http.Client, address string, b Body, framing Framing) (Upload, error) {
	req, err := http.NewRequest(http.MethodPost, address, io.NopCloser(b.Reader()))
	if err != nil {
		return Upload{}, err
	}
	req.ContentLength = -1
	if framing == Fixed {
		req.ContentLength = b.Size
		if b.Size == 0 {
			req.Body = http.NoBody
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return Upload{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4_096))
	if err != nil {
		return Upload{}, fmt.Errorf("read answer to upload: %w", err)
	}
	var got Upload
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&got); err != nil {
		return Upload{}, fmt.Errorf("read answer to upload: %s: %w: %s", res.Status, err, text)
	}
	return got, nil
}
