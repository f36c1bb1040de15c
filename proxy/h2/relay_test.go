package h2

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// lateSent is an exchange that takes its time when it is told that the request was sent.
type lateSent struct {
	*seen
	asked, answer chan struct{}
}

func (e *lateSent) Sent(side Side) {
	if side == Request {
		close(e.asked)
		<-e.answer
	}
	e.seen.Sent(side)
}

// Both sides may end in one moment: the stream is not closed before the exchange knows of both.
func TestEndsInOneMoment(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	r := greeted(t, func(e *seen) Exchange { return &lateSent{e, asked, answer} }, nil, nil)
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	r.upstream.headers(1, false, ":status=200")
	r.client.want("HEADERS 1 :status=200")
	r.client.fr.WriteData(1, true, nil)
	<-asked
	r.upstream.fr.WriteData(1, true, nil)
	r.upstream.fr.WritePing(false, [8]byte{'x'})
	r.client.want(`DATA 1 end ""`, `PING ack=false "x\x00\x00\x00\x00\x00\x00\x00"`)
	close(answer)
	r.watch.until(t, "the stream's end", func() bool { return r.watch.streams[0].closed != nil })
	if s := r.watch.streams[0]; s.told != [2]bool{true, true} {
		t.Errorf("when the stream was closed, sent was %v", s.told)
	}
}

func TestExchangePassesInOrder(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	head := ":path=/%zz :method=POST x-b=2 :authority=a.test :scheme=https X-Upper=1 cookie=a cookie=b authorization=secret! empty= x-b=1"
	r.client.headers(1, false, head)
	r.upstream.want("HEADERS 1 " + head)
	r.client.fr.WriteData(1, false, []byte("hello"))
	r.upstream.want(`DATA 1 "hello"`)
	r.client.headers(1, true, "x-sum=5")
	r.upstream.want("HEADERS 1 end x-sum=5")
	r.upstream.headers(1, false, ":status=103 link=</a>")
	r.upstream.headers(1, false, ":status=200 set-cookie=a! set-cookie=b")
	r.client.want("HEADERS 1 :status=103 link=</a>", "HEADERS 1 :status=200 set-cookie=a! set-cookie=b")
	r.upstream.fr.WriteData(1, false, []byte("answer"))
	r.upstream.headers(1, true, "grpc-status=0")
	r.client.want(`DATA 1 "answer"`, "HEADERS 1 end grpc-status=0")

	r.watch.until(t, "the stream's end", func() bool { return len(r.watch.streams) == 1 && r.watch.streams[0].closed != nil })
	s := r.watch.streams[0]
	if s.closed.By != Nobody || !s.sent[Request] || !s.sent[Response] {
		t.Errorf("closed %+v, sent %v", *s.closed, s.sent)
	}
	if got, want := s.heads[Response], []string{":status=103 link=</a>", ":status=200 set-cookie=a! set-cookie=b"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("response heads %q, want %q", got, want)
	}
	if s.data[Request].String() != "hello" || s.data[Response].String() != "answer" || s.trailers[Request] != "x-sum=5" || s.trailers[Response] != "grpc-status=0" {
		t.Errorf("seen %+v", s)
	}
}

func TestConnectionFramesPass(t *testing.T) {
	r := newRig(t, nil)
	r.client.conn.Write([]byte(http2.ClientPreface))
	r.client.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 65536}, http2.Setting{ID: http2.SettingEnablePush, Val: 1},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 6 << 20}, http2.Setting{ID: 0x4a4a, Val: 7})
	r.client.fr.WriteWindowUpdate(0, 15<<20)
	preface := make([]byte, len(http2.ClientPreface))
	r.upstream.conn.Read(preface)
	r.upstream.want("SETTINGS HEADER_TABLE_SIZE=4096 ENABLE_PUSH=0 INITIAL_WINDOW_SIZE=6291456 UNKNOWN_SETTING_19018=7")
	r.upstream.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	r.client.want("SETTINGS MAX_CONCURRENT_STREAMS=100 ENABLE_CONNECT_PROTOCOL=1")
	r.upstream.want("WINDOW_UPDATE 0 15728640")
	r.upstream.fr.WriteSettingsAck()
	r.client.want("SETTINGS ack")

	r.client.fr.WritePing(false, [8]byte{'p', 'i', 'n', 'g'})
	r.upstream.want(`PING ack=false "ping\x00\x00\x00\x00"`)
	r.upstream.fr.WritePing(true, [8]byte{'p', 'i', 'n', 'g'})
	r.client.want(`PING ack=true "ping\x00\x00\x00\x00"`)
	r.client.fr.WriteRawFrame(0xbe, 0x5, 9, []byte("unknown"))
	r.upstream.want(`UNKNOWN type=190 flags=5 9 "unknown"`)
	r.upstream.fr.WriteRawFrame(0x0c, 0, 0, []byte("origin"))
	r.client.want(`UNKNOWN type=12 flags=0 0 "origin"`)
	r.client.fr.WritePriority(3, http2.PriorityParam{StreamDep: 1, Weight: 200, Exclusive: true})
	r.upstream.want("PRIORITY 3 1/200/true")
	r.client.fr.WritePriorityUpdate(5, "u=1, i")
	r.upstream.want(`PRIORITY_UPDATE 5 "u=1, i"`)
	r.upstream.fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("soon"))
	r.client.want(`GOAWAY 2147483647 NO_ERROR "soon"`)
}

func TestClientWaitsForUpstreamSettings(t *testing.T) {
	r := newRig(t, nil)
	r.client.conn.Write([]byte(http2.ClientPreface))
	r.client.fr.WriteSettings()
	r.client.headers(1, true, get)
	preface := make([]byte, len(http2.ClientPreface))
	r.upstream.conn.Read(preface)
	r.upstream.want("SETTINGS ENABLE_PUSH=0")
	r.upstream.fr.WriteSettings()
	r.client.want("SETTINGS")
	r.upstream.want("HEADERS 1 end " + get)
}

func TestResetPassesWithItsCode(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeCancel, http2.ErrCodeNo, http2.ErrCodeHTTP11Required, 0x4242} {
		r := greeted(t, nil, nil, nil)
		r.client.headers(1, false, get)
		r.client.headers(3, false, get)
		r.upstream.want("HEADERS 1 "+get, "HEADERS 3 "+get)
		r.client.fr.WriteRSTStream(1, code)
		r.upstream.fr.WriteRSTStream(3, code)
		r.upstream.want("RST_STREAM 1 " + code.String())
		r.client.want("RST_STREAM 3 " + code.String())
		r.watch.until(t, "both ends", func() bool { return r.watch.streams[0].closed != nil && r.watch.streams[1].closed != nil })
		if a, b := r.watch.streams[0].closed, r.watch.streams[1].closed; a.By != Client || a.Code != code || b.By != Upstream || b.Code != code {
			t.Errorf("closed %+v and %+v", a, b)
		}
		// What was under way for a stream that is gone still passes: its receiver accounts for it.
		r.upstream.fr.WriteData(1, false, []byte("late"))
		r.client.want(`DATA 1 "late"`)
	}
}

func TestEarlyResponse(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.client.fr.WriteData(1, false, []byte("part"))
	r.upstream.want("HEADERS 1 "+get, `DATA 1 "part"`)
	r.upstream.headers(1, true, ":status=413")
	r.upstream.fr.WriteRSTStream(1, http2.ErrCodeNo)
	r.client.want("HEADERS 1 end :status=413", "RST_STREAM 1 NO_ERROR")
	r.watch.until(t, "the end", func() bool { return r.watch.streams[0].closed != nil })
	if s := r.watch.streams[0]; !s.sent[Response] || s.sent[Request] || s.closed.By != Upstream || s.closed.Code != http2.ErrCodeNo {
		t.Errorf("closed %+v, sent %v", s.closed, s.sent)
	}
}

// Upstream answers early and closes: its answer arrives, whatever the client still sends.
func TestEarlyResponseOfAClosedConnection(t *testing.T) {
	r := greeted(t, nil, nil, nil)
	r.client.headers(1, false, get)
	r.upstream.want("HEADERS 1 " + get)
	r.upstream.headers(1, true, ":status=413")
	r.upstream.conn.Close()
	go func() {
		for r.client.fr.WriteData(1, false, []byte("on and on")) == nil && r.client.fr.WriteWindowUpdate(0, 9) == nil {
		}
	}()
	r.client.want("HEADERS 1 end :status=413")
	r.watch.until(t, "the end", func() bool { return r.watch.streams[0].closed != nil })
	if s := r.watch.streams[0]; !s.sent[Response] || s.closed.By != Upstream {
		t.Errorf("closed %+v, sent %v", s.closed, s.sent)
	}
}

// slowBooking makes the relay book a body's bytes only after between returned.
type slowBooking struct {
	*seen
	between func()
}

func (e slowBooking) Data(side Side, p []byte) <-chan struct{} {
	e.between()
	return e.seen.Data(side, p)
}

// A client leaves with the last byte of a response, and the relay knows of its leaving before it has booked that byte.
func TestClientThatHasAllMayLeave(t *testing.T) {
	written, gone := make(chan struct{}), make(chan struct{})
	r := greeted(t, func(s *seen) Exchange {
		return slowBooking{s, func() { close(written); <-gone }}
	}, nil, nil)
	r.client.headers(1, true, get)
	r.upstream.want("HEADERS 1 end " + get)
	r.upstream.headers(1, false, ":status=200")
	r.client.want("HEADERS 1 :status=200")
	r.upstream.fr.WriteData(1, true, make([]byte, flushSize)) // is not held back for what may follow
	<-written
	r.client.want("DATA 1 end 32768 bytes")
	r.client.conn.Close()
	r.upstream.wantStart("GOAWAY ")
	close(gone)
	r.wait(t)
	if s := r.watch.streams[0]; !s.told[Response] || s.data[Response].Len() != flushSize || s.closes != 1 {
		t.Errorf("sent %v, %d bytes, closed %+v, sent before that: %v", s.sent, s.data[Response].Len(), s.closed, s.told)
	}
}

func TestConnectionEnds(t *testing.T) {
	for _, side := range []Side{Request, Response} {
		r := greeted(t, nil, nil, nil)
		r.client.headers(1, false, get)
		r.upstream.want("HEADERS 1 " + get)
		ends := map[Side]*end{Request: r.client, Response: r.upstream}
		ends[side].conn.Close()
		ends[side.other()].wantStart("GOAWAY ")
		ends[side.other()].want("error EOF")
		ends[side.other()].conn.Close()
		if err := r.wait(t); err == nil {
			t.Error("no error with a stream open")
		}
		if c := r.watch.streams[0].closed; c == nil || c.By != Party(side+1) || r.watch.streams[0].closes != 1 {
			t.Errorf("closed %+v", c)
		}
	}
}
