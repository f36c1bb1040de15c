package proxy

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"millpond/storage"
)

// untilFrame reads frames until one of the type comes.
func untilFrame(t *testing.T, fr *http2.Framer, want http2.FrameType) http2.Frame {
	t.Helper()
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("wait for %v: %v", want, err)
		}
		if f.Header().Type == want {
			return f
		}
	}
}

// ask sends a request on a stream, whose body is still to come if open is set.
func ask(fr *http2.Framer, stream uint32, open bool) {
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x82, 0x84, 0x86}, EndStream: !open, EndHeaders: true})
}

func TestHTTP2SettingsAndStreamAreOnTheSession(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, origin := http2Tunnel(t, h)
	client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 70_000}, http2.Setting{ID: http2.SettingEnablePush, Val: 1}, http2.Setting{ID: 0x0a0a, Val: 7})
	origin.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 99})
	for told := false; !told; {
		_, told = untilFrame(t, client, http2.FrameSettings).(*http2.SettingsFrame).Value(http2.SettingMaxConcurrentStreams)
	}
	ask(client, 5, false)
	untilFrame(t, origin, http2.FrameHeaders)
	origin.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte{0x88}, EndStream: true, EndHeaders: true})
	client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 80_000})
	untilFrame(t, client, http2.FrameHeaders)
	ask(client, 7, false)
	untilFrame(t, origin, http2.FrameHeaders)
	origin.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: []byte{0x88}, EndStream: true, EndHeaders: true})

	first, second := h.session(1), h.session(2)
	if first.HTTP2 == nil || second.HTTP2 == nil || first.HTTP2.Stream != 5 || second.HTTP2.Stream != 7 {
		t.Fatalf("got %+v and %+v", first.HTTP2, second.HTTP2)
	}
	for _, test := range []struct {
		name string
		got  []storage.Setting
		want string
	}{
		{"the client's at first", first.HTTP2.ClientSettings, "[{{} 4 70000} {{} 2 1} {{} 2570 7}]"},
		{"the client's later", second.HTTP2.ClientSettings, "[{{} 4 80000} {{} 2 1} {{} 2570 7}]"},
		{"upstream's", second.HTTP2.UpstreamSettings, "[{{} 3 99}]"},
	} {
		if got := fmt.Sprint(test.got); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
	if s := first.HTTP2; s.Reset != nil || s.Away != nil {
		t.Errorf("an untroubled stream: %+v", s)
	}
	for _, m := range first.Sides {
		if m.Framing != storage.FramingHTTP2 {
			t.Errorf("framing %v", m.Framing)
		}
	}
}

func TestHTTP2ResetIsOnTheSession(t *testing.T) {
	for _, test := range []struct {
		name string
		act  func(client, origin *http2.Framer)
		want storage.Reset
	}{
		{"by the client", func(client, _ *http2.Framer) { client.WriteRSTStream(1, http2.ErrCodeCancel) }, storage.Reset{By: storage.ByClient, Code: 8}},
		{"by upstream, with a code that nobody registered", func(_, origin *http2.Framer) { origin.WriteRSTStream(1, 0xbeef) }, storage.Reset{By: storage.ByUpstream, Code: 0xbeef}},
		{"by us, for a bad trailer", func(client, _ *http2.Framer) {
			client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x00\x01a\x02b\n"), EndStream: true, EndHeaders: true})
		}, storage.Reset{By: storage.ByProxy, Code: 1}},
		{"by upstream after a whole response, wanting no more of the request", func(_, origin *http2.Framer) {
			origin.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndStream: true, EndHeaders: true})
			origin.WriteRSTStream(1, http2.ErrCodeNo)
		}, storage.Reset{By: storage.ByUpstream, Code: 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := startHarness(t, Config{})
			client, _, origin := http2Tunnel(t, h)
			ask(client, 1, true)
			untilFrame(t, origin, http2.FrameHeaders)
			test.act(client, origin)
			s := h.session(1)
			if s.HTTP2 == nil || s.HTTP2.Reset == nil || *s.HTTP2.Reset != test.want || s.HTTP2.Stream != 1 {
				t.Errorf("got %+v of %v %s", s.HTTP2, s.State, s.Error)
			}
		})
	}
}

func TestHTTP2RefusedRequestTellsItsReset(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, _ := http2Tunnel(t, h)
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, BlockFragment: []byte("\x00\x01a\x02b\n"), EndStream: true, EndHeaders: true})
	s := h.session(1)
	if f := s.HTTP2; f == nil || f.Stream != 9 || f.Reset == nil || *f.Reset != (storage.Reset{By: storage.ByProxy, Code: 1}) {
		t.Errorf("got %+v of %+v", f, s)
	}
}

func TestHTTP2GoAwayIsOnEachOpenSession(t *testing.T) {
	h := startHarness(t, Config{})
	client, _, origin := http2Tunnel(t, h)
	ask(client, 1, true)
	ask(client, 3, true)
	untilFrame(t, origin, http2.FrameHeaders)
	untilFrame(t, origin, http2.FrameHeaders)
	long := strings.Repeat("x", storage.GoAwayDebug+5)
	origin.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("soon"))
	origin.WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte(long))
	untilFrame(t, client, http2.FrameGoAway)
	untilFrame(t, client, http2.FrameGoAway)
	client.WriteGoAway(0, http2.ErrCodeNo, nil)
	untilFrame(t, origin, http2.FrameGoAway)
	origin.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndStream: true, EndHeaders: true})
	client.WriteData(1, true, nil)

	for id, want := range map[uint64]int{1: 2, 2: 1} { // the second ended by upstream's GOAWAY, before the client's
		s := h.session(id)
		if s.HTTP2 == nil || len(s.HTTP2.Away) != want || s.HTTP2.Reset != nil {
			t.Fatalf("session %d: got %+v", id, s.HTTP2)
		}
		g := s.HTTP2.Away[0]
		if g.By != storage.ByUpstream || g.Last != 1 || g.Code != 0xb || string(g.Debug) != long[:storage.GoAwayDebug] || g.Size != uint32(len(long)) {
			t.Errorf("session %d: got %+v", id, g)
		}
		if want == 2 && (s.State != storage.Done || s.HTTP2.Away[1].By != storage.ByClient) {
			t.Errorf("session %d: %v, %+v", id, s.State, s.HTTP2.Away[1])
		}
	}
}
