package h2

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// large is a list of some 240 KB, and as much on the wire.
func large(list []hpack.HeaderField) []hpack.HeaderField {
	return append(list, manyOf(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000), Sensitive: true}, 60)...)
}

// bomb is large, but of a byte for each field once that is in the compression table.
func bomb(list []hpack.HeaderField) []hpack.HeaderField {
	return append(list, manyOf(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000)}, 60)...)
}

func sizeOf(list []hpack.HeaderField) (n int) {
	for _, f := range list {
		n += int(f.Size())
	}
	return n
}

// Requests are refused while the fields of the open ones are beyond the bound; what the refused ones did to the compression state stays. A client that goes on is
// sent away.
func TestFieldsOfOpenRequestsAreBounded(t *testing.T) {
	r := greeted(t, func(*seen) Exchange { return quietExchange{} }, nil, nil)
	list := large(fields(get))
	id := uint32(1)
	send := func() { r.client.sendBlock(id, true, r.client.encode(list), 16384) }
	pass := func() {
		t.Helper()
		send()
		r.upstream.wantStart(fmt.Sprintf("HEADERS %d end", id))
		id += 2
	}
	for held := 0; held <= maxHeld; held += sizeOf(list) {
		pass()
	}
	refuse := func() {
		t.Helper()
		send()
		r.client.want(fmt.Sprintf("RST_STREAM %d REFUSED_STREAM", id))
		id += 2
	}
	refuse()
	r.upstream.fr.WriteRSTStream(3, http2.ErrCodeCancel)
	r.client.want("RST_STREAM 3 CANCEL")
	pass()
	for range maxCrowded - 1 {
		refuse()
	}
	send()
	r.client.skipTo(t, "GOAWAY", "ENHANCE_YOUR_CALM", "fields of the open streams")
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	if len(r.watch.refused) != maxCrowded {
		t.Errorf("%d were refused", len(r.watch.refused))
	}
}

// Responses end alone beyond the bound, and what ended gives its room back.
func TestFieldsOfOpenResponsesAreBounded(t *testing.T) {
	r := greeted(t, func(*seen) Exchange { return quietExchange{} }, nil, nil)
	list := large(fields(":status=200"))
	id := uint32(1)
	answer := func() {
		t.Helper()
		r.client.headers(id, true, get)
		r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
		r.upstream.sendBlock(id, false, r.upstream.encode(list), 16384)
	}
	// So that requests are let in all the same, responses of the streams that are open come one after the other.
	for held := 0; held+sizeOf(list) <= maxHeld; held += sizeOf(list) {
		answer()
		r.client.wantStart(fmt.Sprintf("HEADERS %d frames=", id))
		id += 2
	}
	first := id
	for range 50 {
		r.client.headers(id, true, get)
		r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
		id += 2
	}
	cut := 0
	for id := first; id < first+100; id += 2 {
		r.upstream.sendBlock(id, false, r.upstream.encode(list), 16384)
		if got := r.client.next(); got == fmt.Sprintf("RST_STREAM %d ENHANCE_YOUR_CALM", id) {
			r.upstream.want(got)
			cut++
		} else if !strings.HasPrefix(got, fmt.Sprintf("HEADERS %d frames=", id)) {
			t.Fatalf("got %.100s", got)
		}
	}
	r.relay.mu.Lock()
	held := r.relay.held
	r.relay.mu.Unlock()
	if cut == 0 || held > 2*maxHeld+2*sizeOf(list) {
		t.Errorf("%d were cut, %d bytes are held", cut, held)
	}
	for id := uint32(1); id < first+100; id += 2 {
		r.client.fr.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	eventually(t, "the end of all", func() bool {
		r.relay.mu.Lock()
		defer r.relay.mu.Unlock()
		return len(r.relay.streams) == 0
	})
	if r.relay.mu.Lock(); r.relay.held != 0 {
		t.Errorf("%d bytes are held by no stream", r.relay.held)
	}
	r.relay.mu.Unlock()
}

func TestBeginningOfALongList(t *testing.T) {
	list := bomb(fields(get))
	short := beginning(list, refusedBytes)
	if n := len(Text(short)); n < refusedBytes/2 || n > refusedBytes+100 || short[0] != list[0] || len(list[4].Value) != 4000 {
		t.Errorf("%d bytes of %v", n, short)
	}
	if all := beginning(list[:4], refusedBytes); len(all) != 4 {
		t.Errorf("a short list became %v", all)
	}
}
