package e2e

import (
	"os"
	"slices"
	"sync"
	"testing"

	"millpond/e2e/harness"
)

// needRoom skips a test that takes minutes and gigabytes, unless it is asked for, as `npm test` does.
func needRoom(t *testing.T) {
	t.Helper()
	if os.Getenv("MILLPOND_GIB") == "" {
		t.Skip("takes minutes and gigabytes of disk: set MILLPOND_GIB=1, or MILLPOND_GIB=all for the long form")
	}
}

// A body of 1 GiB, or of 256 MiB in the short form, keeps its identity, and takes no more memory than a smaller one, in each protocol and direction.
func TestMemoryOfLargeBodies(t *testing.T) {
	needRoom(t)
	for _, protocol := range harness.Protocols {
		t.Run(string(protocol)+"/response", func(t *testing.T) {
			comparePeaks(t, func(t *testing.T, p *harness.Program, origin *harness.Origin, size int64) {
				checkDownload(t, p, p.Client(t, protocol), origin, protocol, harness.Fixed, newBody(size))
			})
		})
		t.Run(string(protocol)+"/request", func(t *testing.T) {
			comparePeaks(t, func(t *testing.T, p *harness.Program, origin *harness.Origin, size int64) {
				checkUpload(t, p, p.Client(t, protocol), origin, protocol, harness.Fixed, newBody(size))
			})
		})
	}
}

// comparePeaks relays a body and a larger one, each through a new program, and compares the peaks of their resident sizes.
func comparePeaks(t *testing.T, relay func(*testing.T, *harness.Program, *harness.Origin, int64)) {
	t.Helper()
	peak := func(t *testing.T, size int64) (peak int64) {
		// A subtest, so that what was kept is removed before more is.
		t.Run(harness.SizeText(size), func(t *testing.T) {
			p, origin := harness.StartBoth(t)
			relay(t, p, origin, size)
			peak = peakOf(t, p)
		})
		return peak
	}
	smaller, larger := int64(64<<20), int64(256<<20)
	if os.Getenv("MILLPOND_GIB") == "all" {
		smaller, larger = 100<<20, 1<<30
	}
	small, large := peak(t, smaller), peak(t, larger)
	t.Logf("peak resident size %s for %s, %s for %s", harness.SizeText(small), harness.SizeText(smaller), harness.SizeText(large), harness.SizeText(larger))
	if large > small+16<<20 {
		t.Errorf("peak resident size is %s for %s and %s for %s: more than 16 MiB apart",
			harness.SizeText(large), harness.SizeText(larger), harness.SizeText(small), harness.SizeText(smaller))
	}
}

func peakOf(t *testing.T, p *harness.Program) int64 {
	t.Helper()
	_, peak, err := harness.Resident(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// Three hundred clients at once, in each protocol; each has a connection of its own. What one gets is 20 MiB in the long form, and else somewhat more
// than a chunk: all together it is ten times what memory may be.
func TestMemoryOfManyClients(t *testing.T) {
	needRoom(t)
	for _, protocol := range harness.Protocols {
		t.Run(string(protocol), func(t *testing.T) { checkManyClients(t, protocol) })
	}
}

func checkManyClients(t *testing.T, protocol harness.Protocol) {
	const (
		clients = 300
		limit   = 64<<20 + clients*256<<10
	)
	size := int64(5 << 20)
	if os.Getenv("MILLPOND_GIB") == "all" {
		size = 20 << 20
	}
	p, origin := harness.StartBoth(t)
	roots, err := harness.ReadPool(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	var wait, connected sync.WaitGroup
	connected.Add(clients)
	connecting := make(chan struct{}, 16) // Go's HTTP/2 server gives a client 2 s for its first frame, and three hundred handshakes at once can take longer
	for range clients {
		wait.Go(func() {
			client := harness.NewClient(protocol, p.Proxy, roots)
			defer client.CloseIdleConnections()
			connecting <- struct{}{}
			first := newBody(1)
			if _, _, err := harness.Download(client, origin.URL(protocol, harness.BodyPath("first", first, harness.Fixed))); err != nil {
				t.Errorf("connect: %v", err)
			}
			<-connecting
			connected.Done()
			connected.Wait()
			b := newBody(size)
			digest, n, err := harness.Download(client, origin.URL(protocol, harness.BodyPath("many", b, harness.Fixed)))
			if err != nil || digest != b.SHA256() {
				t.Errorf("got %d bytes of %v, %v", n, b, err)
			}
		})
	}
	wait.Wait()
	peak := peakOf(t, p)
	t.Logf("peak resident size %s for %d clients, %s each", harness.SizeText(peak), clients, harness.SizeText(size))
	if peak > limit {
		t.Errorf("peak resident size is %s; want at most %s", harness.SizeText(peak), harness.SizeText(limit))
	}
	whole := 0
	for _, s := range p.Sessions(t, "/get/many") {
		if s.State == "done" && s.ResponseBytes == size && !slices.Contains(s.Flags, "cut") {
			whole++
			continue
		}
		t.Errorf("session %d is %s with %d bytes, flags %q: %s; %s", s.ID, s.State, s.ResponseBytes, s.Flags, s.Error, p.Session(t, s.ID).Response.Body.Missing)
	}
	if whole != clients {
		t.Errorf("%d sessions are whole; want %d", whole, clients)
	}
}
