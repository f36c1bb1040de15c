package storage

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestMain is also the process that a test kills: with MILLPOND_RECORD_IN set it records there until it is ended.
func TestMain(m *testing.M) {
	if dir := os.Getenv("MILLPOND_RECORD_IN"); dir != "" {
		recordUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// recordUntilKilled records ten large bodies and many small sessions, and says on standard output what passed: "large ID BYTES" after
// a buffer of a large body was given, "small ID" after a session ended, "messages ID COUNT" after some were listed, and "durable ID".
func recordUntilKilled(dir string) {
	s, err := OpenStore(Config{Dir: dir})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	out := make(chan string, 64)
	for range 10 {
		go func() {
			r := s.Begin(Session{Method: "GET", Host: "large", Sides: [2]Message{Response: {Head: []byte("HTTP/1.1 200 OK\r\n\r\n")}}})
			stream := newNoiseReader(r.ID())
			w := r.Body(Response)
			for passed := 0; ; {
				b := NewBuffer()
				stream.Read(b.B)
				n := len(b.B)
				passed += n
				w.Give(b, n)
				out <- fmt.Sprint("large ", r.ID(), " ", passed)
				w.Wait(context.Background())
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	go func() {
		for {
			r := s.Begin(Session{Method: "GET", Host: "small", Path: "/"})
			r.Body(Response).Write(noise(r.ID(), int(r.ID()*977%100_000)))
			r.Body(Response).Complete()
			r.End(Done, "")
			out <- fmt.Sprint("small ", r.ID())
			out <- fmt.Sprint("durable ", s.Status().DurableUntil)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	go func() {
		r := s.Begin(Session{Method: "GET", Host: "messages"})
		r.ListMessages(Messages{Kind: WebSocket})
		for n := uint64(0); ; n += 100 {
			listAll(r, n, n+100)
			out <- fmt.Sprint("messages ", r.ID(), " ", n+100)
			r.Body(Response).Wait(context.Background())
			time.Sleep(time.Millisecond)
		}
	}()
	for line := range out {
		fmt.Println(line)
	}
}

func TestKilledWhileRecording(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MILLPOND_RECORD_IN="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()               // where the test ends early
	large := make(map[uint64]uint64)       // bytes given
	small := make(map[uint64]time.Time)    // when it was heard of
	messages := make(map[uint64]time.Time) // how many, when it was heard of
	listing := uint64(0)                   // the session
	durable := uint64(0)
	most := uint64(0)
	killed := false
	begin := time.Now()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var kind string
		var id, n uint64
		fmt.Sscan(lines.Text(), &kind, &id, &n)
		switch kind {
		case "large":
			large[id], most = n, max(most, n)
		case "small":
			small[id] = time.Now()
		case "messages":
			listing, messages[n] = id, time.Now()
		case "durable":
			durable = id
		default:
			t.Fatal(lines.Text())
		}
		if enough := most > 5<<20 && len(small) > 100; enough && !killed && time.Since(begin) > 1200*time.Millisecond {
			killed = true
			cmd.Process.Kill()
		}
	}
	end := time.Now()
	cmd.Wait()
	if _, err := Verify(dir, true, func(p string) { t.Error("before recovery:", p) }); err != nil {
		t.Error(err)
	}

	s := openTest(t, dir)
	check := func(s *Store) {
		t.Helper()
		for id, given := range large {
			session, err := s.Session(id)
			if err != nil {
				t.Fatal(err)
			}
			b := session.Sides[Response].Body
			if session.State != Interrupted || b.Complete || b.Size+1<<20 < given {
				t.Errorf("session %d: state %s, %d bytes kept of %d", id, session.State, b.Size, given)
			}
			want := make([]byte, b.Size)
			newNoiseReader(id).Read(want)
			checkBody(t, s, id, Response, want)
		}
		session, err := s.Session(listing)
		if err != nil || session.Messages == nil {
			t.Fatalf("session %d: %+v, %v", listing, session.Messages, err)
		}
		listed := session.Messages.Count()
		checkMessages(t, s, listing, listed)
		for count, heard := range messages {
			if count > listed && heard.Before(end.Add(-time.Second)) {
				t.Errorf("session %d: %d messages kept, and there were %d a second before the end", listing, listed, count)
			}
		}
		whole := 0
		for id, heard := range small {
			session, err := s.Session(id)
			if err == nil && session.State == Done {
				whole++
				if got := readBody(t, s, id, Response); !bytes.Equal(got, noise(id, int(id*977%100_000))) {
					t.Errorf("session %d: its body differs", id)
				}
				continue
			}
			if id <= durable || heard.Before(end.Add(-time.Second)) {
				t.Errorf("session %d (durable up to %d): state %s, %v", id, durable, session.State, err)
			}
		}
		t.Logf("%d large bodies; %d of %d small sessions whole, %d reported durable", len(large), whole, len(small), durable)
	}
	check(s)
	before := takePicture(t, s)
	s = rebuild(t, s)
	check(s)
	comparePictures(t, picture{rows: takePicture(t, s).rows, sessions: takePicture(t, s).sessions}, picture{rows: before.rows, sessions: before.sessions})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, true, func(p string) { t.Error("after recovery:", p) }); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "incoming", "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
