package h2

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/net/http2"
)

// taker is an Exchange that takes sides over and hands them to a goroutine.
type taker struct {
	*seen
	request  func(s *Stream, in *Incoming)
	response func(s *Stream, in *Incoming)
}

func (e *taker) Head(side Side, h *Head) {
	e.seen.Head(side, h)
	fn := e.request
	if side == Response {
		fn = e.response
	}
	if fn != nil && !h.Informational {
		in := e.s.Take(side)
		go fn(e.s, in)
	}
}

func takeRequest(fn func(s *Stream, in *Incoming)) func(*seen) Exchange {
	return func(e *seen) Exchange { return &taker{seen: e, request: fn} }
}

func takeResponse(fn func(s *Stream, in *Incoming)) func(*seen) Exchange {
	return func(e *seen) Exchange { return &taker{seen: e, response: fn} }
}

func TestAnswerWithoutUpstream(t *testing.T) {
	r := greeted(t, takeRequest(func(s *Stream, in *Incoming) {
		body, err := io.ReadAll(in)
		if err != nil {
			t.Error(err)
		}
		in.Close()
		out := s.Outgoing(Response)
		out.Head(fields(":status=200"), false)
		out.Write(bytes.ToUpper(body))
		out.Trailers(append(fields("x-end=1"), in.Trailers()...))
	}), nil, nil)
	r.client.headers(1, false, get)
	r.client.fr.WriteDataPadded(1, false, []byte("hello"), make([]byte, 20))
	r.client.headers(1, true, "x-sum=5")
	credit := map[uint32]uint32{}
	if got, want := r.client.skipCredit(credit), "HEADERS 1 :status=200"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for _, want := range []string{`DATA 1 "HELLO"`, "HEADERS 1 end x-end=1 x-sum=5"} {
		if got := r.client.skipCredit(credit); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	for credit[0] < 26 { // 5 bytes, 20 of padding and its length
		r.client.skipCredit(credit, 26)
	}
	// Upstream saw nothing, and sees nothing of what comes late for the stream.
	r.client.fr.WriteWindowUpdate(1, 5)
	r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	r.client.fr.WritePing(false, [8]byte{})
	r.upstream.wantStart("PING")
}

func TestAnswerStopsTheUpload(t *testing.T) {
	r := greeted(t, takeRequest(func(s *Stream, in *Incoming) {
		in.Close()
		s.Outgoing(Response).Head(fields(":status=403"), true)
	}), nil, nil)
	r.client.headers(1, false, get)
	r.client.want("HEADERS 1 end :status=403", "RST_STREAM 1 NO_ERROR")
	r.client.fr.WriteData(1, true, []byte("late"))
	r.client.want("WINDOW_UPDATE 0 4")
	r.client.headers(3, true, get)
	r.client.want("HEADERS 3 end :status=403")
}

func TestRequestBodyReplaced(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 200_000)
	r := greeted(t, func(e *seen) Exchange {
		return &taker{seen: e, request: func(s *Stream, in *Incoming) {
			defer in.Close()
			out := s.Outgoing(Request)
			if err := out.Head(fields(get+" x-new=1"), false); err != nil {
				t.Error(err)
			}
			io.Copy(io.Discard, in)
			out.Write(big)
			out.Close()
		}}
	}, nil, nil)
	r.client.headers(1, false, get)
	r.client.fr.WriteData(1, true, []byte("small"))
	r.upstream.want("HEADERS 1 " + get + " x-new=1")
	got := 0
	for got < len(big) {
		f, err := r.upstream.fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		d := f.(*http2.DataFrame)
		got += len(d.Data())
		r.upstream.fr.WriteWindowUpdate(0, uint32(len(d.Data())))
		r.upstream.fr.WriteWindowUpdate(1, uint32(len(d.Data())))
	}
	r.upstream.want(`DATA 1 end ""`)
	r.upstream.headers(1, true, ":status=200")
	credit := map[uint32]uint32{}
	if got, want := r.client.skipCredit(credit), "HEADERS 1 end :status=200"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	r.watch.until(t, "the end", func() bool { return r.watch.streams[0].closed != nil && r.watch.streams[0].closed.By == Nobody })
}

func TestResponseBodyReplaced(t *testing.T) {
	r := greeted(t, takeResponse(func(s *Stream, in *Incoming) {
		in.Close()
		out := s.Outgoing(Response)
		out.Head(fields(":status=200"), false)
		out.Write([]byte("mine"))
		out.Close()
	}), nil, nil)
	r.client.headers(1, true, get)
	r.upstream.want("HEADERS 1 end " + get)
	r.upstream.headers(1, false, ":status=200")
	r.upstream.fr.WriteData(1, false, bytes.Repeat([]byte("y"), 16384))
	r.client.want("HEADERS 1 :status=200", `DATA 1 "mine"`, `DATA 1 end ""`)
	credit := map[uint32]uint32{}
	for line := ""; line != "RST_STREAM 1 CANCEL"; {
		line = r.upstream.skipCredit(credit)
	}
	// What upstream still sends is dropped, and paid for.
	r.upstream.fr.WriteData(1, true, bytes.Repeat([]byte("y"), 1000))
	r.upstream.fr.WritePing(false, [8]byte{1})
	r.client.wantStart("PING")
	for credit[0] < 17384 {
		r.upstream.skipCredit(credit, 17384)
	}
	if credit[0] != 17384 {
		t.Errorf("got %d of the connection's credit back, want 17384", credit[0])
	}
}

// A hook that reads slowly holds up neither the other streams nor memory: what was granted is spooled.
func TestSlowHookHoldsUpNobody(t *testing.T) {
	read := make(chan struct{})
	sum := make(chan int64, 1)
	r := greeted(t, func(e *seen) Exchange {
		if e.s.ID != 1 {
			return e
		}
		return &taker{seen: e, response: func(s *Stream, in *Incoming) {
			<-read
			n, err := io.Copy(io.Discard, in)
			if err != nil {
				t.Error(err)
			}
			in.Close()
			s.Outgoing(Response).Head(fields(":status=200"), true)
			sum <- n
		}}
	}, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 8 << 20}}, nil)
	r.client.fr.WriteWindowUpdate(0, 16<<20)
	r.upstream.wantStart("WINDOW_UPDATE 0")
	r.client.headers(1, true, get)
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 1 end "+get, "HEADERS 3 end "+get)
	r.upstream.headers(1, false, ":status=200")
	piece := make([]byte, 16384)
	for i := range 512 {
		if err := r.upstream.fr.WriteData(1, i == 511, piece); err != nil {
			t.Fatal(err)
		}
	}
	r.upstream.headers(3, true, ":status=204")
	r.client.want("HEADERS 3 end :status=204")
	close(read)
	if got := <-sum; got != 8<<20 {
		t.Errorf("read %d bytes, want 8 MiB", got)
	}
	r.client.want("HEADERS 1 end :status=200")
}

func TestRequestThatLostItsTurn(t *testing.T) {
	turn := make(chan struct{})
	result := make(chan error, 1)
	r := greeted(t, func(e *seen) Exchange {
		if e.s.ID != 1 {
			return e
		}
		return &taker{seen: e, request: func(s *Stream, in *Incoming) {
			defer in.Close()
			<-turn
			result <- s.Outgoing(Request).Head(fields(get), true)
			s.Outgoing(Response).Head(fields(":status=200"), true)
		}}
	}, nil, nil)
	r.client.headers(1, true, get)
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 3 end " + get)
	close(turn)
	if err := <-result; !errors.Is(err, ErrTurn) {
		t.Errorf("got %v, want ErrTurn", err)
	}
	r.client.want("HEADERS 1 end :status=200")
}

// A hook's data uses credit that upstream was lent: upstream's waits for what the client gives next, and the client's windows are never exceeded.
func TestHookAndSenderShareTheConnectionWindow(t *testing.T) {
	r := greeted(t, func(e *seen) Exchange {
		if e.s.ID != 1 {
			return e
		}
		return &taker{seen: e, request: func(s *Stream, in *Incoming) {
			in.Close()
			out := s.Outgoing(Response)
			out.Head(fields(":status=200"), false)
			out.Write(make([]byte, 60_000))
			out.Close()
		}}
	}, nil, nil)
	r.client.headers(1, true, get)
	r.client.headers(3, true, get)
	r.upstream.want("HEADERS 3 end " + get)
	r.upstream.headers(3, false, ":status=200")
	for range 3 {
		r.upstream.fr.WriteData(3, false, make([]byte, 16384))
	}
	r.upstream.fr.WriteData(3, true, make([]byte, 65535-3*16384)) // all that it was lent
	window, total := 65535, 0
	for ends := 0; ends < 2; {
		f, err := r.client.fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if window -= int(d.Length); window < 0 {
			t.Fatalf("the client's window was exceeded by %d", -window)
		}
		if total += int(d.Length); d.StreamEnded() {
			ends++
		}
		if window < 8192 {
			r.client.fr.WriteWindowUpdate(0, 16384)
			window += 16384
		}
	}
	if total != 60_000+65_535 {
		t.Errorf("the client got %d bytes, want 125535", total)
	}
}

// A hook's data waits for the stream's window, which SETTINGS change too, below zero even. RFC 9113, section 6.9.2.
func TestHookWaitsForTheStreamsWindow(t *testing.T) {
	r := greeted(t, takeRequest(func(s *Stream, in *Incoming) {
		in.Close()
		out := s.Outgoing(Response)
		out.Head(fields(":status=200"), false)
		out.Write([]byte("0123456789"))
		out.Close()
	}), []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 4}}, nil)
	r.client.headers(1, true, get)
	r.client.want("HEADERS 1 :status=200", `DATA 1 "0123"`)
	r.client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // 4 below nothing
	r.client.fr.WriteWindowUpdate(1, 4)
	r.client.fr.WritePing(false, [8]byte{})
	r.upstream.want("SETTINGS INITIAL_WINDOW_SIZE=0")
	r.upstream.wantStart("PING")
	r.client.fr.WriteWindowUpdate(1, 2)
	r.client.want(`DATA 1 "45"`)
	r.client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.client.want(`DATA 1 "6789"`, `DATA 1 end ""`)
}

// A stream that ends early ends what a hook reads and writes.
func TestHookLearnsOfTheEnd(t *testing.T) {
	read, written := make(chan error, 1), make(chan error, 1)
	r := greeted(t, takeRequest(func(s *Stream, in *Incoming) {
		defer in.Close()
		_, err := io.Copy(io.Discard, in)
		read <- err
		_, err = s.Outgoing(Response).Write([]byte("late"))
		written <- err
	}), nil, nil)
	r.client.headers(1, false, get)
	r.client.fr.WriteData(1, false, []byte("part"))
	r.client.fr.WriteRSTStream(1, http2.ErrCodeCancel)
	var early *StreamError
	if err := <-read; !errors.As(err, &early) || early.Close.By != Client || early.Close.Code != http2.ErrCodeCancel {
		t.Errorf("read ended with %v", err)
	}
	if err := <-written; err == nil {
		t.Error("wrote to a stream that is over")
	}
}
