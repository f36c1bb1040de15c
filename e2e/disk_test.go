package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millpond/e2e/harness"
	"millpond/proxy"
	"millpond/storage"
	"millpond/storage/storagetest"
)

// stallable is a proxy in this process, over a store whose disk can be stalled.
type stallable struct {
	store  *storage.Store
	disk   *storagetest.Disk
	origin *harness.Origin
	client map[harness.Protocol]*http.Client
}

// anyChange is all that a disk is asked to do but reading.
const anyChange = storagetest.Write | storagetest.Sync | storagetest.Create | storagetest.Rename | storagetest.Remove

func startStallable(t *testing.T) *stallable {
	t.Helper()
	dir := t.TempDir()
	files, err := storage.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &stallable{disk: storagetest.NewDisk(files), origin: harness.StartOrigin(t), client: map[harness.Protocol]*http.Client{}}
	s.store, err = storage.OpenStore(storage.Config{Dir: dir, Files: s.disk, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.disk.Heal()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	ca, err := proxy.LoadCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(proxy.Config{Store: s.store, CA: ca, UpstreamRoots: s.origin.Authority.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	for _, protocol := range harness.Protocols {
		s.client[protocol] = harness.NewClient(protocol, l.Addr().String(), roots)
		t.Cleanup(s.client[protocol].CloseIdleConnections)
	}
	return s
}

// download gets the body through the proxy, and returns how long that took.
func (s *stallable) download(t *testing.T, protocol harness.Protocol, name string, b harness.Body) time.Duration {
	t.Helper()
	return s.downloadTo(t, protocol, name, b, b.Size+1, nil)
}

// downloadTo is download, and calls then once when the client has at least n bytes.
func (s *stallable) downloadTo(t *testing.T, protocol harness.Protocol, name string, b harness.Body, n int64, then func()) time.Duration {
	t.Helper()
	began := time.Now()
	res, err := s.client[protocol].Get(s.origin.URL(protocol, harness.BodyPath(name, b, harness.Fixed)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	digest, had, err := harness.Digest(&reaching{Reader: res.Body, left: n, then: then})
	if err != nil || digest != b.SHA256() {
		t.Errorf("%s over %s: client got %d bytes, %v; want %v", name, protocol, had, err, b)
	}
	return time.Since(began)
}

// reaching calls then once when left bytes have been read.
type reaching struct {
	io.Reader
	left int64
	then func()
}

func (r *reaching) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	before := r.left
	if r.left -= int64(n); before > 0 && r.left <= 0 {
		r.then()
	}
	return n, err
}

// ended waits for the sessions whose path begins so to be kept, and returns them.
func (s *stallable) ended(t *testing.T, path string, n int) (found []storage.Session) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var ids []uint64
		if err := s.store.Scan(0, 1<<62, func(r *storage.Row) bool {
			if strings.HasPrefix(r.Path, path) && r.State != storage.Open {
				ids = append(ids, r.ID)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(ids) == n {
			for _, id := range ids {
				session, err := s.store.Session(id)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, session)
			}
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d sessions %s ended", len(ids), n, path)
		}
	}
}

// kept returns the digest and size of what is kept of a response.
func (s *stallable) kept(t *testing.T, id uint64) (digest string, size int64) {
	t.Helper()
	b, err := s.store.Body(id, storage.Response)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	digest, n, err := harness.Digest(io.NewSectionReader(b, 0, b.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return digest, n
}

// The disk stalls for 3 s in the middle of a download of 32 MiB, which does not wait for it, and is kept whole. It takes 20 ms to tell
// a stall from a disk that is busy: that much is allowed for, and as much again for a machine that others use.
func TestStallSlowsNoDownload(t *testing.T) {
	const size = 32 << 20
	for _, protocol := range harness.Protocols {
		t.Run(string(protocol), func(t *testing.T) {
			s := startStallable(t)
			s.download(t, protocol, "connects", newBody(1_000))
			// One good try shows that nothing waits for the disk; a bad one may only show a machine that others use, too.
			for try := range 5 {
				without := s.download(t, protocol, fmt.Sprintf("healthy-%d", try), newBody(size))
				name, b := fmt.Sprintf("stalled-%d", try), newBody(size)
				release, over := func() {}, make(chan struct{})
				with := s.downloadTo(t, protocol, name, b, size/2, func() {
					release = s.disk.Stall(anyChange)
					time.AfterFunc(3*time.Second, func() {
						close(over)
						release()
					})
				})
				during := true
				select {
				case <-over:
					during = false
				default:
				}
				<-s.disk.Stalled() // else it was no test
				if during {
					// What the disk has not taken can be read all the same.
					if digest, n := s.kept(t, s.ended(t, "/get/"+name, 1)[0].ID); digest != b.SHA256() {
						t.Errorf("while the disk stalls, %d bytes differ from %v", n, b)
					}
				}
				<-over
				session := s.ended(t, "/get/"+name, 1)[0]
				if body := session.Sides[storage.Response].Body; !body.Complete || body.Missing != "" {
					t.Errorf("after the stall it is kept as complete %t, missing %q", body.Complete, body.Missing)
				}
				if digest, n := s.kept(t, session.ID); digest != b.SHA256() {
					t.Errorf("after the stall, %d bytes differ from %v", n, b)
				}
				t.Logf("try %d: %v on a healthy disk, %v on one that stalls", try, without, with)
				if during && with < without+without/4+40*time.Millisecond {
					return
				}
			}
			t.Error("the stall slowed each try")
		})
	}
}

// Three hundred downloads fill what memory there is for a stalled disk, and are held back, also over HTTP/2, where the windows of these clients
// take the bodies whole. Another request is not; and when the disk has made no progress for 10 s, all go on, cut.
func TestDownloadsGoOnWithoutADisk(t *testing.T) {
	const (
		clients = 300
		size    = 1 << 20 // with the sockets' buffers all are more than fits
	)
	s := startStallable(t)
	for protocol := range s.client {
		s.download(t, protocol, "before", newBody(1_000)) // connects
	}
	s.disk.Stall(anyChange)

	var passed atomic.Int64
	var wg sync.WaitGroup
	bodies := make([]harness.Body, clients)
	for i := range bodies {
		bodies[i] = newBody(size)
		protocol := harness.Protocols[i%3]
		address := s.origin.URL(protocol, harness.BodyPath(fmt.Sprintf("many-%d", i), bodies[i], harness.Fixed))
		wg.Go(func() {
			res, err := s.client[protocol].Get(address)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if digest, n, err := harness.Digest(counted{res.Body, &passed}); err != nil || digest != bodies[i].SHA256() {
				t.Errorf("over %s, the client got %d bytes, %v; want %v", protocol, n, err, bodies[i])
			}
		})
	}
	awaitQuiet(t, &passed)
	held := passed.Load()
	if held > clients*size*3/4 {
		t.Errorf("%s of %s passed: the downloads are not held back", harness.SizeText(held), harness.SizeText(clients*size))
	}
	for _, protocol := range harness.Protocols {
		// The best of several tells whether it has to wait for anything; the others tell how busy this machine is.
		best := time.Hour
		for i := range 10 {
			best = min(best, s.download(t, protocol, fmt.Sprintf("little-%s-%d", protocol, i), newBody(1_000)))
		}
		if best > 100*time.Millisecond {
			t.Errorf("a request of 1 KB over %s took %v at best", protocol, best)
		}
		t.Logf("after %s had passed, a request of 1 KB over %s took %v at best", harness.SizeText(held), protocol, best)
	}
	wg.Wait()

	check := func(when string) {
		t.Helper()
		cut := 0
		for _, session := range s.ended(t, "/get/many-", clients) {
			var i int
			if _, err := fmt.Sscanf(session.Path, "/get/many-%d", &i); err != nil {
				t.Fatal(err)
			}
			body := session.Sides[storage.Response].Body
			if body.Complete && body.Size == size {
				continue // it had all passed before it was held
			}
			cut++
			told := body.Missing == fmt.Sprintf("captured to byte %d: the disk made no progress for 10 s", body.Size)
			if session.State != storage.Done || !told || body.Passed != size || !session.HasFlag(storage.FlagCut) {
				t.Errorf("%s, session %d is %v, kept %d, passed %d, missing %q, flags %v", when, session.ID, session.State, body.Size, body.Passed, body.Missing, session.Flags)
			}
			prefix, _, _ := harness.Digest(bodies[i].Range(0, int64(body.Size)))
			if digest, n := s.kept(t, session.ID); digest != prefix || n != int64(body.Size) {
				t.Errorf("%s, session %d: the %d bytes that are kept are not the first of the body", when, session.ID, n)
			}
		}
		if cut < clients/2 {
			t.Errorf("%s, %d of %d sessions are cut", when, cut, clients)
		}
	}
	check("on the stalled disk")
	s.disk.Heal()
	for deadline := time.Now().Add(20 * time.Second); s.store.Status().DurableUntil < s.store.Status().LastID; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not all became durable after the stall: %+v", s.store.Status())
		}
	}
	check("after the stall")
	s.download(t, harness.HTTPS, "after", newBody(3<<20))
	if body := s.ended(t, "/get/after", 1)[0].Sides[storage.Response].Body; !body.Complete {
		t.Errorf("after the stall, a body is kept as %+v", body)
	}
}

// A disk of 48 MiB fills up under the program. Downloads go on; when there is room again, so does capture, without a restart.
func TestFullDisk(t *testing.T) {
	at := mount(t, "-t", "tmpfs", "-o", "size=48m", "none")
	ballast := filepath.Join(at, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	origin := harness.StartOrigin(t)
	dir := filepath.Join(at, "data")
	p := harness.Start(t, dir, origin.Trusted(t)...)
	early := newBody(2 << 20)
	checkDownload(t, p, p.Client(t, harness.HTTPS), origin, harness.HTTPS, harness.Fixed, early)

	full := &fullDisk{t: t, p: p, origin: origin}
	full.fill("first", true)
	full.deleteCut()
	full.awaitRoom("sessions were deleted")
	full.checkCaptures()

	full.fill("second", true)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	full.awaitRoom("a file was removed")
	full.checkCaptures()

	// Others may take the disk to its last byte, and so what bodies leave.
	if err := os.WriteFile(ballast, make([]byte, 48<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	full.fill("third", false)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	full.awaitRoom("others let go of the disk")
	full.checkCaptures()

	checkKept(t, p, fmt.Sprintf("down-%d-%d", early.Seed, early.Size), "response", harness.HTTPS, early)
	stop(t, p)
	checkVerified(t, dir)
	p = harness.Start(t, dir, origin.Trusted(t)...)
	full.p = p
	full.checkCaptures()
}

// fullDisk is a program whose disk fills up.
type fullDisk struct {
	t      *testing.T
	p      *harness.Program
	origin *harness.Origin
	cut    []uint64 // sessions
}

// problem returns what the program says is wrong.
func (f *fullDisk) problem() string {
	var status struct {
		Store struct {
			Capturing bool
			Problem   string
		}
	}
	f.p.Get(f.t, "/api/status", &status)
	if status.Store.Capturing != (status.Store.Problem == "") {
		f.t.Errorf("capturing %t, problem %q", status.Store.Capturing, status.Store.Problem)
	}
	return status.Store.Problem
}

// fill lets more pass than fits, and checks that it does pass, and what the program says then. room tells whether some of it fits.
func (f *fullDisk) fill(name string, room bool) {
	f.t.Helper()
	var bodies []harness.Body
	var wg sync.WaitGroup
	for i := range 6 {
		b := newBody(16 << 20)
		bodies = append(bodies, b)
		protocol := harness.Protocols[i%3]
		client := f.p.Client(f.t, protocol)
		wg.Go(func() {
			digest, n, err := harness.Download(client, f.origin.URL(protocol, harness.BodyPath(fmt.Sprintf("%s-%d", name, i), b, harness.Fixed)))
			if err != nil || digest != b.SHA256() {
				f.t.Errorf("on a disk that fills up, the client got %d bytes over %s, %v; want %v", n, protocol, err, b)
			}
		})
	}
	wg.Wait()
	f.await("the disk is full", func() bool { return strings.HasPrefix(f.problem(), "the disk is full") })
	f.cut = nil
	kept := int64(0)
	for i, b := range bodies {
		s := f.p.Await(f.t, fmt.Sprintf("/get/%s-%d", name, i), harness.Ended)
		body := s.Response.Body
		kept += body.Size
		if body.Complete {
			continue
		}
		f.cut = append(f.cut, s.ID)
		if want := fmt.Sprintf("captured to byte %d: the disk is full", body.Size); s.State != "done" || body.Missing != want || body.Passed != b.Size {
			f.t.Errorf("session %d is %s, its body %+v; want %q", s.ID, s.State, body, want)
		}
		checkBeginning(f.t, f.p, s.ID, b, body.Size)
	}
	f.t.Logf("%s: %d of %d sessions were cut, %s kept; %q", name, len(f.cut), len(bodies), harness.SizeText(kept), f.problem())
	if len(f.cut) == 0 || room && kept == 0 {
		f.t.Errorf("%d sessions were cut, and %d bytes kept", len(f.cut), kept)
	}
	// A small one passes too, and says why it is not kept.
	b := newBody(5_000)
	digest, _, err := harness.Download(f.p.Client(f.t, harness.HTTP), f.origin.URL(harness.HTTP, harness.BodyPath(name+"-little", b, harness.Fixed)))
	if err != nil || digest != b.SHA256() {
		f.t.Errorf("on a full disk, the client got another body, %v", err)
	}
	if s := f.p.Await(f.t, name+"-little", harness.Ended); !s.Response.Body.Complete && !strings.Contains(s.Response.Body.Missing, "the disk is full") {
		f.t.Errorf("on a full disk, a small body is kept as %+v", s.Response.Body)
	}
}

// deleteCut deletes the sessions that were cut.
func (f *fullDisk) deleteCut() {
	f.t.Helper()
	for _, id := range f.cut {
		res, err := f.p.Call(f.t.Context(), http.MethodDelete, fmt.Sprintf("/api/sessions/%d", id))
		if err != nil {
			f.t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		var done struct{ Deleted int }
		if err := json.Unmarshal(text, &done); err != nil || done.Deleted != 1 {
			f.t.Errorf("delete session %d from a full disk: %s: %s", id, res.Status, text)
		}
	}
}

func (f *fullDisk) awaitRoom(why string) {
	f.t.Helper()
	f.await("capture works again after "+why, func() bool { return f.problem() == "" })
}

func (f *fullDisk) await(what string, cond func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("waited in vain until %s; it says %q", what, f.problem())
		}
	}
}

// checkCaptures checks that a small body and a large one are kept whole.
func (f *fullDisk) checkCaptures() {
	f.t.Helper()
	for _, size := range []int64{10_000, 2 << 20} {
		checkDownload(f.t, f.p, f.p.Client(f.t, harness.HTTPS), f.origin, harness.HTTPS, harness.Fixed, newBody(size))
	}
}
