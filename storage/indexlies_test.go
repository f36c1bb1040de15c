package storage

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestIndexThatLies changes bits anywhere in the index: no start and no verify fails over it, no body that is served as whole is another, what verify calls sound
// shows what it showed before, and a repair brings all of it back, as the log has it.
func TestIndexThatLies(t *testing.T) {
	c := newRepairCaseOf(t, 600<<10)
	whole, err := os.ReadFile(filepath.Join(c.dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	page := os.Getpagesize()
	var used []int // pages
	for at := 0; at+page <= len(whole); at += page {
		if bytes.Count(whole[at:at+page], []byte{0}) < page {
			used = append(used, at)
		}
	}
	sound := 0
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 3))
		lies := bytes.Clone(whole)
		what := ""
		for range 1 + random.IntN(3) {
			at := used[random.IntN(len(used))] + random.IntN(page)
			if random.IntN(3) == 0 {
				at = at/page*page + random.IntN(64) // its head
			}
			lies[at] ^= 1 << random.IntN(8)
			what += fmt.Sprint("byte ", at, "; ")
		}
		dir := c.copy(t)
		if err := os.WriteFile(filepath.Join(dir, indexName), lies, 0o600); err != nil {
			t.Fatal(err)
		}
		repaired := c.copy(t)
		if err := os.WriteFile(filepath.Join(repaired, indexName), lies, 0o600); err != nil {
			t.Fatal(err)
		}
		told := verifyAll(t, dir)
		if len(told) == 0 {
			sound++
		}
		c.checkServed(t, dir, len(told) == 0)
		if done, lines := repairAll(t, repaired); done.Lost > 0 {
			t.Errorf("a repair says that %d sessions lost something: %s", done.Lost, strings.Join(lines, "\n"))
		}
		c.checkSame(t, repaired)
		if t.Failed() {
			t.Fatalf("seed %d, %s: verify told %s", seed, what, strings.Join(told, "\n"))
		}
		os.RemoveAll(dir)
		os.RemoveAll(repaired)
	}
	t.Logf("%d of %d changes lie where nothing is read", sound, rounds)
}

// checkServed starts on what may lie: each body that is served as whole is right, and where nothing is said to be wrong, all is as it was.
func (c *repairCase) checkServed(t *testing.T, dir string, same bool) {
	t.Helper()
	s, _ := openLogged(t, dir)
	for id, want := range c.kept {
		session, err := s.Session(id)
		if want.deleted && err == nil {
			t.Errorf("session %d is back", id)
		}
		if err != nil || want.deleted {
			continue
		}
		b, err := s.Body(id, Response)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
		if b.Close(); err == nil && session.Sides[Response].Body.Complete && !bytes.Equal(got, want.body) {
			t.Errorf("session %d: its body is another", id)
		}
	}
	if same {
		got := takePicture(t, s)
		if !reflect.DeepEqual(got.rows, c.picture.rows) || !reflect.DeepEqual(got.sessions, c.picture.sessions) {
			t.Error("what is shown is other than before, and verify found nothing wrong")
		}
	}
	put(s, noise(1, 1000))
	s.Close()
}
