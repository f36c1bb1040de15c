package storage

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// A record from before framing and HTTP/2 were kept still reads: what it does not tell is unknown.
func TestOlderRecordReads(t *testing.T) {
	old, err := cbor.Marshal(map[int]any{
		1: 7, 2: 1, 6: "GET", 8: "example.com",
		14: []int64{1, 2, 3, 4, 5, 6, 7},
		15: map[int]any{1: "example.com", 2: "h2"},
		16: []any{map[int]any{1: []byte("GET / HTTP/1.1\r\n\r\n"), 5: map[int]any{}}, map[int]any{5: map[int]any{1: 3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := decodeRecord(recordEnded, place{}, old)
	if err != nil {
		t.Fatalf("read %s: %v", hex.EncodeToString(old), err)
	}
	s := rec.session
	if s.ID != 7 || s.State != Done || s.Host != "example.com" || s.TLS.ALPN != "h2" || s.Sides[Response].Body.Size != 3 || s.Timing.Ended.UnixNano() != 7 || s.Timing.Connection().Secured.UnixNano() != 4 {
		t.Errorf("got %+v", s)
	}
	if s.HTTP2 != nil || s.Sides[Request].Framing != FramingUnknown || s.Sides[Request].Framing.String() != "" {
		t.Errorf("it tells what it does not know: %+v", s)
	}
}

func TestWireFactsAreStored(t *testing.T) {
	want := Session{HTTP2: &HTTP2{
		Stream: 1<<31 - 1, Reset: &Reset{By: ByUpstream, Code: 8},
		Away:           []GoAway{{By: ByProxy, Last: 3, Code: 11, Debug: []byte("\x00\xff"), Size: 9}},
		ClientSettings: []Setting{{ID: 4, Value: 1<<32 - 1}}, UpstreamSettings: []Setting{{ID: 3, Value: 0}},
	}}
	want.Sides[Response].Framing = FramingChunked
	want.Sides[Response].Chunks = &Chunks{Extensions: []ChunkExtension{{Offset: 5, Size: 1, Text: []byte(";\xff")}}, Cut: 12}
	now := time.Now().UTC().Round(0)
	want.Timing = Timing{Started: now, FirstByte: now.Add(1), Setup: &Setup{Connect: now.Add(2), ClientSecured: now.Add(3)}}
	err := encoded(&want, func(b []byte) error {
		rec, err := decodeRecord(recordEnded, place{}, b)
		if err != nil {
			return err
		}
		if got := *rec.session; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
