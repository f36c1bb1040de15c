package h2

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const wideWindow = 4 << 20 // what the client of these tests grants each stream

// narrowed is a connection on which upstream sent 100 bytes on stream 1, whose recording is full until the channel is closed, and nothing on stream 3.
func narrowed(t *testing.T) (r *rig, full chan struct{}) {
	t.Helper()
	full = make(chan struct{})
	r = greeted(t, nil, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: wideWindow}}, nil)
	r.client.fr.WriteWindowUpdate(0, 1<<30)
	r.upstream.want("WINDOW_UPDATE 0 1073741824")
	for _, id := range []uint32{1, 3} {
		r.client.headers(id, true, get)
		r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
		r.upstream.headers(id, false, ":status=200")
		r.client.want(fmt.Sprintf("HEADERS %d :status=200", id))
	}
	r.watch.note(func() { r.watch.streams[0].full = full })
	r.upstream.fr.WriteData(1, false, make([]byte, 100))
	r.client.wantStart("DATA 1")
	r.upstream.want("SETTINGS INITIAL_WINDOW_SIZE=65536")
	return r, full
}

// A recording that stays full has upstream told a small window, which takes back what all streams were granted. The client learns nothing of it.
func TestHoldThatLastsTakesCreditBack(t *testing.T) {
	r, full := narrowed(t)
	r.upstream.fr.WriteSettingsAck()
	r.upstream.fr.WritePing(false, [8]byte{'x'})
	r.client.want(`PING ack=false "x\x00\x00\x00\x00\x00\x00\x00"`)

	// What was on its way comes all the same: below zero.
	r.watch.note(func() { r.watch.streams[0].full = nil })
	const more = 5 * 16384
	for range more / 16384 {
		r.upstream.fr.WriteData(1, false, make([]byte, 16384))
		r.client.want("DATA 1 16384 bytes")
	}
	close(full)
	r.upstream.want(fmt.Sprintf("WINDOW_UPDATE 1 %d", 100+more)) // a small window again

	// The other stream has a small window, too, which goes on as it is used.
	for range 2 {
		r.upstream.fr.WriteData(3, false, make([]byte, 16384))
		r.client.want("DATA 3 16384 bytes")
	}
	r.upstream.want("WINDOW_UPDATE 3 32768")

	// So has a new one.
	r.client.headers(5, true, get)
	r.upstream.want("HEADERS 5 end " + get)
	r.upstream.headers(5, false, ":status=200")
	r.client.want("HEADERS 5 :status=200")
	for range 2 {
		r.upstream.fr.WriteData(5, false, make([]byte, 16384))
		r.client.want("DATA 5 16384 bytes")
	}
	r.upstream.want("WINDOW_UPDATE 5 32768")
}

// The client's own SETTINGS pass while the window is small, and each acknowledgement reaches who is waiting for it.
func TestSettingsPassWhileTheWindowIsSmall(t *testing.T) {
	r, full := narrowed(t)
	defer close(full)
	r.client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * wideWindow}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 20000})
	r.upstream.want("SETTINGS INITIAL_WINDOW_SIZE=65536 MAX_FRAME_SIZE=20000")
	r.upstream.fr.WriteSettingsAck() // ours
	r.upstream.fr.WritePing(false, [8]byte{'x'})
	r.client.want(`PING ack=false "x\x00\x00\x00\x00\x00\x00\x00"`)
	r.upstream.fr.WriteSettingsAck() // the client's
	r.client.want("SETTINGS ack")

	r.client.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	r.upstream.want("SETTINGS INITIAL_WINDOW_SIZE=1000")
	r.upstream.fr.WriteSettingsAck()
	r.client.want("SETTINGS ack")
}

// A stream that is not held is lent twice as much after some windows, and once none was held for a while upstream has all that the client grants.
func TestSmallWindowsGrowAgain(t *testing.T) {
	r, full := narrowed(t)
	r.upstream.fr.WriteSettingsAck()
	r.watch.note(func() { r.watch.streams[0].full = nil })
	close(full)
	r.upstream.want("WINDOW_UPDATE 1 100")
	window, sent, grew := int64(narrowWindow), int64(0), false
	wide := false
	for begun := time.Now(); !wide && time.Since(begun) < 10*time.Second; {
		for window >= 16384 && sent < 2*narrowGrowth*narrowWindow || window >= 16384 && time.Since(begun) > time.Second {
			r.upstream.fr.WriteData(3, false, make([]byte, 16384))
			r.client.want("DATA 3 16384 bytes")
			r.client.fr.WriteWindowUpdate(3, 16384) // it reads
			window -= 16384
			if sent += 16384; window < 16384 {
				break
			}
		}
		r.upstream.conn.SetReadDeadline(time.Now().Add(time.Second / 4))
		f, err := r.upstream.fr.ReadFrame()
		if err != nil {
			continue
		}
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 3 {
				window += int64(f.Increment)
			}
		case *http2.SettingsFrame:
			t.Fatalf("upstream is told another window while streams are open: %v", f)
		}
		wide = window > wideWindow/2
		grew = grew || !wide && window > narrowWindow
	}
	if !wide || !grew {
		t.Fatalf("after %d bytes: all is lent again: %t, the small window grew: %t", sent, wide, grew)
	}
	// What the client grants and what upstream may send are one again.
	r.client.fr.WritePing(false, [8]byte{'x'})
	for f, err := r.upstream.fr.ReadFrame(); err == nil; f, err = r.upstream.fr.ReadFrame() {
		if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 3 {
			window += int64(u.Increment)
		}
		if _, ok := f.(*http2.PingFrame); ok {
			break
		}
	}
	if window != wideWindow {
		t.Errorf("upstream may send %d bytes, the client takes %d", window, wideWindow)
	}
	// Once no stream is open, the client's own window is told.
	for _, id := range []uint32{1, 3} {
		r.upstream.fr.WriteData(id, true, nil)
		r.client.want(fmt.Sprintf("DATA %d end \"\"", id))
	}
	r.upstream.want(fmt.Sprintf("SETTINGS INITIAL_WINDOW_SIZE=%d", wideWindow))
}
