package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"millpond/settings"
	"millpond/storage"
)

// The values of settings that are about neither way; see checker.

// dataDir is a directory that is or can be made.
type dataDir string

func (d dataDir) check() error {
	info, err := os.Stat(string(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: name a directory, or one that can be made", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: name one, or one that can be made", string(d))
	}
	return nil
}

// unwritable adds to the error of what was to be written there what to do, where that is not allowed.
func (d dataDir) unwritable(err error) error {
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	return fmt.Errorf("%w: make %s and what is in it writable for the user that runs Millpond, or name another directory with --data", err, string(d))
}

// token opens the dashboard.
type token string

// check refuses what the link with the token, or a browser, would read otherwise. It does not quote the token.
func (t token) check() error {
	for _, c := range t {
		if c <= ' ' || c > '~' || strings.ContainsRune(`"#%&+<>`, c) {
			return fmt.Errorf("%q has a meaning of its own in a link, or none: use letters, digits, - and _", c)
		}
	}
	return nil
}

// allowHost is a name of the dashboard's, with a port or without.
type allowHost string

// name returns it as a browser sends it.
func (h allowHost) name() (string, error) {
	p, err := settings.ParsePattern(string(h))
	if err == nil {
		var name string
		if name, err = p.Host(); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("%q is not a name by which browsers reach the dashboard: want NAME or NAME:PORT, as pond.example or pond.example:8443", string(h))
}

func (h allowHost) check() error {
	_, err := h.name()
	return err
}

// allowed returns the names, which were checked.
func allowed(hosts []allowHost) (names []string) {
	for _, h := range hosts {
		if name, err := h.name(); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// maxRoots bounds the file of further roots, in bytes: dozens of what a system trusts.
const maxRoots = 16 << 20

// rootsFile is a file of certificates, PEM.
type rootsFile string

func (f rootsFile) check() error {
	_, err := f.pool()
	return err
}

// pool returns the system's roots and those of the file; nil, for the system's alone, without one.
func (f rootsFile) pool() (*x509.CertPool, error) {
	if f == "" {
		return nil, nil
	}
	pem, err := settings.ReadFile(string(f), maxRoots)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without roots of its own
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate: want one or more, -----BEGIN CERTIFICATE-----", string(f))
	}
	return pool, nil
}

// slowDisk is what happens when the disk is slower than the traffic.
type slowDisk string

func (s slowDisk) check() error { return choice(string(s), "wait", "cut") }

func (s slowDisk) kind() storage.SlowDisk {
	if s == "cut" {
		return storage.Cut
	}
	return storage.Wait
}

// logFormat is the form of the log.
type logFormat string

func (f logFormat) check() error { return choice(string(f), "text", "json") }
