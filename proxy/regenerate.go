package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Regenerate puts a new authority in the place of the present one, and returns the directory, inside the authority's, where cert.pem and key.pem of
// the old one are kept: with them put back and Millpond started again, it is in force again.
//
// Handshakes that begin afterwards get the new authority, and resume no session of before; connections that stand are left alone.
// Devices have to install the new certificate.
func (ca *CA) Regenerate() (kept string, err error) {
	ca.replacing.Lock()
	defer ca.replacing.Unlock()
	next, kept, err := regenerate(ca.dir)
	if err == nil {
		ca.now.Store(next)
	}
	return kept, err
}

// RegenerateCA is Regenerate for an authority that no process has loaded, and that may be past use: expired, say. kept is empty where there was none.
func RegenerateCA(dir string) (ca *CA, kept string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("make the directory of the authority: %w", err)
	}
	next, kept, err := regenerate(dir)
	if err != nil {
		return nil, kept, err
	}
	ca = &CA{dir: dir}
	ca.now.Store(next)
	return ca, kept, nil
}

// regenerate makes an authority in the place of the one in dir.
//
// At no time do the two files contradict each other: first the old certificate goes, then the new key takes the old one's place, then the new certificate
// comes. Cut short anywhere, the next LoadCA finishes it, with an authority for the key that is there. Everything is on the disk before the first step, so
// that a full one spoils nothing.
func regenerate(dir string) (made *issuer, kept string, err error) {
	keyPEM, err := newKeyPEM()
	if err != nil {
		return nil, "", err
	}
	certPEM, err := newCertPEM(keyPEM)
	if err != nil {
		return nil, "", err
	}
	if made, err = newIssuer(certPEM, keyPEM); err != nil {
		return nil, "", fmt.Errorf("make a new authority: %w", err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	newKey, err := writeNew(keyFile, keyPEM)
	if err != nil {
		return nil, "", fmt.Errorf("write the new authority's key: %w", err)
	}
	defer os.Remove(newKey)
	newCert, err := writeNew(certFile, certPEM)
	if err != nil {
		return nil, "", fmt.Errorf("write the new authority's certificate: %w", err)
	}
	defer os.Remove(newCert)
	if kept, err = keepAside(dir); err != nil {
		return nil, "", fmt.Errorf("keep the old authority: %w", err)
	}
	if err := os.Remove(certFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, kept, fmt.Errorf("remove the old authority's certificate: %w", err)
	}
	for _, move := range [][2]string{{newKey, keyFile}, {newCert, certFile}} {
		if err := syncDir(dir); err != nil {
			return nil, kept, fmt.Errorf("put the new authority in place: %w", err)
		}
		if err := os.Rename(move[0], move[1]); err != nil {
			return nil, kept, fmt.Errorf("put the new authority in place: %w", err)
		}
	}
	if err := syncDir(dir); err != nil {
		return nil, kept, fmt.Errorf("put the new authority in place: %w", err)
	}
	return made, kept, nil
}

// keepAside copies the authority's files into a new directory beside them, named for the time, and returns it; empty where there are none.
func keepAside(dir string) (kept string, err error) {
	kept = filepath.Join(dir, "replaced-"+time.Now().UTC().Format("20060102T150405.000000000Z"))
	found := false
	for _, name := range []string{"key.pem", "cert.pem"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // there was none, or a replacement was cut short
		}
		if err == nil && !found {
			found = true
			err = os.Mkdir(kept, 0o700)
		}
		if err == nil {
			_, err = createOnce(filepath.Join(kept, name), func() ([]byte, error) { return data, nil })
		}
		if err != nil {
			return "", err
		}
	}
	if !found {
		return "", nil
	}
	return kept, syncDir(dir)
}
