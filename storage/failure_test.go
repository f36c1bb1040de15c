package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millpond/storage"
	"millpond/storage/storagetest"
)

// openFaulty opens a store on a disk that can be made to fail.
func openFaulty(t *testing.T, slow storage.SlowDisk) (*storage.Store, *storagetest.Disk, string) {
	t.Helper()
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := storagetest.NewDisk(files)
	s, err := storage.OpenStore(storage.Config{Dir: dir, Files: disk, SlowDisk: slow, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		disk.Heal()
		s.Close()
	})
	return s, disk, dir
}

func bytesOf(seed uint64, n int) []byte {
	var key [32]byte
	copy(key[:], fmt.Sprint(seed))
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func record(s *storage.Store, body []byte) *storage.Recording {
	r := s.Begin(storage.Session{Method: "GET", Host: "example.com", Path: "/"})
	w := r.Body(storage.Response)
	for rest := body; len(rest) > 0; {
		b := storage.NewBuffer()
		n := copy(b.B, rest)
		w.Give(b, n)
		w.Wait(context.Background())
		rest = rest[n:]
	}
	w.Complete()
	r.End(storage.Done, "")
	return r
}

// eventually waits for a condition of the store, which a commit each 100 ms or a probe each second brings about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain until ", what)
		}
	}
}

func durable(s *storage.Store, id uint64) func() bool {
	return func() bool {
		row, err := s.Row(id)
		return err == nil && row.Durable
	}
}

// checkPrefix checks that what is kept of a body is its beginning, and that the session says where it was cut.
func checkPrefix(t *testing.T, s *storage.Store, id uint64, body []byte, why string) uint64 {
	t.Helper()
	session, err := s.Session(id)
	if err != nil {
		t.Fatal(err)
	}
	got := session.Sides[storage.Response].Body
	want := fmt.Sprintf("captured to byte %d: %s", got.Size, why)
	if got.Complete || !strings.HasPrefix(got.Missing, want) || got.Passed != uint64(len(body)) || !session.HasFlag(storage.FlagCut) {
		t.Errorf("session %d: complete %t, missing %q, size %d, passed %d, flags %v; want missing %q", id, got.Complete, got.Missing, got.Size, got.Passed, session.Flags, want)
	}
	if got.Size > 0 {
		checkRead(t, s, id, body[:got.Size])
	}
	return got.Size
}

func checkRead(t *testing.T, s *storage.Store, id uint64, want []byte) {
	t.Helper()
	b, err := s.Body(id, storage.Response)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("body of session %d: got %d bytes, %v; want %d", id, len(got), err, len(want))
	}
}

func verify(t *testing.T, s *storage.Store, dir string) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Verify(dir, true, func(p string) { t.Error("verify:", p) }); err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	before := record(s, bytesOf(1, 50_000))
	eventually(t, "it is durable", durable(s, before.ID()))

	disk.SetSpace(1<<40, 1<<40) // which others take at once
	disk.Fill(6 << 20)
	large := bytesOf(2, 12<<20)
	cut := record(s, large)
	eventually(t, "the problem shows", func() bool { return s.Status().Problem != "" })
	if got := s.Status().Problem; !strings.HasPrefix(got, "the disk is full") {
		t.Errorf("got problem %q", got)
	}
	time.Sleep(200 * time.Millisecond) // so that a record was refused by now, too
	small := record(s, bytesOf(3, 1000))
	if size := checkPrefix(t, s, cut.ID(), large, "the disk is full"); size < 4<<20 {
		t.Errorf("kept %d bytes where 6 MiB were free", size)
	}

	disk.Heal()
	eventually(t, "the problem is over", func() bool { return s.Status().Problem == "" })
	after := record(s, bytesOf(4, 1<<20))
	eventually(t, "what came after is durable", durable(s, after.ID()))
	eventually(t, "what was cut is durable", durable(s, cut.ID()))
	eventually(t, "the session on the full disk is durable", durable(s, small.ID()))
	checkPrefix(t, s, cut.ID(), large, "the disk is full")
	checkRead(t, s, before.ID(), bytesOf(1, 50_000))
	checkRead(t, s, after.ID(), bytesOf(4, 1<<20))
	verify(t, s, dir)
}

func TestFailedSync(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	before := record(s, bytesOf(1, 50_000))
	eventually(t, "it is durable", durable(s, before.ID()))
	open := s.Begin(storage.Session{Method: "GET", Host: "open"})
	open.Body(storage.Response).Write(bytesOf(2, 10_000))

	disk.FailNth(storagetest.Sync, 1, syscall.EIO)
	lost := record(s, bytesOf(3, 20_000))
	eventually(t, "it is durable", durable(s, lost.ID()))
	if size := checkPrefix(t, s, lost.ID(), bytesOf(3, 20_000), "the disk failed"); size != 0 {
		t.Errorf("kept %d bytes that were written before the sync that failed", size)
	}
	open.End(storage.Done, "")
	eventually(t, "it is durable", durable(s, open.ID()))
	after := record(s, bytesOf(4, 20_000))
	eventually(t, "it is durable", durable(s, after.ID()))
	checkRead(t, s, before.ID(), bytesOf(1, 50_000))
	checkRead(t, s, after.ID(), bytesOf(4, 20_000))
	if p := s.Status().Problem; p != "" {
		t.Errorf("problem %q after the disk works again", p)
	}
	verify(t, s, dir)
}

// TestFailedSyncOfLargeBodies fails each of the syncs that a commit of large bodies makes, in turn.
func TestFailedSyncOfLargeBodies(t *testing.T) {
	for nth := 1; nth <= 6; nth++ {
		t.Run(fmt.Sprint("sync ", nth), func(t *testing.T) {
			s, disk, dir := openFaulty(t, storage.Wait)
			disk.FailNth(storagetest.Sync, nth, syscall.EIO)
			bodies := map[uint64][]byte{}
			for i := range uint64(3) {
				body := bytesOf(i, 5<<20)
				bodies[record(s, body).ID()] = body
			}
			for id, body := range bodies {
				eventually(t, "it is durable", durable(s, id))
				session, err := s.Session(id)
				if err != nil {
					t.Fatal(err)
				}
				if session.Sides[storage.Response].Body.Complete {
					checkRead(t, s, id, body)
				} else {
					checkPrefix(t, s, id, body, "the disk failed")
				}
			}
			after := record(s, bytesOf(9, 20_000))
			eventually(t, "it is durable", durable(s, after.ID()))
			checkRead(t, s, after.ID(), bytesOf(9, 20_000))
			verify(t, s, dir)
		})
	}
}

// hasRoomSoon reports whether the recording takes more: now, or once it is clear that the disk stalls.
func hasRoomSoon(w *storage.BodyWriter) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.Wait(ctx)
	return ctx.Err() == nil
}

func TestStalledDiskHoldsNothingUp(t *testing.T) {
	for name, slow := range map[string]storage.SlowDisk{"wait": storage.Wait, "cut": storage.Cut} {
		t.Run(name, func(t *testing.T) {
			s, disk, dir := openFaulty(t, slow)
			disk.Stall(storagetest.Write | storagetest.Sync)
			large := bytesOf(1, 48<<20)
			r := s.Begin(storage.Session{Method: "GET", Host: "large"})
			w := r.Body(storage.Response)
			given, full := 0, false
			for given < len(large) && !full {
				b := storage.NewBuffer()
				n := copy(b.B, large[given:])
				w.Give(b, n)
				given += n
				full = !hasRoomSoon(w)
			}
			if want := slow == storage.Wait; full != want {
				t.Errorf("after %d MiB on a stalled disk: full %t, want %t", given>>20, full, want)
			}
			if given < 32<<20 {
				t.Errorf("held back after %d MiB; 32 are to be absorbed", given>>20)
			}
			small := record(s, bytesOf(2, 1000)) // which would not return, where it waited for the disk
			checkRead(t, s, small.ID(), bytesOf(2, 1000))
			disk.Heal()
			if slow == storage.Wait {
				w.Wait(context.Background())
			}
			w.Complete()
			r.End(storage.Done, "")
			eventually(t, "it is durable", durable(s, r.ID()))
			if slow == storage.Wait {
				checkRead(t, s, r.ID(), large[:given])
			} else {
				checkPrefix(t, s, r.ID(), large[:given], "the disk is slower")
			}
			verify(t, s, dir)
		})
	}
}

// TestSessionsWaitingForTheDiskAreBounded ends more sessions on a stalled disk than may wait: the last are counted, and not kept.
func TestSessionsWaitingForTheDiskAreBounded(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Cut)
	disk.Stall(storagetest.Write | storagetest.Sync)
	const limit, more = (40 << 20) / (4 << 10), 500 // bytes that may wait, and of each session
	for range limit + more {
		r := s.Begin(storage.Session{Method: "GET"})
		r.Body(storage.Response).Write([]byte("x"))
		r.Body(storage.Response).Complete()
		r.End(storage.Done, "")
	}
	if want, got := fmt.Sprintf("the disk does not keep up; %d sessions were not kept", more), s.Status().Problem; got != want {
		t.Errorf("got problem %q, want %q", got, want)
	}
	disk.Heal()
	eventually(t, "all is durable, and well", func() bool { st := s.Status(); return st.DurableUntil == st.LastID && st.Problem == "" })
	if st := s.Status(); st.Sessions != limit {
		t.Errorf("got %+v, want %d sessions", st, limit)
	}
	verify(t, s, dir)
}

// TestRelaysAreHeldBackWhileSessionsWait: with --slow-disk=wait a store asks for patience long before it would have to forget sessions.
func TestRelaysAreHeldBackWhileSessionsWait(t *testing.T) {
	s, disk, _ := openFaulty(t, storage.Wait)
	disk.Stall(storagetest.Write | storagetest.Sync)
	var full <-chan struct{}
	n := 0
	for ; full == nil && n < 20_000; n++ {
		r := s.Begin(storage.Session{Method: "GET"})
		full = r.Body(storage.Response).Full()
		r.End(storage.Done, "")
	}
	if full == nil || n < 5_000 {
		t.Errorf("held back after %d sessions", n)
	}
	disk.Heal()
	<-full
	eventually(t, "all is durable", func() bool { st := s.Status(); return st.DurableUntil == st.LastID })
}

// Certificates that were written before a sync that failed are written again.
func TestFailedSyncOfCertificates(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	der := bytesOf(1, 1500)
	session := storage.Session{Method: "GET", TLS: &storage.TLS{Chain: s.Chain([][]byte{der})}}
	open := s.Begin(session)
	disk.FailNth(storagetest.Sync, 1, syscall.EIO)
	lost := s.Begin(session)
	lost.End(storage.Done, "")
	eventually(t, "it is durable", durable(s, lost.ID()))
	open.End(storage.Done, "")
	eventually(t, "it is durable", durable(s, open.ID()))
	for _, id := range []uint64{lost.ID(), open.ID()} {
		if got, err := s.Certificates(id); err != nil || !bytes.Equal(got, der) {
			t.Errorf("session %d: got %d bytes, %v", id, len(got), err)
		}
	}
	verify(t, s, dir)
}

// TestEndedSessionsAreNotOpenedAgain has the log fail while the end of a session is in it and not yet in the index.
func TestEndedSessionsAreNotOpenedAgain(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fail(storagetest.Rename, syscall.EIO) // which is between the log and the index
	body := bytesOf(1, 3<<20)                  // one file: once its renaming fails, it and the log are synced
	r := record(s, body)
	eventually(t, "its end is in the log", func() bool {
		after, _ := crash(t, dir)
		session, err := after.Session(r.ID())
		return err == nil && session.State == storage.Done && strings.HasPrefix(s.Status().Problem, "the disk failed")
	})
	disk.Fail(storagetest.Sync, syscall.EIO)
	record(s, bytesOf(2, 1000))
	eventually(t, "a sync has failed", func() bool { return strings.Contains(s.Status().Problem, "sync") })
	disk.Heal()
	eventually(t, "it is durable", durable(s, r.ID()))
	checkRead(t, s, r.ID(), body)
	verify(t, s, dir)
	after, copied := crash(t, dir)
	checkRead(t, after, r.ID(), body)
	verify(t, after, copied)
}

// TestOpenSessionsAreToldOfAfterAFailure: what began while the log failed is in it once the disk works, also where nothing more happens to it.
func TestOpenSessionsAreToldOfAfterAFailure(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	disk.Fail(storagetest.Write|storagetest.Sync, syscall.EIO)
	var open []uint64
	for range 3 {
		open = append(open, s.Begin(storage.Session{Method: "GET"}).ID())
		eventually(t, "the disk has failed", func() bool { return s.Status().Problem != "" })
		time.Sleep(300 * time.Millisecond) // for some commits to fail
	}
	disk.Heal()
	eventually(t, "they survive a crash", func() bool {
		after, _ := crash(t, dir)
		for _, id := range open {
			if session, err := after.Session(id); err != nil || session.State != storage.Interrupted {
				return false
			}
		}
		return true
	})
}

// TestNotesOnOpenSessionsAreDurable: what was said to be noted is on disk.
func TestNotesOnOpenSessionsAreDurable(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	r := s.Begin(storage.Session{Method: "GET"})
	noted := func(note string) error {
		return s.Annotate(r.ID(), func(session *storage.Session) { session.Note = note })
	}
	if err := noted("seen"); err != nil {
		t.Fatal(err)
	}
	after, _ := crash(t, dir)
	if session, err := after.Session(r.ID()); err != nil || session.Note != "seen" {
		t.Errorf("after a crash the note is %q, %v", session.Note, err)
	}
	disk.Fail(storagetest.Sync, syscall.EIO)
	if err := noted("not synced"); err == nil {
		t.Error("a note that could not be synced was acknowledged")
	}
	disk.Heal()
	if err := noted("synced"); err != nil {
		t.Fatal(err)
	}
	after, _ = crash(t, dir)
	if session, err := after.Session(r.ID()); err != nil || session.Note != "synced" {
		t.Errorf("after a crash the note is %q, %v", session.Note, err)
	}
}

// TestIndexMadeAgainFromALogThatCannotBeReadNow: the index is damaged while reads fail. Once they work it has everything, and in between nothing is forgotten.
func TestIndexMadeAgainFromALogThatCannotBeReadNow(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	before := record(s, bytesOf(1, 3000))
	eventually(t, "it is durable", durable(s, before.ID()))
	disk.Fail(storagetest.Read, syscall.EIO)
	f, err := os.OpenFile(filepath.Join(dir, "index.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	for at := 2 * page; at < info.Size(); at += page {
		if _, err := f.WriteAt([]byte{0x40}, at+8); err != nil { // its flags
			t.Fatal(err)
		}
	}
	during := record(s, bytesOf(2, 3000))
	eventually(t, "the log cannot be read", func() bool { return strings.Contains(s.Status().Problem, "replay log segment") })
	more := record(s, bytesOf(3, 9<<20))
	time.Sleep(500 * time.Millisecond) // for some commits
	for _, r := range []*storage.Recording{during, more} {
		if durable(s, r.ID())() {
			t.Errorf("session %d is durable, and the index was not made", r.ID())
		}
	}
	disk.Heal()
	check := func(s *storage.Store) {
		t.Helper()
		checkRead(t, s, before.ID(), bytesOf(1, 3000))
		checkRead(t, s, during.ID(), bytesOf(2, 3000))
		checkRead(t, s, more.ID(), bytesOf(3, 9<<20))
	}
	eventually(t, "all is durable", durable(s, more.ID()))
	check(s)
	verify(t, s, dir)
	after, copied := crash(t, dir)
	check(after)
	verify(t, after, copied)
}

// TestChunkThatCouldNotBeRemovedIsReplaced: the file of a deleted body stays, and a body of the same content comes again.
func TestChunkThatCouldNotBeRemovedIsReplaced(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	body := bytesOf(1, 5<<20)
	r := record(s, body)
	eventually(t, "it is durable", durable(s, r.ID()))
	disk.Fail(storagetest.Remove, syscall.EIO)
	if n, err := s.Delete(t.Context(), []uint64{r.ID()}); n != 1 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "chunks", "*", "*")); len(left) == 0 || err != nil {
		t.Fatalf("no chunk is left: %v", err)
	}
	disk.Heal()
	r = record(s, body)
	eventually(t, "it is durable", durable(s, r.ID()))
	checkRead(t, s, r.ID(), body)
	verify(t, s, dir)
}

// After a failure of the log an open body's mark is said again as it was: it counts once, and goes with its session.
func TestMarkThatIsSaidAgainCountsOnce(t *testing.T) {
	s, disk, dir := openFaulty(t, storage.Wait)
	r := s.Begin(storage.Session{Method: "GET", Host: "open"})
	body := bytesOf(1, 600_000)
	if _, err := r.Body(storage.Response).Write(body); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // until all of it is marked
	for i := range uint64(3) {
		disk.FailNth(storagetest.Sync, 1, syscall.EIO)
		other := record(s, bytesOf(2+i, 1000))
		eventually(t, "it is durable", durable(s, other.ID()))
	}
	after, copied := crash(t, dir)
	verify(t, after, copied)
	r.End(storage.Done, "")
	eventually(t, "it is durable", durable(s, r.ID()))
	verify(t, s, dir)
}
