package harness

import (
	"bufio"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Protocol says how a client speaks to an origin.
type Protocol string

// The protocols that origins and clients speak.
const (
	HTTP  Protocol = "http"  // HTTP/1.1 in the clear
	HTTPS Protocol = "https" // HTTP/1.1 over TLS
	HTTP2 Protocol = "http2" // HTTP/2 over TLS
)

// Framing says how a body's end is told.
type Framing string

// The framings of bodies. HTTP/2 knows the first two.
const (
	Fixed Framing = "length"  // Content-Length says where it ends
	Open  Framing = "chunked" // chunked coding; over HTTP/2 no content-length
	Close Framing = "close"   // it ends where the connection does
	Odd   Framing = "odd"     // chunked coding with extensions, odd chunk sizes and a trailer
)

// Protocols are all of them.
var Protocols = []Protocol{HTTP, HTTPS, HTTP2}

// Origin is a server on loopback that speaks all protocols. It answers
//
//	GET  /get/NAME?seed=&size=&framing=   with that body; &abort=N breaks off after N bytes; &pace=BYTES,INTERVAL sends it slowly
//	POST /put/NAME                        with what it received, an Upload as JSON
//	GET  /events/NAME?count=&pace=        with server-sent events, each of which holds the time it was sent
//	GET  /page/NAME                       with a page of 200 resources
//	GET  /json/NAME?count=                with {"name":NAME,"numbers":[0,1,…]} on one line, gzip-coded; 100 numbers where it is not said
//	GET  /socket/NAME                     with a WebSocket that sends back what it gets
type Origin struct {
	*http.ServeMux
	Authority *Authority

	listeners map[Protocol]net.Listener
	servers   []*http.Server
}

// Upload is what an origin received as a request's body.
type Upload struct {
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Declared int64  `json:"declared"` // Content-Length; -1 for none
	Error    string `json:"error,omitempty"`
}

// NewOrigin starts an origin. Its certificates are signed by its own authority.
func NewOrigin() (*Origin, error) {
	authority, err := NewAuthority()
	if err != nil {
		return nil, err
	}
	cert, err := authority.Server("origin.test")
	if err != nil {
		return nil, err
	}
	o := &Origin{ServeMux: http.NewServeMux(), Authority: authority, listeners: map[Protocol]net.Listener{}}
	o.HandleFunc("GET /get/", serveBody)
	o.HandleFunc("POST /put/", serveUpload)
	o.HandleFunc("GET /events/", serveEvents)
	o.HandleFunc("GET /socket/", serveSocket)
	o.HandleFunc("GET /json/{name}", serveJSON)
	o.HandleFunc("GET /page/{name}", servePage)
	o.HandleFunc("GET /page/{name}/{number}", serveResource)
	for _, p := range Protocols {
		if err := o.listen(p, cert); err != nil {
			_ = o.Close()
			return nil, fmt.Errorf("start %s origin: %w", p, err)
		}
	}
	return o, nil
}

func (o *Origin) listen(p Protocol, cert tls.Certificate) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.listeners[p] = l
	// Clients that break off are what many tests are about; nobody wants to read of each.
	server := &http.Server{Handler: o, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(p != HTTP2)
	server.Protocols.SetHTTP2(p == HTTP2)
	o.servers = append(o.servers, server)
	if p == HTTP {
		go func() { _ = server.Serve(l) }()
		return nil
	}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	if p == HTTPS {
		server.TLSConfig.NextProtos = []string{"http/1.1", "http/1.0"} // curl --http1.0 offers the latter alone
	}
	go func() { _ = server.ServeTLS(l, "", "") }()
	return nil
}

// StartOrigin starts an origin that is closed at the test's end.
func StartOrigin(t testing.TB) *Origin {
	t.Helper()
	o, err := NewOrigin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// Close ends the listeners and all connections.
func (o *Origin) Close() error {
	for _, server := range o.servers {
		_ = server.Close()
	}
	return nil
}

// Addr returns where the origin listens for the protocol, host:port.
func (o *Origin) Addr(p Protocol) string { return o.listeners[p].Addr().String() }

// URL returns the address of a path at the origin.
func (o *Origin) URL(p Protocol, path string) string {
	scheme := "https"
	if p == HTTP {
		scheme = "http"
	}
	return scheme + "://" + o.Addr(p) + path
}

// BodyPath returns the path under which an origin gives the body.
func BodyPath(name string, b Body, framing Framing) string {
	return fmt.Sprintf("/get/%s?seed=%d&size=%d&framing=%s", name, b.Seed, b.Size, framing)
}

func serveBody(w http.ResponseWriter, r *http.Request) {
	q := numbers{values: r.URL.Query()}
	body := NewBody(uint64(q.get("seed", 0)), q.get("size", 0))
	abort := q.get("abort", -1)
	pace, err := parsePace(q.values.Get("pace"))
	if err != nil || q.err != nil {
		http.Error(w, "bad query", http.StatusBadRequest)
		return
	}
	send := body.Size
	if abort >= 0 {
		send = abort
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	// Without a date two answers are the same bytes.
	w.Header()["Date"] = nil
	source := pace.reader(body.Range(0, send), r.Context().Done())
	switch framing := Framing(q.values.Get("framing")); {
	case framing == Close || framing == Odd:
		err = serveRaw(w, framing, source, abort < 0)
	case framing == Fixed:
		w.Header().Set("Content-Length", strconv.FormatInt(body.Size, 10))
		fallthrough
	default:
		if framing != Fixed { // or net/http would count a small body and say its length
			_ = http.NewResponseController(w).Flush()
		}
		err = writeBody(w, source, pace.bytes > 0)
	}
	if err != nil || abort >= 0 {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// writeBody sends the body through net/http; flushing each read where the body is slow, or else where net/http does.
func writeBody(w http.ResponseWriter, source io.Reader, flush bool) error {
	control := http.NewResponseController(w)
	if !flush {
		_, err := Copy(w, source)
		return err
	}
	if err := control.Flush(); err != nil {
		return err
	}
	p := make([]byte, 64<<10)
	for {
		n, err := source.Read(p)
		if n > 0 {
			if _, err := w.Write(p[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// serveRaw sends a response with a framing that net/http does not write. finish says whether the body ends as it should.
func serveRaw(w http.ResponseWriter, framing Framing, source io.Reader, finish bool) error {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err // HTTP/2 has no such framing
	}
	defer conn.Close()
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
	if framing == Close {
		_, _ = rw.WriteString(head + "Connection: close\r\n\r\n")
		_, _ = Copy(rw, source)
		if err := rw.Flush(); err != nil || finish {
			return err
		}
		return reset(conn)
	}
	_, _ = rw.WriteString(head + "transfer-Encoding: Chunked\r\nTrailer: X-Sum\r\nConnection: close\r\n\r\n")
	if err := writeOddChunks(rw.Writer, source); err != nil {
		return err
	}
	if finish {
		_, _ = rw.WriteString("000;last=\"yes\"\r\nX-Sum: odd \r\n\r\n")
	}
	return rw.Flush()
}

// reset ends the connection with a TCP reset, without a TLS close_notify: what tells a broken body from one that ends with its connection.
func reset(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	return conn.Close()
}

// writeOddChunks writes chunks whose sizes are primes, with leading zeros, letters of both cases and extensions.
func writeOddChunks(w *bufio.Writer, source io.Reader) error {
	sizes := []int{1, 7, 4_099, 65_537, 31}
	p := make([]byte, 65_537)
	for i := 0; ; i++ {
		n, err := io.ReadFull(source, p[:sizes[i%len(sizes)]])
		if n > 0 {
			_, _ = fmt.Fprintf(w, "%0*X;n=%d;q=\"a;b\"\r\n", 1+i%6, n, i)
			_, _ = w.Write(p[:n])
			_, _ = w.WriteString("\r\n")
		}
		if err != nil {
			return w.Flush()
		}
	}
}

func serveUpload(w http.ResponseWriter, r *http.Request) {
	var got Upload
	var err error
	got.Declared = r.ContentLength
	if got.SHA256, got.Size, err = Digest(r.Body); err != nil {
		got.Error = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(got)
}

func serveJSON(w http.ResponseWriter, r *http.Request) {
	var answer struct {
		Name    string `json:"name"`
		Numbers []int  `json:"numbers"`
	}
	answer.Name = r.PathValue("name")
	q := numbers{values: r.URL.Query()}
	for i := range int(q.get("count", 100)) {
		answer.Numbers = append(answer.Numbers, i)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	coded := gzip.NewWriter(w)
	_ = json.NewEncoder(coded).Encode(answer)
	_ = coded.Close()
}

func serveEvents(w http.ResponseWriter, r *http.Request) {
	q := numbers{values: r.URL.Query()}
	count := q.get("count", 10)
	pace, err := parsePace("1," + q.values.Get("pace"))
	if err != nil || q.err != nil {
		http.Error(w, "bad query", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	ticker := time.NewTicker(pace.interval)
	defer ticker.Stop()
	for i := range count {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
		_, _ = fmt.Fprintf(w, "id: %d\ndata: %d\n\n", i, time.Now().UnixNano())
		if err := control.Flush(); err != nil {
			return
		}
	}
}

// pace is a sending speed: so many bytes each interval. The zero value is as fast as can be.
type pace struct {
	bytes    int
	interval time.Duration
}

func parsePace(s string) (pace, error) {
	if s == "" {
		return pace{}, nil
	}
	n, every, _ := strings.Cut(s, ",")
	count, err := strconv.Atoi(n)
	if err != nil || count < 1 {
		return pace{}, fmt.Errorf("parse pace %q: want BYTES,INTERVAL", s)
	}
	interval, err := time.ParseDuration(every)
	if err != nil || interval <= 0 {
		return pace{}, fmt.Errorf("parse pace %q: want BYTES,INTERVAL", s)
	}
	return pace{count, interval}, nil
}

// reader slows r down to the pace, until gone.
func (p pace) reader(r io.Reader, gone <-chan struct{}) io.Reader {
	if p.bytes == 0 {
		return r
	}
	return &pacedReader{p, r, gone}
}

type pacedReader struct {
	pace
	r    io.Reader
	gone <-chan struct{}
}

func (r *pacedReader) Read(p []byte) (int, error) {
	select {
	case <-time.After(r.interval):
	case <-r.gone:
		return 0, io.ErrClosedPipe
	}
	return r.r.Read(p[:min(len(p), r.bytes)])
}

// numbers reads whole numbers from a query and keeps the first error.
type numbers struct {
	values url.Values
	err    error
}

func (q *numbers) get(name string, otherwise int64) int64 {
	s := q.values.Get(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && q.err == nil {
		q.err = err
	}
	return n
}
