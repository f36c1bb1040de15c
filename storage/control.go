package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// controlName is a file that only the user who runs Millpond can read: where a command reaches the process that holds the directory, and what shows that it
// may. A backup does not have it.
const controlName = "control"

// Control is how a command reaches the Millpond that holds a data directory.
type Control struct {
	Address string `json:"address"` // host:port of the dashboard's listener
	Secret  string `json:"secret"`
	Process int    `json:"process"`
}

// ErrNoControl says that the process which holds the data directory cannot be reached by commands.
var ErrNoControl = errors.New("the process that holds the data directory takes no commands")

// ControlledAt tells commands of the same user how to reach this process, until Close.
func (s *Store) ControlledAt(address, secret string) error {
	b, err := json.Marshal(Control{Address: address, Secret: secret, Process: os.Getpid()})
	if err != nil {
		return fmt.Errorf("write control file: %w", err)
	}
	if err := s.files.Remove(controlName); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return fmt.Errorf("write control file: %w", err)
	}
	f, err := s.files.OpenFile(controlName, os.O_CREATE|os.O_EXCL|os.O_WRONLY) // of mode 0600
	if err != nil {
		return fmt.Errorf("write control file: %w", err)
	}
	s.controlled.Store(true)
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write control file: %w", err)
	}
	return nil
}

// ReadControl returns how to reach the process that holds the directory. It is ErrNoControl where that one takes no commands: it is starting or stopping, it
// is another command, or the file is of a process that was killed.
func ReadControl(dir string) (Control, error) {
	var c Control
	b, err := os.ReadFile(filepath.Join(dir, controlName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, ErrNoControl
	case err != nil:
		return c, fmt.Errorf("read control file (only the user who runs Millpond can): %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%w (%w)", ErrNoControl, err) // it is being written
	}
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return c, fmt.Errorf("read lock of data directory: %w", err)
	}
	defer f.Close()
	if !strings.HasPrefix(holder(f), fmt.Sprintf("process %d on ", c.Process)) {
		return c, ErrNoControl
	}
	return c, nil
}
