package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millpond/e2e/harness"
	"millpond/storage"
)

// deleting is what the status tells of deletions.
type deleting struct {
	Deletions []struct {
		ID   uint64 `json:"id"`
		Done uint64 `json:"done"`
	} `json:"deletions"`
}

// manySessions makes a data directory with so many small sessions, of which some have bodies.
func manySessions(t *testing.T, count int) string {
	t.Helper()
	dir := t.TempDir()
	s, err := storage.OpenStore(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		r := s.Begin(storage.Session{Method: "GET", Scheme: "http", Host: "many.test", Path: fmt.Sprint("/", i), Timing: storage.Timing{Started: time.Now()}})
		_, _ = r.Body(storage.Response).Write(fmt.Append(nil, "this is the body of ", i))
		r.Body(storage.Response).Wait(t.Context())
		r.Body(storage.Response).Complete()
		r.End(storage.Done, "")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// left returns which sessions there are, after checking that the body of each is whole.
func left(t *testing.T, dir string) (ids []uint64) {
	t.Helper()
	s, err := storage.OpenStore(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Scan(0, 1<<62, func(row *storage.Row) bool { ids = append(ids, row.ID); return true }); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(ids); i += 1 + len(ids)/100 {
		b, err := s.Body(ids[i], storage.Response)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint("this is the body of ", ids[i]-1)
		got := make([]byte, b.Size())
		if _, err := b.ReadAt(got, 0); string(got) != want {
			t.Errorf("session %d: body %q, %v", ids[i], got, err)
		}
		b.Close()
	}
	return ids
}

// The program is killed while it deletes many: what it had told of as deleted is gone, the rest is whole, and it is so when the index is lost besides.
func TestKilledWhileDeletingMany(t *testing.T) {
	const count = 20_000
	dir := manySessions(t, count)
	last := uint64(0) // the newest id that is known to be gone
	for round := range 3 {
		p := harness.Start(t, dir)
		if err := p.Do(http.MethodPost, "/api/deletions", `{"all":true}`, nil); err != nil {
			t.Fatal(err)
		}
		var told deleting
		for told.Deletions = nil; ; {
			p.Get(t, "/api/status", &told)
			if len(told.Deletions) == 0 || told.Deletions[0].Done >= uint64(1000*(round+1)) {
				break
			}
			told.Deletions = nil
		}
		p.Kill()
		if len(told.Deletions) == 0 {
			t.Log("all were deleted before it was killed")
			last = count
		} else {
			last += told.Deletions[0].Done // they go in the order of their ids
		}
		checkVerified(t, dir)
		ids := left(t, dir)
		if len(ids) > 0 && (ids[0] <= last || ids[len(ids)-1] != count || uint64(len(ids)) != count-ids[0]+1) {
			t.Fatalf("round %d: %d sessions from %d to %d are there; those up to %d were told to be gone", round, len(ids), ids[0], ids[len(ids)-1], last)
		}
		if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
			t.Fatal(err)
		}
		if again := left(t, dir); len(again) != len(ids) {
			t.Fatalf("round %d: %d sessions are there after the index was lost, %d were", round, len(again), len(ids))
		}
		checkVerified(t, dir)
		if len(ids) == 0 {
			break
		}
		last = ids[0] - 1
	}
}

// What was answered as deleted never comes back, an open session neither, whenever the program is killed.
func TestKilledAfterDeletingAll(t *testing.T) {
	origin := harness.StartOrigin(t)
	dir := manySessions(t, 3000)
	p := harness.Start(t, dir, origin.Trusted(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Its body is not read, so it stays open.
	open, err := http.NewRequestWithContext(ctx, "GET", origin.URL(harness.HTTP, "/get/open?seed=1&size=1000000000"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Client(t, harness.HTTP).Do(open)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ Deleted int }
	if err := p.Do(http.MethodDelete, "/api/sessions", "", &answer); err != nil || answer.Deleted != 3001 {
		t.Fatalf("%+v, %v", answer, err)
	}
	p.Kill()
	checkVerified(t, dir)
	if ids := left(t, dir); len(ids) != 0 {
		t.Errorf("sessions %v are back", ids)
	}
	if err := os.Remove(filepath.Join(dir, "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if ids := left(t, dir); len(ids) != 0 {
		t.Errorf("sessions %v are back after the index was lost", ids)
	}
	checkVerified(t, dir)
}
