package proxy

import (
	"bytes"
	"sync"

	"golang.org/x/net/http2"

	"millpond/proxy/h2"
	"millpond/storage"
)

// http2Facts gathers what a connection's frames say that every stream's session tells: SETTINGS and GOAWAY. The parties are numbered as in h2.
type http2Facts struct {
	mu       sync.Mutex
	settings [4][]storage.Setting // by storage.Party
	away     []storage.GoAway     // the latest of each party
}

// Settings implements h2.Handler.
func (hc *http2Conn) Settings(by h2.Party, list []http2.Setting) {
	kept := make([]storage.Setting, len(list))
	for i, s := range list {
		kept[i] = storage.Setting{ID: uint16(s.ID), Value: s.Val}
	}
	hc.facts.mu.Lock()
	hc.facts.settings[by] = kept
	hc.facts.mu.Unlock()
}

// GoAway implements h2.Handler.
func (hc *http2Conn) GoAway(by h2.Party, last uint32, code http2.ErrCode, debug []byte) {
	g := storage.GoAway{
		By: storage.Party(by), Last: last, Code: uint32(code),
		Debug: bytes.Clone(debug[:min(len(debug), storage.GoAwayDebug)]), Size: uint32(len(debug)),
	}
	f := &hc.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	away := make([]storage.GoAway, 0, len(f.away)+1)
	for _, old := range f.away { // sessions hold the list that was
		if old.By != g.By {
			away = append(away, old)
		}
	}
	f.away = append(away, g)
}

// begun returns what the session of a stream that begins tells.
func (f *http2Facts) begun(stream uint32) storage.HTTP2 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return storage.HTTP2{Stream: stream, ClientSettings: f.settings[storage.ByClient], UpstreamSettings: f.settings[storage.ByUpstream]}
}

// ended returns what it tells when the stream has ended: begun itself where there is nothing to add.
func (f *http2Facts) ended(begun *storage.HTTP2, c h2.Close) *storage.HTTP2 {
	f.mu.Lock()
	away := f.away
	f.mu.Unlock()
	if c.Reset == h2.Nobody && away == nil {
		return begun
	}
	facts := *begun
	facts.Away = away
	if c.Reset != h2.Nobody {
		facts.Reset = &storage.Reset{By: storage.Party(c.Reset), Code: uint32(c.Code)}
	}
	return &facts
}
