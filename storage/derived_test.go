package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

// noMake fails the test if a representation is made again.
func noMake(t *testing.T) func(context.Context, io.Writer) error {
	return func(context.Context, io.Writer) error {
		t.Error("made again")
		return nil
	}
}

func writes(text string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func openDerived(t *testing.T, files Files, limit int64) *derived {
	t.Helper()
	d, err := newDerived(files, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func openTestDir(t *testing.T) *Dir {
	t.Helper()
	dir, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// derive opens a representation of session id, and waits until it is made.
func derive(t *testing.T, d *derived, id uint64, make func(context.Context, io.Writer) error) *DerivedReader {
	t.Helper()
	r, err := d.open(derivedKey{id, "response.decoded"}, 1<<40, make)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r)
	return r
}

func await(t *testing.T, r *DerivedReader) {
	t.Helper()
	for !r.Final() {
		select {
		case <-r.Grown():
		case <-time.After(10 * time.Second):
			t.Fatal("never final")
		}
	}
}

func text(t *testing.T, r *DerivedReader) string {
	t.Helper()
	got, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func filesIn(t *testing.T, files Files) int {
	t.Helper()
	entries, err := files.ReadDir(derivedDir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDerivedIsMadeOnce(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	var made atomic.Int32
	gate := make(chan struct{})
	slow := func(_ context.Context, w io.Writer) error {
		made.Add(1)
		<-gate
		_, err := io.WriteString(w, "mill pond")
		return err
	}
	var readers []*DerivedReader
	for range 8 {
		r, err := d.open(derivedKey{1, "text"}, 100, slow)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	close(gate)
	for _, r := range readers {
		await(t, r)
		if err := iotest.TestReader(io.NewSectionReader(r, 0, r.Size()), []byte("mill pond")); err != nil {
			t.Error(err)
		}
		if !r.Complete() || r.Err() != nil {
			t.Errorf("complete %v, %v", r.Complete(), r.Err())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
	r := derive(t, d, 2, writes("another"))
	r.Close()
	again, err := d.open(derivedKey{1, "text"}, 100, noMake(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, again); got != "mill pond" {
		t.Errorf("got %q", got)
	}
	again.Close()
	if _, err := again.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestDerivedIsReadWhileItIsMade(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	parts := make(chan string)
	r, err := d.open(derivedKey{1, "text"}, 100, func(_ context.Context, w io.Writer) error {
		for part := range parts {
			if _, err := io.WriteString(w, part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.ReadAt(make([]byte, 1), 0); n != 0 || err != io.EOF || r.Final() || r.Size() != 0 {
		t.Errorf("before the first byte: %d, %v, final %v, size %d", n, err, r.Final(), r.Size())
	}
	want := ""
	for _, part := range []string{"mill", "pond"} {
		grown := r.Grown()
		parts <- part
		<-grown
		want += part
		p := make([]byte, 16)
		if n, err := r.ReadAt(p, 0); string(p[:n]) != want || err != io.EOF {
			t.Errorf("got %q, %v, want %q, EOF", p[:n], err, want)
		}
		if n, err := r.ReadAt(p[:2], 1); string(p[:n]) != "il" || err != nil {
			t.Errorf("got %q, %v", p[:n], err)
		}
		if r.Final() || r.Complete() {
			t.Error("final while it is made")
		}
	}
	grown := r.Grown()
	close(parts)
	<-grown
	if !r.Final() || !r.Complete() {
		t.Error("not final")
	}
	<-r.Grown()
}

func TestDerivedKeepsHowItEnded(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	broken := errors.New("truncated")
	r := derive(t, d, 1, func(_ context.Context, w io.Writer) error {
		io.WriteString(w, "what there was")
		return broken
	})
	defer r.Close()
	again := derive(t, d, 1, noMake(t))
	defer again.Close()
	for _, r := range []*DerivedReader{r, again} {
		if got := text(t, r); got != "what there was" || r.Err() != broken || r.Complete() {
			t.Errorf("got %q, %v, complete %v", got, r.Err(), r.Complete())
		}
	}
}

func TestDerivedOfADeletedSessionGoes(t *testing.T) {
	dir := openTestDir(t)
	d := openDerived(t, dir, 1<<20)
	derive(t, d, 1, writes("one")).Close()
	two := derive(t, d, 2, writes("two"))
	making, err := d.open(derivedKey{3, "text"}, 100, func(ctx context.Context, w io.Writer) error {
		io.WriteString(w, "three")
		<-ctx.Done()
		_, err := io.WriteString(w, "more")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-making.Grown()
	derive(t, d, 4, writes("four")).Close()
	d.drop(1, 2, 3, 9)
	await(t, making)
	if !errors.Is(making.Err(), context.Canceled) {
		t.Errorf("the making ended with %v", making.Err())
	}
	two.Close()
	making.Close()
	if d.total != 4 || filesIn(t, dir) != 1 || len(d.byKey) != 1 {
		t.Errorf("%d bytes in %d files, %d keys; want 4 in 1", d.total, filesIn(t, dir), len(d.byKey))
	}
	r := derive(t, d, 1, writes("anew"))
	defer r.Close()
	if got := text(t, r); got != "anew" {
		t.Errorf("got %q", got)
	}
}

func TestDerivedThatNobodyReadsIsGivenUp(t *testing.T) {
	dir := openTestDir(t)
	d := openDerived(t, dir, 1<<20)
	forever := func(ctx context.Context, w io.Writer) error {
		io.WriteString(w, "begun")
		<-ctx.Done()
		return ctx.Err()
	}
	r, err := d.open(derivedKey{1, "text"}, 100, forever)
	if err != nil {
		t.Fatal(err)
	}
	f := r.file
	r.Close()
	again, err := d.open(derivedKey{1, "text"}, 100, noMake(t))
	if err != nil {
		t.Fatal(err)
	}
	f.abandon() // the timer ran out just when another reader came
	if again.Final() {
		t.Error("given up while it is read")
	}
	again.Close()
	if f.idle == nil {
		t.Error("no timer runs")
	}
	f.abandon()
	d.works.Wait()
	if d.total != 0 || filesIn(t, dir) != 0 || len(d.byKey) != 0 {
		t.Errorf("left %d bytes in %d files, %d keys", d.total, filesIn(t, dir), len(d.byKey))
	}
}

func TestDerivedBeginsEmpty(t *testing.T) {
	dir := openTestDir(t)
	d := openDerived(t, dir, 1<<20)
	derive(t, d, 1, writes("of a former process")).Close()
	d.close()
	openDerived(t, dir, 1<<20)
	if n := filesIn(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

func TestDerivedCloseEndsTheMaking(t *testing.T) {
	d := openDerived(t, openTestDir(t), 1<<20)
	r, err := d.open(derivedKey{1, "text"}, 100, func(ctx context.Context, _ io.Writer) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	if !r.Final() || !errors.Is(r.Err(), context.Canceled) {
		t.Errorf("final %v, %v", r.Final(), r.Err())
	}
	if _, err := d.open(derivedKey{2, "text"}, 100, noMake(t)); err == nil {
		t.Error("a closed cache makes more")
	}
	r.Close()
}

// TestStoreDerives goes through the store: an unknown session has nothing to derive, a deleted one nothing any more.
func TestStoreDerives(t *testing.T) {
	s, err := OpenStore(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Derive(99, "response.decoded", 10, noMake(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown session: %v", err)
	}
	rec := s.Begin(Session{Method: "GET"})
	rec.Body(Response).Write([]byte("mill"))
	rec.Body(Response).Complete()
	rec.End(Done, "")
	upper := func(_ context.Context, w io.Writer) error {
		body, err := s.Body(rec.ID(), Response)
		if err != nil {
			return err
		}
		defer body.Close()
		all, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
		if err != nil {
			return err
		}
		_, err = w.Write(bytes.ToUpper(all))
		return err
	}
	r, err := s.Derive(rec.ID(), "response.upper", 10, upper)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r)
	if got := text(t, r); got != "MILL" || r.Err() != nil {
		t.Errorf("got %q, %v", got, r.Err())
	}
	r.Close()
	if _, err := s.Delete(t.Context(), []uint64{rec.ID()}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Derive(rec.ID(), "response.upper", 10, noMake(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleted session: %v", err)
	}
	if n := filesIn(t, s.files); n != 0 {
		t.Errorf("%d derived files are left", n)
	}
}
