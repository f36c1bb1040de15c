package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func (r *rig) deletions() []Deletion {
	r.Helper()
	var status Status
	r.json(r.call("GET", "/api/status", ""), 200, &status)
	return status.Deletions
}

// A deletion tells how far it is, and one that is cancelled on the way leaves the rest.
func TestDeletionIsToldOfAndCancelled(t *testing.T) {
	r := newRig(t)
	for i := range 200 {
		r.record(exchange{url: fmt.Sprint("http://many.test/", i)})
	}
	eventually(t, "all are in the index", func() bool { return r.store.Status().DurableUntil == 200 }) // what is not is held while it is matched
	one, err := r.server.deletions.start(t.Context(), "many.test")
	if err != nil {
		t.Fatal(err)
	}
	looked, goOn := 0, make(chan struct{})
	every := one.matches
	one.matches = func(status int, scheme, host string, path []byte) bool {
		if looked++; looked == 100 {
			<-goOn
		}
		return every(status, scheme, host, path)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.server.deletions.run(one)
		r.server.deletions.end(one, err)
		ended <- err
	}()
	var all []Deletion
	eventually(t, "some are gone", func() bool { all = r.deletions(); return len(all) == 1 && all[0].Done > 0 })
	if d := all[0]; !d.Running || d.Filter != "many.test" || d.Done >= 100 || d.Total != 0 || d.Started.IsZero() {
		t.Errorf("got %+v", d)
	}

	var waiting Deletion
	r.json(r.call("POST", "/api/deletions", `{"all":true}`), 202, &waiting)
	if all = r.deletions(); len(all) != 2 || all[1].Running || all[1].Total != 200-all[0].Done {
		t.Errorf("got %+v", all)
	}
	for _, d := range []uint64{one.ID, waiting.ID} {
		r.json(r.call("DELETE", fmt.Sprint("/api/deletions/", d), ""), 204, nil)
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, "both have ended", func() bool {
		all = r.deletions()
		return len(all) == 2 && all[0].Ended != nil && all[1].Ended != nil
	})
	if !all[0].Cancelled || all[0].Running || !all[1].Cancelled || all[1].Done != 0 {
		t.Errorf("got %+v", all)
	}
	if left := r.store.Status().Sessions; left != 200-all[0].Done || left == 0 {
		t.Errorf("%d sessions are left, %d were deleted of 200", left, all[0].Done)
	}
	for _, d := range all { // which takes the notice away
		r.json(r.call("DELETE", fmt.Sprint("/api/deletions/", d.ID), ""), 204, nil)
	}
	if all = r.deletions(); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
	if res := r.call("DELETE", fmt.Sprint("/api/deletions/", waiting.ID), ""); res.StatusCode != 404 {
		t.Errorf("cancelled again: %s", res.Status)
	}
}

// Deletions wait for each other, few do, and one ends with the call that it belongs to, or with the server.
func TestDeletionsWaitAndEnd(t *testing.T) {
	r := newRig(t)
	r.record(exchange{url: "http://a.test/"})
	r.server.deletions.turn <- struct{}{} // one is under way

	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "DELETE", r.base+"/api/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	answered := make(chan error, 1)
	go func() {
		res, err := r.client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	eventually(t, "it waits", func() bool { return len(r.deletions()) == 1 })
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, "it ended with its call", func() bool { return len(r.deletions()) == 0 })

	for range maxDeletions {
		r.json(r.call("POST", "/api/deletions", `{"filter":"none.test"}`), 202, nil)
	}
	if res := r.call("POST", "/api/deletions", `{"all":true}`); res.StatusCode != 503 || !strings.Contains(r.text(res), "cancel one") {
		t.Errorf("one too many: %s", res.Status)
	}
	if r.store.Status().Sessions != 1 {
		t.Error("a deletion did not wait")
	}
	<-r.server.deletions.turn
	eventually(t, "all had their turn", func() bool {
		return !slices.ContainsFunc(r.deletions(), func(d Deletion) bool { return d.Ended == nil })
	})
	r.server.deletions.turn <- struct{}{}
	r.json(r.call("POST", "/api/deletions", `{"all":true}`), 202, nil) // ends with the server, which waits for it
}

// A deletion that fails is told of until somebody has seen it.
func TestFailedDeletionIsTold(t *testing.T) {
	r := newRig(t)
	one, err := r.server.deletions.start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.server.deletions.end(one, errors.New("the disk failed"))
	if all := r.deletions(); len(all) != 1 || all[0].Problem != "the disk failed" || all[0].Running {
		t.Errorf("got %+v", all)
	}
	r.json(r.call("DELETE", fmt.Sprint("/api/deletions/", one.ID), ""), 204, nil)
	if all := r.deletions(); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
}

// How many went is told for a minute after the end, but not where the call itself answers it.
func TestEndedDeletionIsTold(t *testing.T) {
	var later atomic.Int64
	began := time.Now()
	r := newRig(t, func(c *Config) { c.Now = func() time.Time { return began.Add(time.Duration(later.Load())) } })
	for i := range 3 {
		r.record(exchange{url: fmt.Sprint("http://a.test/", i)})
	}
	r.record(exchange{url: "http://b.test/"})
	var one Deletion
	r.json(r.call("POST", "/api/deletions", `{"filter":"a.test"}`), 202, &one)
	var all []Deletion
	eventually(t, "it has ended", func() bool { all = r.deletions(); return len(all) == 1 && all[0].Ended != nil })
	if d := all[0]; d.ID != one.ID || d.Done != 3 || d.Running || d.Cancelled || d.Problem != "" {
		t.Errorf("got %+v", d)
	}
	r.json(r.call("DELETE", "/api/sessions", ""), 200, nil)
	later.Store(int64(endedShown - time.Second))
	if all = r.deletions(); len(all) != 1 || all[0].ID != one.ID {
		t.Errorf("got %+v", all)
	}
	later.Store(int64(endedShown))
	if all = r.deletions(); len(all) != 0 {
		t.Errorf("after a minute: %+v", all)
	}

	r.record(exchange{url: "http://c.test/"})
	r.json(r.call("POST", "/api/deletions", `{"all":true}`), 202, nil)
	eventually(t, "all have gone", func() bool { all = r.deletions(); return len(all) == 1 && all[0].Ended != nil })
	if all[0].Done != 1 {
		t.Errorf("got %+v", all)
	}
}

// Notices make room for new deletions, the oldest first; what runs, waits or failed does not.
func TestEndedDeletionsMakeRoom(t *testing.T) {
	r := newRig(t)
	for i := range maxDeletions {
		r.json(r.call("POST", "/api/deletions", `{"filter":"none.test"}`), 202, nil)
		eventually(t, "it has ended", func() bool { all := r.deletions(); return len(all) == i+1 && all[i].Ended != nil })
	}
	r.server.deletions.turn <- struct{}{} // one is under way
	for i := range maxDeletions {
		var one Deletion
		r.json(r.call("POST", "/api/deletions", `{"filter":"none.test"}`), 202, &one)
		all := r.deletions()
		if len(all) != maxDeletions || all[maxDeletions-1].ID != one.ID {
			t.Fatalf("got %+v", all)
		}
		if i < maxDeletions-1 && (all[0].Ended == nil || all[0].ID != uint64(i)+2) {
			t.Errorf("the oldest did not go: %+v", all)
		}
	}
	if res := r.call("POST", "/api/deletions", `{"filter":"none.test"}`); res.StatusCode != 503 {
		t.Errorf("one too many: %s", res.Status)
	}
	<-r.server.deletions.turn
}
