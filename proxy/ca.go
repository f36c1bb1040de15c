package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// caLifetime is how long a new authority is valid. Devices have it installed by hand, so it is long.
const caLifetime = 10 * 365 * 24 * time.Hour

// CA is the certificate authority that clients trust. Its methods are safe for concurrent use.
type CA struct {
	dir       string
	replacing sync.Mutex
	now       atomic.Pointer[issuer]
}

// issuer is one authority, and what ends with it when another takes its place.
type issuer struct {
	cert   *x509.Certificate
	leaves *leaves

	// The configurations of handshakes with clients are here because the keys of session tickets belong to them: a client that resumes
	// is shown no certificate.
	inside *tls.Config // of a tunnel; see newServerTLS
	own    *tls.Config // to the proxy itself; see newOwnTLS
}

// LoadCA opens the authority in dir (cert.pem, and key.pem of mode 0600), making it where there is none.
//
// The key is written first and the certificate is made for the key that is there, and neither file is ever replaced.
// So a creation that was cut short is finished by the next, and two processes that create at the same time end with one authority.
func LoadCA(dir string) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the authority: %w", err)
	}
	keyFile, certFile := filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
	keyPEM, err := os.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, noCert := os.Stat(certFile); noCert != nil {
			keyPEM, err = createOnce(keyFile, newKeyPEM)
		} else if keyPEM, err = os.ReadFile(keyFile); errors.Is(err, fs.ErrNotExist) { // looked for again: another may just have made both
			return nil, fmt.Errorf("open the authority: %s has no key.pem beside it: put the key back, or remove cert.pem to have a new authority made", certFile)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the key of the authority: %w", err)
	}
	if err := closeToOthers(keyFile); err != nil {
		return nil, err
	}
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		certPEM, err = createOnce(certFile, func() ([]byte, error) { return newCertPEM(keyPEM) })
	}
	if err != nil {
		return nil, fmt.Errorf("open the certificate of the authority: %w", err)
	}
	i, err := newIssuer(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("open the authority in %s: %w", dir, err)
	}
	ca := &CA{dir: dir}
	ca.now.Store(i)
	return ca, nil
}

func newIssuer(certPEM, keyPEM []byte) (*issuer, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	switch now := time.Now(); {
	case !pair.Leaf.IsCA:
		return nil, fmt.Errorf("the certificate of %q is not an authority's", pair.Leaf.Subject.CommonName)
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("its certificate expired on %s: `millpond ca --regenerate` makes a new one, to be installed on your devices", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", pair.PrivateKey)
	}
	leaves, err := newLeaves(pair.Leaf, key)
	if err != nil {
		return nil, err
	}
	return &issuer{cert: pair.Leaf, leaves: leaves, inside: newServerTLS(), own: newOwnTLS()}, nil
}

// Certificate is what devices install.
func (ca *CA) Certificate() *x509.Certificate { return ca.current().cert }

func (ca *CA) current() *issuer { return ca.now.Load() }

func newKeyPEM() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// newCertPEM returns a self-signed authority for the key. It can sign leaves only: its path length is zero.
func newCertPEM(keyPEM []byte) ([]byte, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("key.pem holds no PEM block")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key.pem: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", parsed)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: caName(), Organization: []string{"Millpond"}},
		NotBefore:             now.Add(-leafValidity), // as early as its first leaf, for devices whose clock is behind
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		// CreateCertificate derives the subject key identifier from the key.
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// caName tells the authorities of several machines apart in a device's list. A common name holds 64 characters at most (RFC 5280, appendix A.1).
func caName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "Millpond CA"
	}
	return fmt.Sprintf("Millpond CA (%.*s)", 64-len("Millpond CA ()"), host)
}

// createOnce makes the file whole or not at all, and never replaces one: where another process was first, it returns what that one wrote.
func createOnce(name string, content func() ([]byte, error)) ([]byte, error) {
	data, err := content()
	if err != nil {
		return nil, err
	}
	made, err := writeNew(name, data)
	if err != nil {
		return nil, err
	}
	defer os.Remove(made)
	err = os.Link(made, name)
	if errors.Is(err, fs.ErrExist) {
		return os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	return data, syncDir(filepath.Dir(name))
}

// writeNew writes the data, synced, to a new file of mode 0600 beside the name that it is meant for, and returns the file's own.
func writeNew(name string, data []byte) (made string, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.new") // of mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// syncDir makes a new name in a directory durable, where the system lets directories be synced.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

// closeToOthers takes the key from everyone but its owner: a copied or restored key is often readable by all.
func closeToOthers(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("look at the key of the authority: %w", err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return fmt.Errorf("make the key of the authority private: %w", err)
	}
	return nil
}
