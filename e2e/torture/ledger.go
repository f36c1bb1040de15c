package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millpond/e2e/harness"
)

// exchange is one request that a client made, and what is known of it from outside.
type exchange struct {
	path     string // no two have the same
	cycle    int
	kind     kind
	protocol harness.Protocol
	up, down harness.Body // what the client sends, and what the origin answers
	pace     time.Duration
	chunked  bool
	messages uint64 // of a WebSocket: the seed of the first message
	keep     bool   // it is not deleted with the others of its load

	sent atomic.Int64 // bytes of up that the origin has
	had  atomic.Int64 // bytes of down that the client has

	// The ledger's lock guards what follows.
	asked   time.Time   // when the client began
	begun   time.Time   // when the client had the response's head; zero for never
	ended   time.Time   // when the client had all, or left; zero where it broke off
	left    bool        // the client left before the end
	echoed  []time.Time // of a WebSocket: when each message was back
	history []amount    // of an open body: how much had passed when
	fate    *fate       // how the program that captured it ended; nil while it runs

	id       uint64
	durable  bool   // it was told to be, with this state and these sizes
	unsynced bool   // it was not, when its program ended
	state    string // as last told
	sizes    [2]int64
	settled  bool // it was found after a restart, durable: it stays like that
	kept     [2]int64
	deleting bool // its deletion was asked for, and not answered
	mark     mark
	marks    []mark // asked for, and not answered
}

// mark is what people put on a session.
type mark struct {
	Note   string `json:"note"`
	Pinned bool   `json:"pinned"`
}

type amount struct {
	at    time.Time
	bytes int64
}

// fate is how a program ended, and what may be missing for that.
type fate struct {
	power    bool          // the power was cut
	at       time.Time     // when
	slack    time.Duration // what ended so long before is whole, unless the power was cut
	unclear  time.Duration // how much earlier than at it may have been
	from, to time.Time     // while the disk did not work; zero for never
}

// slowSync is how long before the disk failed what was not told to be durable may have ended and still wait for a sync, on a disk that others use, too.
const slowSync = 5 * time.Second

// faulty tells whether the disk did not work during some of the exchange, or while its end waited for a sync.
func (f *fate) faulty(e *exchange) bool {
	from := f.from
	if e.unsynced {
		from = from.Add(-slowSync)
	}
	return !f.from.IsZero() && (e.ended.IsZero() || e.ended.After(from)) && e.asked.Before(f.to)
}

// ledger is what was acknowledged. Nothing in it comes from the program's own files.
type ledger struct {
	mu      sync.Mutex
	all     map[string]*exchange // by path; but for the deleted
	deleted map[string]uint64    // the ids of those whose deletion was acknowledged or found, by path; 0 for unknown
	gone    map[uint64]bool      // the same ids
	paths   map[uint64]string    // of every id ever told

	violations []string
}

func newLedger() *ledger {
	return &ledger{all: map[string]*exchange{}, deleted: map[string]uint64{}, gone: map[uint64]bool{}, paths: map[uint64]string{}}
}

// violated notes a breach of the contract.
func (l *ledger) violated(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

// drop moves an exchange to the deleted. l.mu is held.
func (l *ledger) drop(e *exchange) {
	delete(l.all, e.path)
	l.deleted[e.path] = e.id
	if e.id != 0 {
		l.gone[e.id] = true
	}
}

// saw notes what the program tells of sessions, which may be of any cycle.
func (l *ledger) saw(list []summary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		s := &list[i]
		if path, known := l.paths[s.ID]; known && path != s.Path {
			l.violations = append(l.violations, fmt.Sprintf("id %d was given to %s, and is %s's", s.ID, path, s.Path))
		}
		l.paths[s.ID] = s.Path
		e := l.all[s.Path]
		if e == nil {
			continue
		}
		if e.id != 0 && e.id != s.ID {
			l.violations = append(l.violations, fmt.Sprintf("%s had id %d, and has %d", s.Path, e.id, s.ID))
		}
		e.id = s.ID
		if s.State == "open" {
			continue
		}
		sizes := [2]int64{s.RequestBytes, s.ResponseBytes}
		if e.durable && (e.state != s.State || e.sizes != sizes) {
			l.violations = append(l.violations, fmt.Sprintf("%s was durable as %s %v, and is %s %v", s.Path, e.state, e.sizes, s.State, sizes))
		}
		e.state, e.sizes = s.State, sizes
		e.durable = e.durable || s.Durable
	}
}

// sawDurable notes that every session up to the id is durable that had ended when the list was made.
func (l *ledger) sawDurable(list []summary, until uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if s := &list[i]; s.ID <= until && s.State != "open" {
			if e := l.all[s.Path]; e != nil {
				e.durable = true
			}
		}
	}
}
