package e2e

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millpond/e2e/harness"
)

// A client opens a hundred streams of 16 MB on one HTTP/2 connection and reads none. What upstream may send is bounded by the client's
// windows, and where those are wide, by the buffers of the sockets between: never by the proxy's memory.
func TestUnreadStreams(t *testing.T) {
	const (
		streams = 100
		size    = 16_000_000
	)
	// Four sockets stand between the two ends. Linux lets a receive buffer grow to 6 MiB and a send buffer to 4 MiB (tcp(7), tcp_rmem, tcp_wmem).
	const sockets = 2 * (6 + 4) << 20
	for _, test := range []struct {
		name     string
		window   uint32 // of each stream
		more     uint32 // for the connection, beyond the 65,535 it begins with
		upstream int64  // the most that upstream may send
	}{
		// A frame of 16 KiB for each stream may lie in the origin's own buffers.
		{"windows as they begin", 65_535, 0, 65_535 + streams*16<<10},
		{"windows of net/http's client", 4 << 20, 1 << 30, sockets + streams*16<<10},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, origin := harness.StartBoth(t)
			var sent atomic.Int64
			origin.HandleFunc("GET /flood", func(w http.ResponseWriter, _ *http.Request) {
				source := harness.NewBody(1, size).Reader()
				_, _ = io.CopyBuffer(struct{ io.Writer }{w}, counted{source, &sent}, make([]byte, 4<<10))
			})
			roots, err := harness.ReadPool(p.CA)
			if err != nil {
				t.Fatal(err)
			}
			c, err := harness.DialHTTP2(p.Proxy, origin.Addr(harness.HTTP2), roots, http2.Setting{ID: http2.SettingInitialWindowSize, Val: test.window})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if test.more > 0 {
				if err := c.WriteWindowUpdate(0, test.more); err != nil {
					t.Fatal(err)
				}
			}
			for i := range uint32(streams) {
				if err := c.Get(2*i+1, "/flood"); err != nil {
					t.Fatal(err)
				}
			}
			awaitQuiet(t, &sent)
			peak := peakOf(t, p)
			t.Logf("upstream sent %s; peak resident size %s", harness.SizeText(sent.Load()), harness.SizeText(peak))
			if got := sent.Load(); got == 0 || got > test.upstream {
				t.Errorf("upstream sent %d bytes; want some, and at most %d", got, test.upstream)
			}
			if peak > 64<<20 {
				t.Errorf("peak resident size is %s; want at most 64 MiB", harness.SizeText(peak))
			}
			// The connection is held back, not stuck: who reads it on gets a whole body.
			if err := readStreams(c, size); err != nil {
				t.Error(err)
			}
		})
	}
}

// counted counts what was read, and so what upstream has begun to send.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// awaitQuiet waits until n has risen and then stood still for a second.
func awaitQuiet(t *testing.T, n *atomic.Int64) {
	t.Helper()
	still, last := 0, int64(0)
	for deadline := time.Now().Add(time.Minute); still < 20; {
		time.Sleep(50 * time.Millisecond) // quiet has no event
		if now := n.Load(); now == last && now > 0 {
			still++
		} else {
			still, last = 0, now
		}
		if time.Now().After(deadline) {
			t.Fatalf("still moving, or never moved, after a minute: %d bytes", n.Load())
		}
	}
}

// readStreams reads the connection, giving windows as it goes, until one stream has come to its end, and checks its size.
func readStreams(c *harness.Conn2, size int64) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	got := map[uint32]int64{}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return fmt.Errorf("read on after the pause: %w", err)
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			n := uint32(len(frame.Data()))
			got[frame.StreamID] += int64(n)
			if frame.StreamEnded() {
				if got[frame.StreamID] != size {
					return fmt.Errorf("stream %d ended with %d bytes; want %d", frame.StreamID, got[frame.StreamID], size)
				}
				return nil
			}
			if n > 0 {
				if err := c.WriteWindowUpdate(0, n); err != nil {
					return err
				}
				if frame.StreamID == 1 {
					if err := c.WriteWindowUpdate(1, n); err != nil {
						return err
					}
				}
			}
		case *http2.RSTStreamFrame:
			return fmt.Errorf("stream %d was reset: %v", frame.StreamID, frame.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Errorf("the connection is going away: %v", frame.ErrCode)
		}
	}
}
