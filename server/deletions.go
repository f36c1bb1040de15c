package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"millpond/storage"
)

const (
	// maxDeletions bounds the deletions of many sessions that run, wait or failed at a time, and with those the notices of ended ones. One runs.
	maxDeletions = 8

	// endedShown is how long one that ended is still told of, so that who asked learns how many went.
	endedShown = time.Minute

	// deleteStep is how many sessions are deleted before a deletion's progress is told again.
	deleteStep = 500
)

// deletions are the deletions of many sessions, in their order.
type deletions struct {
	store *storage.Store
	now   func() time.Time
	turn  chan struct{} // holds a value while one runs

	mu   sync.Mutex
	last uint64
	all  []*deletion
}

// deletion is one of them. What is not set by start is under deletions.mu.
type deletion struct {
	Deletion
	matches storage.Match // nil: every session
	cutoff  uint64        // what began after it stays
	ctx     context.Context
	cancel  context.CancelFunc
}

func newDeletions(store *storage.Store, now func() time.Time) *deletions {
	return &deletions{store: store, now: now, turn: make(chan struct{}, 1)}
}

// start enters a deletion, which run does. An error is a Problem.
func (d *deletions) start(ctx context.Context, filter string) (*deletion, error) {
	matches, err := parseFilter(filter)
	if err != nil {
		return nil, err
	}
	if matches == nil && filter != "" { // all is deleted only by who asks for all
		return nil, problem(http.StatusUnprocessableEntity, "The filter %q leaves nothing out. Say what is to go.", filter)
	}
	status := d.store.Status()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expire(); len(d.all) >= maxDeletions && !d.makeRoom() {
		return nil, problem(http.StatusServiceUnavailable, "There are %d deletions already. Wait until one has ended, or cancel one.", maxDeletions)
	}
	d.last++
	one := &deletion{Deletion: Deletion{ID: d.last, Filter: filter, Started: d.now().UTC()}, matches: matches, cutoff: status.LastID}
	if matches == nil {
		one.Total = status.Sessions
	}
	one.ctx, one.cancel = context.WithCancel(ctx)
	d.all = append(d.all, one)
	return one, nil
}

// expire forgets those that ended long enough ago. The caller holds mu.
func (d *deletions) expire() {
	d.all = slices.DeleteFunc(d.all, func(one *deletion) bool { return one.isNotice() && d.now().Sub(*one.Ended) >= endedShown })
}

// makeRoom forgets the one that ended first, and reports whether there was one. The caller holds mu.
func (d *deletions) makeRoom() bool {
	first := -1
	for i, one := range d.all {
		if one.isNotice() && (first < 0 || one.Ended.Before(*d.all[first].Ended)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	d.all = slices.Delete(d.all, first, first+1)
	return true
}

// isNotice reports whether all that is left of it is to tell that it ended. One that failed stays until somebody has seen it.
func (one *deletion) isNotice() bool { return one.Ended != nil && one.Problem == "" }

// run deletes, once those before have ended, and returns how many sessions went. It ends early with an error where it is cancelled.
func (d *deletions) run(one *deletion) (int, error) {
	select {
	case d.turn <- struct{}{}:
	case <-one.ctx.Done():
		return 0, one.ctx.Err()
	}
	defer func() { <-d.turn }()
	d.mu.Lock()
	one.Running = true
	d.mu.Unlock()
	count := 0
	var failed error
	err := d.store.Find(0, one.cutoff+1, false, one.matches, func(ids []uint64, _, _ uint64) bool {
		for step := range slices.Chunk(ids, deleteStep) {
			n, err := d.store.Delete(one.ctx, step)
			count += n
			d.mu.Lock()
			one.Done = uint64(count)
			d.mu.Unlock()
			if failed = err; err != nil {
				return false
			}
		}
		failed = one.ctx.Err()
		return failed == nil
	})
	if err = errors.Join(err, failed); err == nil && one.matches == nil {
		n, last := d.store.DeleteThrough(one.ctx, one.cutoff) // also what is so new that nothing tells of it yet
		count, err = count+n, last
		d.mu.Lock()
		one.Done = uint64(count)
		d.mu.Unlock()
	}
	return count, err
}

// end keeps what came of a deletion, for people: how many went for a while, a problem until they have seen it.
func (d *deletions) end(one *deletion, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := d.now().UTC()
	one.Running, one.Ended = false, &ended
	if one.Cancelled = err != nil && one.ctx.Err() != nil; err != nil && !one.Cancelled {
		one.Problem = err.Error()
	}
	one.cancel()
}

// forget ends a deletion whose caller is told himself what came of it.
func (d *deletions) forget(one *deletion) {
	one.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = slices.DeleteFunc(d.all, func(other *deletion) bool { return other == one })
}

// stop cancels a deletion, or forgets one that ended, and reports whether there was one.
func (d *deletions) stop(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	i := slices.IndexFunc(d.all, func(one *deletion) bool { return one.ID == id })
	if i < 0 {
		return false
	}
	if d.all[i].cancel(); d.all[i].Ended != nil {
		d.all = slices.Delete(d.all, i, i+1)
	}
	return true
}

// list returns what there is.
func (d *deletions) list() (all []Deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	for _, one := range d.all {
		all = append(all, one.Deletion)
	}
	return all
}

type deleteInput struct {
	Filter string `query:"filter" maxLength:"2000" doc:"As in the list, and not blank. Left out: every session."`
}

// Resolve refuses a filter that is given and blank, as a script gives it whose variable is not set: it would delete everything.
func (in *deleteInput) Resolve(ctx huma.Context) []error {
	url := ctx.URL()
	if url.Query().Has("filter") && strings.TrimSpace(in.Filter) == "" {
		return []error{&huma.ErrorDetail{Location: "query.filter", Message: "The filter is blank. Leave it out to delete every session.", Value: in.Filter}}
	}
	return nil
}

func (s *Server) deleteSessions(ctx context.Context, in *deleteInput) (*answer[Deleted], error) {
	one, err := s.deletions.start(ctx, in.Filter)
	if err != nil {
		return nil, err
	}
	defer s.deletions.forget(one)
	n, err := s.deletions.run(one)
	if err != nil {
		return nil, s.failed("delete the sessions", err)
	}
	return answerWith(Deleted{n}, nil)
}

type startDeletionInput struct{ Body DeletionRequest }

func (s *Server) startDeletion(_ context.Context, in *startDeletionInput) (*answer[Deletion], error) {
	if blank := strings.TrimSpace(in.Body.Filter) == ""; blank != in.Body.All {
		return nil, problem(http.StatusUnprocessableEntity, "Say what is to go: a filter that is not blank, or all, and not both.")
	}
	one, err := s.deletions.start(s.ctx, in.Body.Filter)
	if err != nil {
		return nil, err
	}
	shown := one.Deletion
	s.work.Go(func() {
		_, err := s.deletions.run(one)
		if err != nil && one.ctx.Err() == nil {
			s.log.Error("delete sessions", "err", err)
		}
		s.deletions.end(one, err)
	})
	return answerWith(shown, nil)
}

func (s *Server) cancelDeletion(_ context.Context, in *idInput) (*struct{}, error) {
	if !s.deletions.stop(in.ID) {
		return nil, problem(http.StatusNotFound, "There is no such deletion: it has ended.")
	}
	return nil, nil
}
