package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"millpond/storage"
)

// record is the name under which the store keeps what was set while Millpond ran.
const record = "out"

// Live are the settings of a running Millpond: those of its start, and those that were set since, which the store keeps.
type Live struct {
	store  *storage.Store
	start  Out
	origin map[string]string

	mu    sync.Mutex
	own   Out
	rules atomic.Pointer[Rules]
}

// Load makes the settings of a start, and of what the store keeps. origin names, by JSON name, where a value of the start came from.
// What the store keeps and cannot be used is an error, which names its file: its limits are not to become the defaults, by which sessions would go, nor its
// hosts that pass unread be read.
func Load(store *storage.Store, start Out, origin map[string]string) (*Live, error) {
	rules, err := Compile(start)
	if err != nil {
		return nil, err
	}
	l := &Live{store: store, start: start, origin: origin}
	l.rules.Store(rules)
	kept, err := store.Setting(record)
	if err == nil && kept == nil {
		return l, nil
	}
	if err == nil {
		l.own, rules, err = parse(kept, start)
	}
	if err != nil {
		return nil, unusable(store.SettingFile(record), err)
	}
	l.rules.Store(rules)
	return l, nil
}

// Check reports what is wrong with the settings that were made in the dashboard, in the data directory dir, which no process has open.
func Check(dir string) error {
	kept, file, err := storage.StoppedSetting(dir, record)
	if err == nil && kept != nil {
		_, _, err = parse(kept, Out{})
	}
	if err != nil {
		return unusable(file, err)
	}
	return nil
}

// parse reads what the store keeps, and makes the rules of it and a start.
func parse(kept []byte, start Out) (own Out, rules *Rules, err error) {
	reader := json.NewDecoder(bytes.NewReader(kept))
	reader.DisallowUnknownFields() // a newer program's, or a damaged name: it was set all the same
	if err := reader.Decode(&own); err != nil {
		return own, nil, fmt.Errorf("it is damaged: %w", err)
	}
	if _, err := reader.Token(); err != io.EOF {
		return own, nil, errors.New("it is damaged: more follows its end")
	}
	own.zeroIsNone()
	rules, err = Compile(start, own)
	return own, rules, err
}

func unusable(file string, err error) error {
	return fmt.Errorf("%s, which holds what was set in the dashboard (limits, hosts that pass unread), cannot be used: %w: put the file back from a backup, or remove it; then what the start does not set is the default again, also how much is kept", file, err)
}

// Rules returns what holds now.
func (l *Live) Rules() *Rules { return l.rules.Load() }

// Start returns what was set at the start, and where each value came from, by JSON name. Neither is to be changed.
func (l *Live) Start() (Out, map[string]string) { return l.start, l.origin }

// Own returns what was set since. Its lists are not to be changed.
func (l *Live) Own() Out {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

// Change has change alter a copy of what was set since, and uses that from then on, the limits too. Its lists are to be replaced, not altered. An error, change's own too,
// leaves all as it was.
func (l *Live) Change(change func(*Out) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.own
	if err := change(&own); err != nil {
		return err
	}
	rules, err := Compile(l.start, own)
	if err != nil {
		return &InvalidError{err}
	}
	kept, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	if err := l.store.PutSetting(record, kept); err != nil {
		return err
	}
	l.own = own
	l.rules.Store(rules)
	l.store.Retain(rules.limits)
	return nil
}

// InvalidError says why a value cannot be set.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }
