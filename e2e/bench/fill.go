package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millpond/e2e/harness"
	"millpond/migrations"
	"millpond/storage"
)

// What the sessions of a filled directory are. Their bodies have meanBody bytes on average; most are small and repeat whole, a few are large and
// repeat by chunk, so that on disk they take next to nothing.
const (
	fillVersion = 1 // rises when sessions are made otherwise: directories of before are not used again

	hosts       = 2_000
	smallBodies = 2_000 // distinct ones
	meanBody    = 30_000
	largeEvery  = 1_000 // of so many sessions one has a large body
	rareEvery   = 100_000
	fillers     = 4 // goroutines that record
)

// rareText is in the URL of one of rareEvery sessions, and partText in that of one of ten.
const rareText, partText = "zanzibar", "/collect/"

// filling says what is in a filled directory. A directory with an equal one is used again.
type filling struct {
	Version  int
	Sessions int
	Bytes    uint64 // of all bodies
	URLBytes uint64 // of all paths and queries
	Seconds  float64
}

// fill makes dir/data, a data directory with so many sessions, through the storage package as a capture would, or uses the one that is there.
func fill(ctx context.Context, dir string, sessions int) (f filling, err error) {
	note := filepath.Join(dir, "filling.json")
	if text, err := os.ReadFile(note); err == nil && json.Unmarshal(text, &f) == nil && f.Version == fillVersion && f.Sessions == sessions &&
		migrations.Current(filepath.Join(dir, "data"), "lock") == nil {
		return f, nil
	}
	if err := errors.Join(os.RemoveAll(note), os.RemoveAll(filepath.Join(dir, "data")), os.MkdirAll(dir, 0o700)); err != nil {
		return f, err
	}
	files, err := storage.OpenDir(filepath.Join(dir, "data"))
	if err != nil {
		return f, err
	}
	store, err := storage.OpenStore(storage.Config{Dir: filepath.Join(dir, "data"), Files: unsynced{files}})
	if err != nil {
		return f, err
	}
	began := time.Now()
	maker := newMaker(sessions)
	var next atomic.Int64
	var all sync.WaitGroup
	for range fillers {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < sessions && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				maker.record(ctx, store, i)
			}
		})
	}
	all.Wait()
	if err := errors.Join(ctx.Err(), store.Close()); err != nil {
		return f, fmt.Errorf("fill %s: %w", dir, err)
	}
	f = filling{fillVersion, sessions, maker.bytes.Load(), maker.urlBytes.Load(), time.Since(began).Seconds()}
	text, err := json.Marshal(f)
	if err != nil {
		return f, err
	}
	return f, os.WriteFile(note, text, 0o600)
}

// unsynced is the disk without syncs: a directory that is being filled may be lost with the power.
type unsynced struct{ storage.Files }

type unsyncedFile struct{ storage.File }

func (u unsynced) OpenFile(name string, flag int) (storage.File, error) {
	f, err := u.Files.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsynced) SyncDir(string) error { return nil }

func (unsyncedFile) Sync() error { return nil }

// maker makes sessions by their number: the same number gives the same session.
type maker struct {
	sessions        int
	begun           time.Time // of the first; the last begins now
	small           [][]byte
	large           []byte // two chunks, of which large bodies are made
	bytes, urlBytes atomic.Uint64
	largeBytes      int // mean of the large bodies
}

func newMaker(sessions int) *maker {
	m := &maker{sessions: sessions, begun: time.Now().Add(-14 * 24 * time.Hour)}
	r := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 64<<10)
	_, _ = harness.NewBody(2, int64(len(text))).ReadAt(text, 0)
	for n := range smallBodies {
		size := 200 << r.IntN(9) // 200 bytes to 51 KB
		size += r.IntN(size / 4)
		body := append([]byte(fmt.Sprintf("body %d ", n)), text[:min(size, 60_000)]...)
		m.small = append(m.small, body)
	}
	m.large = make([]byte, 2*chunk)
	_, _ = harness.NewBody(3, int64(len(m.large))).ReadAt(m.large, 0)
	// What small bodies come to was measured; large ones make up the rest.
	m.largeBytes = (meanBody - 10_600) * largeEvery
	return m
}

const chunk = 4 << 20

var (
	words    = strings.Fields("api users orders items search media static assets images products cart session profile events metrics reports accounts messages threads settings devices tokens catalog inventory pricing")
	methods  = [...]string{"GET", "GET", "GET", "GET", "GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"}
	statuses = [...]int{200, 200, 200, 200, 200, 200, 200, 200, 201, 204, 206, 301, 302, 304, 304, 400, 401, 403, 404, 404, 429, 500, 502, 503}
	types    = [...]string{
		"application/json", "application/json", "application/json; charset=utf-8", "text/html; charset=utf-8", "text/css", "application/javascript",
		"image/png", "image/jpeg", "image/webp", "image/svg+xml", "font/woff2", "application/octet-stream", "video/mp4", "text/plain", "application/x-protobuf",
	}
	ends = [...]string{"com", "org", "net", "io", "dev"}
	subs = [...]string{"www", "api", "cdn", "static", "img", "auth", "events", "m"}
)

// hostName names the host with the number, lower ones first seen.
func hostName(n int) string {
	return fmt.Sprintf("%s.%s%d.%s", subs[n%len(subs)], words[n%len(words)], n, ends[n%len(ends)])
}

// path makes a path with its query: mostly some 40 bytes, one in 40 several hundred.
func (m *maker) path(r *rand.Rand, i int) string {
	var b strings.Builder
	switch {
	case i%rareEvery == rareEvery/2:
		b.WriteString("/" + rareText)
	case i%10 == 3:
		b.WriteString(partText + "v2")
	default:
		fmt.Fprintf(&b, "/%s/v%d", words[r.IntN(len(words))], 1+r.IntN(3))
	}
	for range 1 + r.IntN(3) {
		fmt.Fprintf(&b, "/%s", words[r.IntN(len(words))])
	}
	fmt.Fprintf(&b, "/%d", r.IntN(10_000_000))
	switch k := r.IntN(40); {
	case k == 0:
		b.WriteString("?state=")
		for range 8 + r.IntN(40) {
			fmt.Fprintf(&b, "%016x", r.Uint64())
		}
	case k < 18:
		fmt.Fprintf(&b, "?page=%d&limit=%d&sort=%s", r.IntN(100), 10*(1+r.IntN(10)), words[r.IntN(len(words))])
	}
	return b.String()
}

// record records the session with the number.
func (m *maker) record(ctx context.Context, store *storage.Store, i int) {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	host := int(rand.NewZipf(r, 1.1, 4, hosts-1).Uint64())
	started := m.begun.Add(time.Duration(float64(14*24*time.Hour) * float64(i) / float64(m.sessions)))
	client := fmt.Sprintf("10.0.%d.%d:%d", r.IntN(4), 1+r.IntN(60), 20_000+r.IntN(40_000))
	begun := storage.Session{
		Method: methods[r.IntN(len(methods))], Scheme: "https", Host: hostName(host), Path: m.path(r, i), Protocol: "HTTP/1.1",
		Client: client, Upstream: fmt.Sprintf("203.0.%d.%d:443", host/250, host%250), Timing: storage.Timing{Started: started},
	}
	if r.IntN(3) == 0 {
		begun.Protocol = "HTTP/2"
	}
	if r.IntN(4) > 0 {
		begun.Flags = append(begun.Flags, storage.FlagReused)
	}
	ended := started.Add(time.Duration(5+r.ExpFloat64()*120) * time.Millisecond)
	kind := r.IntN(100)
	if kind == 0 {
		begun.Method, begun.Scheme, begun.Path, begun.Protocol = "CONNECT", "tcp", "", "TLS"
		begun.Flags = []string{storage.FlagTunnel}
	}
	m.urlBytes.Add(uint64(len(begun.Path)))
	rec := store.Begin(begun)
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\nCookie: sid=%016x\r\n\r\n",
		begun.Method, begun.Path, begun.Host, r.Uint64())
	response, status, kindOf := "", 0, ""
	switch body := m.small[m.zipfSmall(r)]; {
	case kind == 1: // no exchange took place
	case kind == 0:
		m.write(ctx, rec, storage.Request, body[:min(len(body), 2_000)])
		m.write(ctx, rec, storage.Response, body)
	default:
		status, kindOf = statuses[r.IntN(len(statuses))], types[r.IntN(len(types))]
		if begun.Method == "POST" || begun.Method == "PUT" || begun.Method == "PATCH" {
			sent := m.small[m.zipfSmall(r)]
			m.write(ctx, rec, storage.Request, sent[:min(len(sent), 4_000)])
		}
		switch {
		case i%largeEvery == largeEvery/2:
			status, kindOf = 200, "video/mp4"
			m.writeLarge(ctx, rec, m.largeBytes/2+r.IntN(m.largeBytes))
		case status != 204 && status != 304 && begun.Method != "HEAD":
			m.write(ctx, rec, storage.Response, body)
		}
		response = fmt.Sprintf("HTTP/1.1 %d X\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-cache\r\nServer: nginx\r\nETag: \"%x\"\r\n\r\n",
			status, started.UTC().Format(time.RFC1123), kindOf, len(body), r.Uint64())
	}
	rec.Body(storage.Request).Complete()
	if kind > 2 {
		rec.Body(storage.Response).Complete()
	}
	rec.Change(func(s *storage.Session) {
		s.Status, s.ContentType = status, kindOf
		s.Sides[storage.Request].Head, s.Sides[storage.Response].Head = []byte(request), []byte(response)
		if begun.Scheme == "https" {
			s.TLS = &storage.TLS{
				ServerName: begun.Host, ALPN: "http/1.1", ClientVersion: "TLS 1.3", ClientCipher: "TLS_AES_128_GCM_SHA256",
				UpstreamVersion: "TLS 1.3", UpstreamCipher: "TLS_AES_128_GCM_SHA256", JA4: "t13d1516h2_8daaf6152771_d8a2da3f94cd",
			}
		}
		s.Timing.RequestSent, s.Timing.Ended = started.Add(time.Millisecond), ended
		if status != 0 {
			s.Timing.FirstByte = started.Add(ended.Sub(started) / 2)
			s.Timing.ResponseHead = s.Timing.FirstByte
		}
		switch i % 100 {
		case 7:
			s.Pinned = i%200 == 7
			s.Note = fmt.Sprintf("looked at on Monday, case %d", i)
		}
	})
	switch kind {
	case 1:
		rec.End(storage.Failed, "dial tcp 203.0.113.9:443: connect: connection refused")
	case 2:
		rec.End(storage.UpstreamAborted, "upstream closed before the end")
	case 3:
		rec.End(storage.ClientAborted, "the client left")
	default:
		rec.End(storage.Done, "")
	}
	rec.Body(storage.Response).Wait(ctx)
}

func (m *maker) zipfSmall(r *rand.Rand) int {
	return int(rand.NewZipf(r, 1.02, 50, smallBodies-1).Uint64())
}

func (m *maker) write(ctx context.Context, rec *storage.Recording, side storage.Side, p []byte) {
	w := rec.Body(side)
	_, _ = w.Write(p)
	m.bytes.Add(uint64(len(p)))
	w.Wait(ctx)
}

// writeLarge writes a response of about n bytes, whole chunks of which there are two.
func (m *maker) writeLarge(ctx context.Context, rec *storage.Recording, n int) {
	const step = 256 << 10
	for at := 0; at < (n+chunk/2)/chunk*chunk; at += step {
		from := at % len(m.large)
		m.write(ctx, rec, storage.Response, m.large[from:from+step])
	}
}
