package storage

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// entryOf is the nth message of a test.
func entryOf(n uint64) Entry {
	return Entry{
		Side: Side(n % 2), Opcode: uint8(n % 11), Time: time.Unix(0, int64(1_700_000_000_000_000_000+n)).UTC(), Offset: n << 7, Length: n<<7 | 1, Size: 1<<63 | n,
		Compressed: n%3 == 0, Broken: n%5 == 0, Code: uint16(n), Nth: (1<<48 - 1) &^ n,
	}
}

func listAll(r *Recording, from, to uint64) {
	for n := from; n < to; n++ {
		r.List(entryOf(n))
	}
}

// checkMessages looks at pages everywhere in a list.
func checkMessages(t *testing.T, s *Store, id, want uint64) {
	t.Helper()
	l, err := s.Messages(id)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Len() != want {
		t.Fatalf("%d messages, want %d", l.Len(), want)
	}
	page := make([]Entry, 100)
	for _, from := range []uint64{0, 1, want / 3, want / 2, max(want, 50) - 50, want, want + 1} {
		n, err := l.Read(page, from)
		if wantN := min(100, max(want, from)-from); err != nil || uint64(n) != wantN {
			t.Fatalf("from %d: read %d, %v, want %d", from, n, err, wantN)
		}
		for i, e := range page[:n] {
			if e != entryOf(from+uint64(i)) {
				t.Fatalf("message %d: got %+v, want %+v", from+uint64(i), e, entryOf(from+uint64(i)))
			}
		}
	}
}

// A list of any length is read at any place: while it grows, at its end, after a restart, and from an index that was made again. It goes with its session.
func TestMessagesAreKept(t *testing.T) {
	counts := []uint64{0, 1, smallBody/EntrySize + 1, 10_000, 250_000}
	if testing.Short() {
		counts = counts[:4]
	}
	dir := t.TempDir()
	s := openTest(t, dir)
	var recordings []*Recording
	for _, count := range counts {
		r := s.Begin(Session{Method: "GET", Host: "a.example"})
		if _, err := s.Messages(r.ID()); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("messages of a session that lists none: %v", err)
		}
		r.ListMessages(Messages{Kind: WebSocket, Deflate: true, Fresh: [2]bool{true, false}})
		listAll(r, 0, count/2)
		checkMessages(t, s, r.ID(), count/2)
		listAll(r, count/2, count)
		r.LoseMessages(Response, "why")
		checkMessages(t, s, r.ID(), count)
		recordings = append(recordings, r)
	}
	check := func(s *Store) {
		t.Helper()
		for i, r := range recordings {
			checkMessages(t, s, r.ID(), counts[i])
			if row, err := s.Row(r.ID()); err != nil || !slices.Equal(row.Flags, []string{FlagWebSocket}) {
				t.Errorf("%v, the row's flags are %v", err, row.Flags)
			}
			session, err := s.Session(r.ID())
			if m := session.Messages; err != nil || m == nil || m.Count() != counts[i] || m.Kind != WebSocket || !m.Deflate || !m.Fresh[Request] || m.Fresh[Response] || m.Lost[Response] != "why" || !m.List.Complete {
				t.Errorf("%v, got %+v", err, m)
			}
		}
	}
	for _, r := range recordings {
		r.End(Done, "")
	}
	waitDurable(t, s)
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verified := func() {
		t.Helper()
		if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
			t.Error(err)
		}
	}
	verified()
	s = openTest(t, dir)
	check(s)
	s = rebuild(t, s)
	check(s)
	for _, r := range recordings {
		if err := s.Annotate(r.ID(), func(session *Session) { session.Note = "kept" }); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	for _, r := range recordings {
		if _, err := s.Delete(t.Context(), []uint64{r.ID()}); err != nil {
			t.Fatal(err)
		}
	}
	if n := chunkFiles(t, s); n != 0 {
		t.Errorf("%d chunks are left", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verified()
}

// Two sides list at once, and a reader follows.
func TestMessagesOfBothSidesAtOnce(t *testing.T) {
	s := openTest(t, t.TempDir())
	defer s.Close()
	r := s.Begin(Session{})
	r.ListMessages(Messages{Kind: WebSocket})
	const each = 20_000
	var sides sync.WaitGroup
	for side := range Side(2) {
		sides.Go(func() {
			for n := range uint64(each) {
				r.List(Entry{Side: side, Offset: n})
			}
		})
	}
	l, err := s.Messages(r.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var next [2]uint64
	page := make([]Entry, 1000)
	for at := uint64(0); at < 2*each; {
		grown := l.Grown()
		n, err := l.Read(page, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page[:n] {
			if e.Offset != next[e.Side] {
				t.Fatalf("message %d of the %v side comes where %d is due", e.Offset, e.Side, next[e.Side])
			}
			next[e.Side]++
		}
		if at += uint64(n); n == 0 {
			<-grown
		}
	}
	sides.Wait()
	r.End(Done, "")
}

// A list that was begun and taken back leaves nothing behind.
func TestMessagesTakenBack(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := s.Begin(Session{})
	r.ListMessages(Messages{Kind: WebSocket})
	listAll(r, 0, 20_000)
	r.Change(func(session *Session) { session.Messages = nil })
	r.End(Done, "")
	waitDurable(t, s)
	if session, err := s.Session(r.ID()); err != nil || session.Messages != nil {
		t.Errorf("got %+v, %v", session.Messages, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, true, func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "chunks", "*", "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Records of older data directories have no lists.
func TestSessionsWithoutMessagesAreRead(t *testing.T) {
	old := struct {
		ID    uint64     `cbor:"1,keyasint"`
		State State      `cbor:"2,keyasint"`
		Host  string     `cbor:"8,keyasint"`
		Sides [2]Message `cbor:"16,keyasint"`
	}{7, Done, "a.example", [2]Message{{Head: []byte("GET")}}}
	payload, err := encoder.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := decodeRecord(recordEnded, place{}, payload)
	if err != nil || rec.session.Host != "a.example" || rec.session.Messages != nil {
		t.Errorf("got %+v, %v", rec, err)
	}
	for side := range rec.session.streams() {
		if side == messageList {
			t.Error("it has a list")
		}
	}
}

// A side that no version knows is damage, and not one of the others'.
func TestUnknownSideIsRefused(t *testing.T) {
	head := pieceHead{ID: 1, Side: streams}
	b := head.encode()
	if rec, err := decodeRecord(recordPiece, place{}, b[:]); err == nil {
		t.Errorf("a piece: got %+v", rec)
	}
	for kind, v := range map[recordKind]any{recordNamed: named{Side: streams}, recordMark: mark{Side: streams}} {
		payload, err := encoder.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := decodeRecord(kind, place{}, payload); err == nil {
			t.Errorf("got %+v", rec)
		}
	}
}

func BenchmarkListMessages(b *testing.B) {
	s := openTest(b, b.TempDir())
	defer s.Close()
	r := s.Begin(Session{})
	r.ListMessages(Messages{Kind: WebSocket})
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		r.List(Entry{Offset: n})
		if n%1000 == 0 {
			r.Body(Request).Wait(b.Context())
		}
	}
	r.End(Done, "")
}
