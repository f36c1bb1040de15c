// Freeze makes the fixture of a version of the stored format: it has a Millpond of that version capture real traffic, and keeps its data directory
// and what its API says of it.
//
//	go run ./e2e/freeze MILLPOND DIRECTORY
//
// writes whole.tar.gz and unclean.tar.gz into the directory, as a stop and a SIGKILL leave them, and whole.json and unclean.json beside them.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"go.etcd.io/bbolt"

	"millpond/e2e/harness"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: freeze MILLPOND DIRECTORY")
	}
	if err := freeze(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// frozen is what a fixture's JSON holds.
type frozen struct {
	harness.Told
	Shares map[string][]byte `json:"shares"` // the index's records of them, which outlive the shares
}

type freezer struct {
	binary, dir string
	args        []string
	origin      *harness.Origin
	p           *harness.Program
}

func freeze(binary, to string) (err error) {
	work, err := os.MkdirTemp("", "freeze-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	f := &freezer{binary: binary, dir: filepath.Join(work, "data")}
	if f.origin, err = harness.NewOrigin(); err != nil {
		return err
	}
	defer f.origin.Close()
	f.origin.HandleFunc("GET /lines/{seed}", serveLines)
	authority, err := f.origin.Authority.WriteFile(work)
	if err != nil {
		return err
	}
	f.args = []string{"--data", f.dir, "--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--upstream-ca", authority}

	if err := f.run(f.exchanges); err != nil {
		return err
	}
	if err := f.run(f.annotations, f.moreExchanges); err != nil { // the log has a second segment then
		return err
	}
	if err := f.keep(filepath.Join(to, "whole")); err != nil {
		return err
	}
	if f.p, err = harness.Run(f.binary, f.args...); err != nil {
		return err
	}
	letGo, err := f.leaveOpen()
	if err != nil {
		return err
	}
	defer letGo()
	f.p.Kill()
	return f.keep(filepath.Join(to, "unclean"))
}

// run has the program running for the parts, and stops it.
func (f *freezer) run(parts ...func() error) (err error) {
	if f.p, err = harness.Run(f.binary, f.args...); err != nil {
		return err
	}
	for _, part := range parts {
		if err := part(); err != nil {
			f.p.Kill()
			return err
		}
	}
	return f.p.Stop()
}

// serveLines sends ?size= bytes of lines that pack well, in chunks. With ?open they do not end.
func serveLines(w http.ResponseWriter, r *http.Request) {
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header()["Date"] = nil
	for at := 0; at < size; at += 64 << 10 {
		line := fmt.Sprintf("%s: all that follows repeats for a while, from byte %d on\n", r.PathValue("seed"), at)
		_, _ = w.Write(bytes.Repeat([]byte(line), 64<<10/len(line)+1)[:min(64<<10, size-at)])
		_ = http.NewResponseController(w).Flush()
	}
	if r.URL.Query().Has("open") {
		<-r.Context().Done()
	}
}

func (f *freezer) get(protocol harness.Protocol, path string) error {
	roots, err := harness.ReadPool(f.p.CA)
	if err != nil {
		return err
	}
	client := harness.NewClient(protocol, f.p.Proxy, roots)
	defer client.CloseIdleConnections()
	res, err := client.Get(f.origin.URL(protocol, path))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// exchanges are what most sessions are.
func (f *freezer) exchanges() error {
	var failed error
	try := func(err error) { failed = errors.Join(failed, err) }
	for _, protocol := range harness.Protocols {
		try(f.get(protocol, "/json/small?protocol="+string(protocol)))
		try(f.get(protocol, harness.BodyPath("noise", harness.NewBody(1, 1500), harness.Open)))
		try(f.get(protocol, "/lines/large?size=700000"))
		try(f.get(protocol, "/events/some?count=3&pace=1ms"))
		roots, err := harness.ReadPool(f.p.CA)
		try(err)
		client := harness.NewClient(protocol, f.p.Proxy, roots)
		_, err = harness.Send(client, f.origin.URL(protocol, "/put/upload"), harness.NewBody(2, 3000), harness.Open)
		try(err)
		client.CloseIdleConnections()
	}
	for range 5 { // bodies that are kept once: in the log, and as chunks
		try(f.get(harness.HTTP, harness.BodyPath("poll", harness.NewBody(3, 900), harness.Fixed)))
	}
	for range 2 {
		try(f.get(harness.HTTP, "/lines/largest?size=5000000"))
	}
	try(f.get(harness.HTTP, harness.BodyPath("odd", harness.NewBody(4, 5000), harness.Odd)))
	if err := f.get(harness.HTTP, harness.BodyPath("broken", harness.NewBody(5, 5000), harness.Open)+"&abort=2000"); err == nil {
		try(errors.New("a body that breaks off was whole"))
	}
	try(f.get(harness.HTTP, "/none?"+strings.Repeat("long=", 300)))
	try(f.refused())
	try(f.socket(nil))
	try(f.tunnel())
	return errors.Join(failed, f.settle(0))
}

// refused asks for a server that is not there.
func (f *freezer) refused() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.Close()
	client := harness.NewClient(harness.HTTP, f.p.Proxy, nil)
	defer client.CloseIdleConnections()
	res, err := client.Get("http://" + l.Addr().String() + "/gone")
	if err == nil {
		res.Body.Close()
	}
	return err
}

// socket exchanges messages; with hold, it gives the open connection to that.
func (f *freezer) socket(hold func(io.Closer)) error {
	dialer := websocket.Dialer{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: f.p.Proxy})}
	c, _, err := dialer.Dial("ws://"+f.origin.Addr(harness.HTTP)+"/socket/talk", nil)
	if err != nil {
		return err
	}
	for i := range 20 {
		if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, i, strings.Repeat("word ", i))); err != nil {
			return err
		}
		if _, _, err := c.ReadMessage(); err != nil {
			return err
		}
	}
	if hold != nil {
		hold(c)
		return nil
	}
	_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "enough"), time.Now().Add(time.Second))
	return c.Close()
}

// tunnel passes bytes through unread: upstream speaks first.
func (f *freezer) tunnel() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "220 mail.example.com\r\n")
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "221 bye\r\n")
	}()
	c, err := net.Dial("tcp", f.p.Proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", l.Addr(), l.Addr())
	for _, want := range []string{"HTTP/1.1 200", "\r\n", "220"} {
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			return fmt.Errorf("tunnel: got %q, %w", line, err)
		}
	}
	_, _ = io.WriteString(c, "QUIT\r\n")
	_, err = io.Copy(io.Discard, r)
	return err
}

// annotations change and delete sessions of the former run, and share some.
func (f *freezer) annotations() error {
	var list struct{ Sessions []harness.Summary }
	if err := f.p.Do("GET", "/api/sessions?limit=500", "", &list); err != nil {
		return err
	}
	for i, s := range list.Sessions {
		var err error
		at := fmt.Sprintf("/api/sessions/%d", s.ID)
		switch i % 6 {
		case 0:
			err = f.p.Do("PATCH", at, fmt.Sprintf(`{"pinned":true,"color":"red","note":"noted: %d, with an Ü"}`, i), nil)
		case 3:
			err = f.p.Do("DELETE", at, "", nil)
		case 1: // the WebSocket among them
			err = f.p.Do("POST", "/api/shares", fmt.Sprintf(`{"session":%d,"expires_in":31536000}`, s.ID), nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *freezer) moreExchanges() error {
	for i := range 10 {
		if err := f.get(harness.HTTPS, fmt.Sprintf("/lines/small-%d?size=%d", i%7, 2000*i)); err != nil {
			return err
		}
	}
	return f.settle(0)
}

// leaveOpen begins sessions that do not end before letGo is called, and waits until the disk has them.
func (f *freezer) leaveOpen() (letGo func(), err error) {
	var held []io.Closer
	letGo = func() {
		for _, c := range held {
			c.Close()
		}
	}
	if err := f.socket(func(c io.Closer) { held = append(held, c) }); err != nil {
		return letGo, err
	}
	for _, size := range []int{20_000, 600_000, 4_800_000} {
		res, err := harness.NewClient(harness.HTTP, f.p.Proxy, nil).Get(f.origin.URL(harness.HTTP, fmt.Sprintf("/lines/open?size=%d&open", size)))
		if err != nil {
			return letGo, err
		}
		held = append(held, res.Body)
		if _, err := io.CopyN(io.Discard, res.Body, int64(size)); err != nil {
			return letGo, err
		}
	}
	time.Sleep(3 * time.Second) // a mark comes each second, and nothing tells of it
	return letGo, f.settle(len(held))
}

// settle waits until all sessions but so many are durable.
func (f *freezer) settle(open int) error {
	for range 500 {
		var list struct{ Sessions []harness.Summary }
		if err := f.p.Do("GET", "/api/sessions?limit=500", "", &list); err != nil {
			return err
		}
		waits := 0
		for _, s := range list.Sessions {
			if !s.Durable {
				waits++
			}
		}
		if waits == open {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("sessions do not become durable")
}

// keep packs the directory, and writes what the program says of a copy of it.
func (f *freezer) keep(name string) error {
	if err := pack(name+".tar.gz", f.dir); err != nil {
		return err
	}
	copied := f.dir + "-copy"
	if err := os.CopyFS(copied, os.DirFS(f.dir)); err != nil {
		return err
	}
	defer os.RemoveAll(copied)
	var kept frozen
	p, err := harness.Run(f.binary, append([]string{"--data", copied}, f.args[2:]...)...)
	if err != nil {
		return err
	}
	if kept.Told, err = p.Tell(); err != nil {
		p.Kill()
		return err
	}
	if err := p.Stop(); err != nil {
		return err
	}
	if kept.Shares, err = shares(filepath.Join(f.dir, "index.db")); err != nil {
		return err
	}
	text, err := json.MarshalIndent(kept, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name+".json", append(text, '\n'), 0o644)
}

// shares reads what the index has of shares.
func shares(index string) (map[string][]byte, error) {
	db, err := bbolt.Open(index, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	all := map[string][]byte{}
	return all, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("shares")).ForEach(func(k, v []byte) error {
			all[string(k)] = bytes.Clone(v)
			return nil
		})
	})
}

// pack writes an archive of the directory, without what a start makes anew: keys of a certificate authority belong into no archive.
func pack(name, dir string) error {
	var b bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	archive := tar.NewWriter(zipped)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "ballast" || path == "lock" || strings.HasPrefix(path, "ca/") {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	if err := errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
