package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// toldContext tells when somebody begins to wait for its end.
type toldContext struct {
	context.Context
	once sync.Once
	told chan struct{}
}

func (c *toldContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.told) })
	return c.Context.Done()
}

// TestHashOfDeletedSessionIsNoWarning deletes a session, as retention does, while its body is to be hashed.
func TestHashOfDeletedSessionIsNoWarning(t *testing.T) {
	s, logs := openLogged(t, t.TempDir())
	open := s.Begin(Session{Method: "GET"})
	give(open.Body(Response), noise(2, chunkSize/2)) // while a large body is recorded, none is hashed
	r := s.Begin(Session{Method: "GET"})
	give(r.Body(Response), noise(1, chunkSize+chunkSize/2))
	r.Body(Response).Complete()
	r.End(Done, "")
	waitDurable(t, s)
	session, err := s.Session(r.ID())
	if err != nil {
		t.Fatal(err)
	}
	ctx := &toldContext{Context: t.Context(), told: make(chan struct{})}
	hashed := make(chan []byte)
	go func() { hashed <- s.hashIdle(ctx, digestJob{id: r.ID(), side: Response}) }()
	<-ctx.told
	if _, err := s.Delete(t.Context(), []uint64{r.ID()}); err != nil {
		t.Fatal(err)
	}
	chunk := filepath.Join(s.dir, chunkName(session.Sides[Response].Body.Extents[0].Chunk))
	for gone := false; !gone; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(chunk)
		gone = errors.Is(err, fs.ErrNotExist)
	}
	open.End(Done, "")
	if sum := <-hashed; sum != nil {
		t.Errorf("hashed to %x", sum)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(logs.String(), "hash body") {
		t.Errorf("logged %s", logs)
	}
}
