package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"millpond/proxy"
	"millpond/settings"
	"millpond/storage"
)

type verifyCommand struct {
	Full   bool `help:"Read every byte: the checksum of each record, the hash of each chunk and of each whole body."`
	Repair bool `help:"Read every byte, and mend what can be: make the index again from the log, move what is damaged to damaged/ in the data directory, and note on each session what it lost. It can be broken off and run again. It fails if anything was lost, or is still wrong."`
}

// Run prints one line for each thing that is wrong, and fails if there is any.
func (c verifyCommand) Run(line *commandLine, s *streams) error {
	if c.Repair {
		return c.repair(string(line.Data), s)
	}
	problems := 0
	looked, err := storage.Verify(string(line.Data), c.Full, func(problem string) {
		problems++
		fmt.Fprintln(s.out, problem)
	})
	if err != nil {
		return err
	}
	for _, err := range []error{settings.Check(string(line.Data)), checkCA(filepath.Join(string(line.Data), "ca"))} {
		if err != nil {
			problems++
			fmt.Fprintln(s.out, err)
		}
	}
	if problems > 0 {
		return fmt.Errorf("%s: %d things are wrong", string(line.Data), problems)
	}
	how := "their structure; --full reads every byte"
	if c.Full {
		how = "every byte"
	}
	_, err = fmt.Fprintf(s.out, "nothing is wrong; looked at %s, %s, %s, %s: %s\n",
		counted(looked.Sessions, "session"), counted(looked.Segments, "log segment"), counted(looked.Chunks, "chunk"), counted(looked.Bytes, "byte"), how)
	return err
}

// repair prints one line for each thing that is wrong, is done and is lost. It fails if something was lost or is still wrong.
func (c verifyCommand) repair(data string, s *streams) error {
	done, err := storage.Repair(data, func(text string) { fmt.Fprintln(s.out, text) })
	if err != nil {
		return dataDir(data).unwritable(err)
	}
	if err := settings.Check(data); err != nil {
		done.Left++
		fmt.Fprintln(s.out, err)
	}
	if err := checkCA(filepath.Join(data, "ca")); err != nil {
		done.Left++
		fmt.Fprintln(s.out, err)
		fmt.Fprintln(s.out, "millpond ca --regenerate makes a new authority")
	}
	switch {
	case done.Left > 0:
		return fmt.Errorf("%s: %s still wrong", data, counted(uint64(done.Left), "thing"))
	case done.MayMiss:
		return fmt.Errorf("%s: it holds together again; %s lost something, and is marked; what else may be lost is not marked: deletions, pins and notes", data, counted(uint64(done.Lost), "session"))
	case done.Lost > 0:
		return fmt.Errorf("%s: it holds together again; %s lost something, and is marked", data, counted(uint64(done.Lost), "session"))
	case done.Wrong > 0:
		_, err = fmt.Fprintln(s.out, "all is mended, and nothing was lost")
	default:
		_, err = fmt.Fprintln(s.out, "nothing is wrong, and nothing was changed")
	}
	return err
}

// counted is a number of things in words: 1 session, 2 sessions.
func counted(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// checkCA opens the authority in dir, where there is one: the next start makes one that is missing.
func checkCA(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cert.pem")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := proxy.LoadCA(dir)
	return err
}

type caCommand struct {
	Regenerate bool `help:"Make a new authority in the place of the present one, which is kept aside. Every device has to install the new certificate. While Millpond runs, its dashboard does it."`
}

// Run prints the certificate as PEM.
func (c caCommand) Run(line *commandLine, s *streams) error {
	dir := filepath.Join(string(line.Data), "ca")
	var ca *proxy.CA
	var err error
	if c.Regenerate {
		ca, err = c.regenerate(string(line.Data), dir, s.err)
	} else {
		ca, err = proxy.LoadCA(dir)
	}
	if err != nil {
		return line.Data.unwritable(err)
	}
	return pem.Encode(s.out, &pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw})
}

// regenerate replaces the authority of a data directory that no Millpond serves, and tells where the old one is.
func (c caCommand) regenerate(data, dir string, out io.Writer) (*proxy.CA, error) {
	release, err := storage.Hold(data)
	if errors.Is(err, storage.ErrLocked) {
		return nil, fmt.Errorf("%w: stop that Millpond first, or make the new authority on its dashboard, under Connect a device", err)
	}
	if err != nil {
		return nil, err
	}
	defer release()
	ca, kept, err := proxy.RegenerateCA(dir)
	if err != nil {
		return nil, err
	}
	if kept != "" {
		fmt.Fprintf(out, "The old authority is kept in %s.\n", kept)
	}
	return ca, nil
}

type healthcheckCommand struct {
	Dashboard string `env:"MILLPOND_DASHBOARD" default:"127.0.0.1:8081" placeholder:"ADDR" help:"The dashboard's listener."`
}

// Run fails unless the dashboard answers within a few seconds.
func (c healthcheckCommand) Run() error {
	host, port, err := net.SplitHostPort(c.Dashboard)
	if err != nil {
		return fmt.Errorf("read the dashboard's address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{Proxy: nil}}
	answer, err := client.Get("http://" + net.JoinHostPort(host, port) + "/healthz")
	if err != nil {
		return fmt.Errorf("ask the dashboard: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the dashboard: it answers %s", answer.Status)
	}
	return nil
}
