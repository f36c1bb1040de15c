package settings

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// maxPEM bounds a client certificate with its chain and key, in bytes.
const maxPEM = 64 << 10

// hostCert is a client certificate and the hosts that get it.
type hostCert struct {
	Pattern
	certFile, keyFile string // empty: cert is all there is

	mu    sync.Mutex
	cert  *tls.Certificate
	stamp [2]fileStamp
}

// fileStamp tells whether a file was replaced.
type fileStamp struct {
	modified time.Time
	size     int64
}

func compileClientCerts(list []ClientCert) ([]*hostCert, error) {
	if len(list) > MaxEntries {
		return nil, fmt.Errorf("%d hosts; %d are the most", len(list), MaxEntries)
	}
	out := make([]*hostCert, len(list))
	for i, c := range list {
		p, err := ParsePattern(c.Host)
		if err != nil {
			return nil, err
		}
		h := &hostCert{Pattern: p, certFile: c.CertFile, keyFile: c.KeyFile}
		if h.keyFile == "" {
			h.keyFile = h.certFile
		}
		if h.certFile == "" {
			h.cert, err = parsePair([]byte(c.PEM), []byte(c.PEM))
		} else {
			_, err = h.current()
		}
		if err != nil {
			return nil, fmt.Errorf("for %s: %w", c.Host, err)
		}
		out[i] = h
	}
	return out, nil
}

// Leaf returns the certificate as it is now.
func (c ClientCert) Leaf() (*x509.Certificate, error) {
	var pair *tls.Certificate
	var err error
	switch {
	case c.CertFile == "":
		pair, err = parsePair([]byte(c.PEM), []byte(c.PEM))
	case c.KeyFile == "":
		pair, err = readPair(c.CertFile, c.CertFile)
	default:
		pair, err = readPair(c.CertFile, c.KeyFile)
	}
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// current returns the certificate, read anew if a file was replaced since. While the new files do not fit together the old one is used: one is replaced
// before the other.
func (h *hostCert) current() (*tls.Certificate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.certFile == "" {
		return h.cert, nil
	}
	var stamp [2]fileStamp
	for i, name := range []string{h.certFile, h.keyFile} {
		info, err := os.Stat(name)
		if err != nil && h.cert == nil {
			return nil, err
		}
		if err == nil {
			stamp[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	if h.cert != nil && stamp == h.stamp {
		return h.cert, nil
	}
	cert, err := readPair(h.certFile, h.keyFile)
	switch {
	case err == nil:
		h.cert, h.stamp = cert, stamp
	case h.cert == nil:
		return nil, err
	}
	return h.cert, nil
}

func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	var content [2][]byte
	for i, name := range []string{certFile, keyFile} {
		var err error
		if content[i], err = ReadFile(name, maxPEM); err != nil {
			return nil, err
		}
	}
	return parsePair(content[0], content[1])
}

// parsePair reads a certificate and its key. Its errors quote neither.
func parsePair(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	if len(certPEM) > maxPEM || len(keyPEM) > maxPEM {
		return nil, fmt.Errorf("larger than %d bytes", maxPEM)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	return &cert, nil
}
