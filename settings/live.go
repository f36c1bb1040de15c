package settings

import (
	"encoding/json"
	"fmt"
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
// What the store keeps and is not valid any more is left out, and the error says so; the settings can be used all the same.
func Load(store *storage.Store, start Out, origin map[string]string) (*Live, error) {
	rules, err := Compile(start)
	if err != nil {
		return nil, err
	}
	l := &Live{store: store, start: start, origin: origin}
	l.rules.Store(rules)
	kept, err := store.Setting(record)
	if err != nil || kept == nil {
		return l, err
	}
	var own Out
	if err := json.Unmarshal(kept, &own); err != nil {
		return l, fmt.Errorf("read the settings that were made in the dashboard: %w", err)
	}
	all, err := Compile(start, own)
	if err != nil {
		return l, fmt.Errorf("use the settings that were made in the dashboard: %w", err)
	}
	l.own = own
	l.rules.Store(all)
	return l, nil
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
