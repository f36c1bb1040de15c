package server

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"millpond/storage"
)

// The API shows what the frames and the chunked framing held, in the words and numbers of the protocols.
func TestSessionTellsOfTheWire(t *testing.T) {
	r := newRig(t)
	rec := r.begin(exchange{url: "https://a/"})
	rec.Change(func(s *storage.Session) {
		s.HTTP2 = &storage.HTTP2{
			Stream: 5, Reset: &storage.Reset{By: storage.ByClient, Code: 8},
			Away:           []storage.GoAway{{By: storage.ByUpstream, Last: 7, Code: 0xbeef, Debug: []byte("caf\xe9"), Size: 2000}},
			ClientSettings: []storage.Setting{{ID: 4, Value: 65535}, {ID: 0x0a0a, Value: 1}},
		}
		m := &s.Sides[storage.Response]
		m.Framing = storage.FramingChunked
		m.Chunks = &storage.Chunks{Extensions: []storage.ChunkExtension{{Offset: 3, Size: 2, Text: []byte(";a=\xe9")}}, Cut: 9}
	})
	rec.End(storage.Done, "")
	var got Session
	r.json(r.call("GET", fmt.Sprintf("/api/sessions/%d", rec.ID()), ""), http.StatusOK, &got)
	want := &HTTP2{
		StreamID: 5, Reset: &Reset{"client", 8, "CANCEL"},
		GoAway: []GoAway{{"upstream", 7, 0xbeef, "unknown error code 0xbeef", "café", 2000}},
		Settings: HTTP2Settings{
			Client:   []Setting{{4, "INITIAL_WINDOW_SIZE", 65535}, {0x0a0a, "UNKNOWN_SETTING_2570", 1}},
			Upstream: []Setting{},
		},
	}
	if !reflect.DeepEqual(got.HTTP2, want) {
		t.Errorf("got %+v, want %+v", got.HTTP2, want)
	}
	m := got.Response
	if m.Framing != "chunked" || !reflect.DeepEqual(m.ChunkExtensions, []ChunkExtension{{3, 2, ";a=é"}}) || m.ChunkExtensionsCut != 9 {
		t.Errorf("got %+v", m)
	}
	if got.Request.Framing != "" {
		t.Errorf("the request's framing, which nothing told, is %q", got.Request.Framing)
	}
}
