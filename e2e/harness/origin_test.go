package harness

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// The tests of the program are worth what their ends are worth: here client and origin meet without it.
func TestOriginSendsAndReceivesWhole(t *testing.T) {
	o := StartOrigin(t)
	for _, p := range Protocols {
		client := NewClient(p, "", o.Authority.Pool())
		framings := []Framing{Fixed, Open, Close, Odd}
		if p == HTTP2 {
			framings = framings[:2]
		}
		for _, framing := range framings {
			for _, size := range []int64{0, 1, 65_537, 3 << 20} {
				t.Run(fmt.Sprintf("%s/%s/%d", p, framing, size), func(t *testing.T) {
					b := NewBody(uint64(size)+1, size)
					res, err := client.Get(o.URL(p, BodyPath("direct", b, framing)))
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					digest, n, err := Digest(res.Body)
					if err != nil || digest != b.SHA256() {
						t.Errorf("received %d bytes, %v; want %v", n, err, b)
					}
					if got := res.ContentLength >= 0; got != (framing == Fixed) {
						t.Errorf("Content-Length is %d with framing %s", res.ContentLength, framing)
					}
					if framing == Odd && res.Trailer.Get("X-Sum") != "odd" {
						t.Errorf("trailer is %v", res.Trailer)
					}
					if want := map[bool]int{true: 2, false: 1}[p == HTTP2]; res.ProtoMajor != want {
						t.Errorf("protocol is %s", res.Proto)
					}
					if framing == Close || framing == Odd {
						return
					}
					up, err := Send(client, o.URL(p, "/put/direct"), b, framing)
					if err != nil || up.SHA256 != b.SHA256() || up.Size != size {
						t.Errorf("origin received %+v, %v; want %v", up, err, b)
					}
					if (up.Declared >= 0) != (framing == Fixed) {
						t.Errorf("origin was told %d with framing %s", up.Declared, framing)
					}
				})
			}
		}
	}
}

func TestOriginBreaksOff(t *testing.T) {
	o := StartOrigin(t)
	for _, p := range Protocols {
		client := NewClient(p, "", o.Authority.Pool())
		for _, framing := range []Framing{Fixed, Open, Close, Odd} {
			if p == HTTP2 && framing != Fixed && framing != Open {
				continue
			}
			path := BodyPath("direct", NewBody(1, 100_000), framing) + "&abort=50000"
			res, err := client.Get(o.URL(p, path))
			if err != nil {
				t.Fatalf("%s %s: %v", p, framing, err)
			}
			n, err := io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err == nil || n > 50_000 {
				t.Errorf("%s %s: received %d bytes and no error", p, framing, n)
			}
		}
	}
}

func TestOriginSendsSlowly(t *testing.T) {
	o := StartOrigin(t)
	for _, p := range Protocols {
		client := NewClient(p, "", o.Authority.Pool())
		res, err := client.Get(o.URL(p, "/events/direct?count=3&pace=10ms"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for event := range Events(res.Body) {
			if sent, err := strconv.ParseInt(event, 10, 64); err != nil || time.Unix(0, sent).After(time.Now()) {
				t.Errorf("%s: event %q", p, event)
			}
			n++
		}
		if n != 3 || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d events, %s", p, n, res.Status)
		}
		res.Body.Close()
	}
}
