package h2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A client that opens a stream of few bytes that unfold to many, resets it and goes on is sent away, once, and so is such an upstream.
func TestFieldsThatUnfoldAreBounded(t *testing.T) {
	for _, by := range []Party{Client, Upstream} {
		t.Run(by.String(), func(t *testing.T) {
			r := greeted(t, func(*seen) Exchange { return quietExchange{} }, nil, nil)
			list := bomb(fields(get))
			if by == Upstream {
				list = bomb(fields(":status=200"))
			}
			excess := 0
			for id := uint32(1); ; id += 2 {
				var block []byte
				if by == Upstream {
					r.client.headers(id, true, get)
					r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
					block = r.upstream.encode(list)
					r.upstream.sendBlock(id, true, block, 16384)
				} else {
					block = r.client.encode(list)
					r.client.sendBlock(id, true, block, 16384)
				}
				if excess += sizeOf(list) - tableSize - unfoldRatio*(frameHeader+len(block)); excess > unfoldBurst {
					break
				}
				if by == Upstream {
					r.client.wantStart(fmt.Sprintf("HEADERS %d end", id))
				} else {
					r.upstream.wantStart(fmt.Sprintf("HEADERS %d end", id))
					r.client.fr.WriteRSTStream(id, http2.ErrCodeCancel)
					r.upstream.want(fmt.Sprintf("RST_STREAM %d CANCEL", id))
				}
			}
			for _, e := range []*end{r.client, r.upstream} {
				e.skipTo(t, "GOAWAY", "ENHANCE_YOUR_CALM", "unfold")
			}
			r.client.conn.Close()
			if err := r.wait(t); err == nil || !strings.Contains(err.Error(), by.String()+" broke HTTP/2: ENHANCE_YOUR_CALM: compressed fields") {
				t.Errorf("ended with %v", err)
			}
			r.watch.mu.Lock()
			defer r.watch.mu.Unlock()
			want := map[Party]int{Client: 1, Upstream: 0}[by] // the stream with upstream's response tells itself
			if len(r.watch.refused) != want || want > 0 && !strings.Contains(r.watch.refused[0], "unfold") {
				t.Errorf("refused %q, want %d", r.watch.refused, want)
			}
		})
	}
}

// What clients and servers send, however warm the table and long the connection, is nowhere near the bound: not one byte is counted against it.
func TestOrdinaryFieldsAreNotBounded(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5000
	}
	common := fields(get + " user-agent=Mozilla/5.0!(X11;Linux) accept=*/* accept-encoding=gzip,deflate,br,zstd accept-language=de,en;q=0.5 referer=https://a.test/ sec-fetch-mode=cors")
	for i := range common {
		common[i].Sensitive = false
	}
	cookie := func(from, bytes int) hpack.HeaderField {
		return hpack.HeaderField{Name: "cookie", Value: fmt.Sprintf("c%d=", from) + strings.Repeat("~", bytes)} // which is sent as it is, and so read quickly
	}
	with := func(more ...hpack.HeaderField) func(int) []hpack.HeaderField {
		list := append(common[:len(common):len(common)], more...)
		return func(int) []hpack.HeaderField { return list }
	}
	var crumbs, few []hpack.HeaderField
	for i := range 40 {
		crumbs = append(crumbs, cookie(i, 200))
	}
	for i := range 12 {
		few = append(few, cookie(i, 200))
	}
	for name, list := range map[string]func(i int) []hpack.HeaderField{
		"one cookie of 8 KiB":                  with(cookie(0, 8<<10)), // more than the table
		"cookies of 8 KiB together":            with(crumbs...),        // each displaces another
		"cookies that the table holds":         with(few...),
		"one cookie that fills the table":      with(cookie(0, 3000)),
		"that and no more, a few bytes a list": func(int) []hpack.HeaderField { return append(fields(get), cookie(0, 3900)) },
		"static fields alone":                  func(int) []hpack.HeaderField { return fields(":method=GET :scheme=https :path=/") },
		"another path each time, and two cookies": func(i int) []hpack.HeaderField {
			return append(fields(fmt.Sprintf(":method=GET :scheme=https :authority=a.test :path=/%d", i)), cookie(0, 1500), cookie(i/1000, 2000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var wire, block bytes.Buffer
			framer := http2.NewFramer(&wire, &wire)
			enc := hpack.NewEncoder(&block)
			var l lists
			l.init(DefaultMaxList)
			decoded, sent := 0, 0
			for i := range n {
				block.Reset()
				for _, f := range list(i) {
					enc.WriteField(f)
				}
				sent += block.Len()
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
				fh, err := framer.ReadFrameHeader()
				if err != nil {
					t.Fatal(err)
				}
				f, err := framer.ReadFrameForHeader(fh)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := l.read(framer, f.(*http2.HeadersFrame)); err != nil {
					t.Fatal(err)
				}
				if decoded += l.size; l.excess != 0 {
					t.Fatalf("list %d of %d bytes, has an excess of %d", i, l.size, l.excess)
				}
			}
			t.Logf("%d bytes sent, %.1f times that decoded", sent, float64(decoded)/float64(sent))
		})
	}
}

// One that is over now and then has what it needs less otherwise to make up for it.
func TestLessMakesUpForMore(t *testing.T) {
	r := greeted(t, func(*seen) Exchange { return quietExchange{} }, nil, nil)
	list := bomb(fields(get))
	id := uint32(1)
	for range 2 * unfoldBurst / sizeOf(list) {
		r.client.sendBlock(id, true, r.client.encode(list), 16384)
		r.upstream.wantStart(fmt.Sprintf("HEADERS %d end", id))
		r.client.fr.WriteRSTStream(id, http2.ErrCodeCancel)
		r.upstream.want(fmt.Sprintf("RST_STREAM %d CANCEL", id))
		for id += 2; id%200 != 1; id += 2 {
			r.client.headers(id, true, get)
			r.upstream.want(fmt.Sprintf("HEADERS %d end %s", id, get))
			r.client.fr.WriteRSTStream(id, http2.ErrCodeCancel)
			r.upstream.want(fmt.Sprintf("RST_STREAM %d CANCEL", id))
		}
	}
}
