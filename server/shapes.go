package server

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// The JSON shapes of the API. The OpenAPI document, and through it the browser app's types, are made from them, so a comment for
// the app's authors belongs into a doc tag. Sizes are bytes, durations milliseconds, times RFC 3339 with nanoseconds.

// Summary is what a list shows of a session.
type Summary struct {
	ID            uint64    `json:"id" doc:"Ids only grow, and are never used twice."`
	State         string    `json:"state" enum:"open,done,client_aborted,upstream_aborted,interrupted,failed"`
	Durable       bool      `json:"durable" doc:"The session survives a power cut."`
	Method        string    `json:"method" doc:"CONNECT for a tunnel."`
	Scheme        string    `json:"scheme" doc:"http, https, or tcp for a tunnel."`
	Host          string    `json:"host" doc:"What was asked: host, or host:port where the port is not the scheme's."`
	Upstream      string    `json:"upstream" doc:"Where it went: the address dialled, host:port. Empty before the dial."`
	Path          string    `json:"path" doc:"Path and query as on the wire. Empty for a tunnel."`
	Protocol      string    `json:"protocol" doc:"HTTP/1.0, HTTP/1.1, HTTP/2, or the tunnel's (TLS, TCP)."`
	Status        int       `json:"status" doc:"0 until a response head came."`
	ContentType   string    `json:"content_type" doc:"The response's media type, as sent."`
	RequestBytes  uint64    `json:"request_bytes" doc:"Bytes of the request's body forwarded so far."`
	ResponseBytes uint64    `json:"response_bytes" doc:"Bytes of the response's body forwarded so far."`
	Started       time.Time `json:"started"`
	Duration      float64   `json:"duration" doc:"Milliseconds; so far, for an open session."`
	FirstByte     float64   `json:"first_byte" doc:"Milliseconds from started to the response's head; 0 until it came."`
	Client        string    `json:"client" doc:"The client's address, host:port."`
	Error         string    `json:"error" doc:"Why the session did not end as done, or what upstream sent beyond it, for people."`
	Flags         []string  `json:"flags" nullable:"false" doc:"What is unusual: host_differs, ambiguous_framing, modified, moved, answered, insecure_upstream, tunnel, upgraded, cut, reused, odd_name, reverse, passthrough, upstream_proxy, websocket, …"`
	Pinned        bool      `json:"pinned"`
	Note          string    `json:"note"`
	Color         string    `json:"color"`
}

// SessionList is one page of a list, newest first.
type SessionList struct {
	Total    *uint64   `json:"total,omitempty" doc:"How many sessions there are; with a filter, how many match, and only given with ?count."`
	Sessions []Summary `json:"sessions" nullable:"false"`
}

// Session is all that is known of a session but its bodies' bytes.
type Session struct {
	Summary
	Request  Message `json:"request"`
	Response Message `json:"response"`
	Timing   Timing  `json:"timing"`
	TLS      *TLS    `json:"tls,omitempty"`
	Unicode  string  `json:"host_unicode,omitempty" doc:"The host with its labels in Unicode, where it was asked for in Punycode."`
	HTTP2    *HTTP2  `json:"http2,omitempty" doc:"What HTTP/2 frames said beside fields and data."`

	Messages *Messages `json:"messages,omitempty" doc:"Given where the bodies are read as messages: see list-messages."`
	GRPC     *GRPC     `json:"grpc,omitempty" doc:"How a gRPC call ended, as the server said."`
}

// Field is a name and a value.
type Field [2]string

// Schema tells the OpenAPI document that a Field is a pair, which Go's array type does not.
func (Field) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString}
	two := 2
	return &huma.Schema{
		Type: huma.TypeArray, Items: text, MinItems: &two, MaxItems: &two,
		Extensions: map[string]any{"prefixItems": []any{text, text}},
	}
}

// Message is one side of a session. Its text holds one character for each byte of the wire.
type Message struct {
	Head          string   `json:"head" doc:"Start line and fields as forwarded, one character a byte. HTTP/2: one name: value a line."`
	Fields        []Field  `json:"fields" nullable:"false" doc:"[name, value] in the order of the wire, repeated ones repeated; HTTP/2 pseudo-fields with their colon."`
	Received      string   `json:"received,omitempty" doc:"The head as received, where that differs from head."`
	Informational []string `json:"informational,omitempty" nullable:"false" doc:"1xx heads, in order."`
	Trailers      []Field  `json:"trailers,omitempty" nullable:"false" doc:"[name, value] in the order of the wire."`
	Body          Body     `json:"body"`
	Framing       string   `json:"framing,omitempty" enum:"none,content_length,chunked,close,http2" doc:"How the receiver finds the body's end; left out for a tunnel, and where no head came."`

	ChunkExtensions    []ChunkExtension `json:"chunk_extensions,omitempty" nullable:"false" doc:"What chunks' size lines held after the size: the first of them."`
	ChunkExtensionsCut uint64           `json:"chunk_extensions_cut,omitempty" doc:"Bytes of further extensions, which passed and are not kept."`
}

// ChunkExtension is what a chunk's size line held after the size.
type ChunkExtension struct {
	Offset uint64 `json:"offset" doc:"Where in the body the chunk begins."`
	Size   uint64 `json:"size" doc:"Of the chunk, in bytes; 0 for the last."`
	Text   string `json:"text" doc:"As on the wire, from the byte after the size on, one character a byte."`
}

// HTTP2 tells what the frames of a stream and its connection said beside fields and data.
type HTTP2 struct {
	StreamID uint32        `json:"stream_id"`
	Reset    *Reset        `json:"reset,omitempty" doc:"The RST_STREAM that ended the stream."`
	GoAway   []GoAway      `json:"goaway,omitempty" nullable:"false" doc:"The latest GOAWAY of each party that came before the stream ended."`
	Settings HTTP2Settings `json:"settings" doc:"The SETTINGS in force when the stream began. HEADER_TABLE_SIZE and ENABLE_PUSH are not passed on as they are: the relay has its own."`
}

// Reset is an RST_STREAM frame.
type Reset struct {
	By   string `json:"by" enum:"client,upstream,proxy"`
	Code uint32 `json:"code"`
	Name string `json:"name" doc:"The code's: CANCEL, …"`
}

// GoAway is a GOAWAY frame.
type GoAway struct {
	By           string `json:"by" enum:"client,upstream,proxy"`
	LastStreamID uint32 `json:"last_stream_id"`
	Code         uint32 `json:"code"`
	Name         string `json:"name" doc:"The code's: NO_ERROR, …"`
	Debug        string `json:"debug" doc:"What its sender added, one character a byte: the first 1,024."`
	DebugBytes   uint32 `json:"debug_bytes" doc:"Of all that its sender added."`
}

// HTTP2Settings are those of a connection's two ends, as they were sent.
type HTTP2Settings struct {
	Client   []Setting `json:"client" nullable:"false"`
	Upstream []Setting `json:"upstream" nullable:"false"`
}

// Setting is one of SETTINGS.
type Setting struct {
	ID    uint16 `json:"id"`
	Name  string `json:"name" doc:"INITIAL_WINDOW_SIZE, …"`
	Value uint32 `json:"value"`
}

// Body tells what is kept of a body.
type Body struct {
	Size     uint64 `json:"size" doc:"Bytes captured: readable from the first on, without a gap."`
	Passed   uint64 `json:"passed" doc:"Bytes forwarded; more than size where capture was cut."`
	Complete bool   `json:"complete" doc:"The sender finished it, and all of it is kept."`
	SHA256   string `json:"sha256,omitempty" doc:"Hexadecimal, of the size bytes that are kept, when known. Only where complete is true is that the hash of what was sent."`
	Missing  string `json:"missing,omitempty" doc:"Why bytes beyond size are not kept, for people."`
	Coding   string `json:"coding,omitempty" doc:"The Content-Encoding, where there is one: ?as=decoded then differs from the wire bytes."`
}

// Timing holds the moments of a session; those that did not come are left out. Those of its connection may be before started, and are only on the first session that
// used it.
type Timing struct {
	Started      time.Time  `json:"started" doc:"The request's first byte."`
	Connect      *time.Time `json:"connect,omitempty" doc:"The dial to upstream began."`
	Connected    *time.Time `json:"connected,omitempty" doc:"TCP to upstream stood."`
	Secured      *time.Time `json:"secured,omitempty" doc:"TLS to upstream stood."`
	RequestSent  *time.Time `json:"request_sent,omitempty" doc:"The request's last byte was written."`
	ResponseHead *time.Time `json:"response_head,omitempty" doc:"The response's head was complete."`
	Ended        *time.Time `json:"ended,omitempty"`

	Resolved      *time.Time `json:"resolved,omitempty" doc:"Upstream's name was looked up; that began with connect."`
	ClientHello   *time.Time `json:"client_hello,omitempty" doc:"The client's TLS hello was read: TLS to upstream began."`
	ClientSecured *time.Time `json:"client_secured,omitempty" doc:"TLS to the client stood."`
	FirstByte     *time.Time `json:"first_byte,omitempty" doc:"The response's first byte came, or that of an informational one. Over HTTP/2 it is response_head."`
}

// TLS tells what was negotiated.
type TLS struct {
	ServerName      string `json:"server_name,omitempty" doc:"The client's SNI."`
	ALPN            string `json:"alpn,omitempty"`
	ClientVersion   string `json:"client_version,omitempty" doc:"TLS 1.3"`
	ClientCipher    string `json:"client_cipher,omitempty"`
	UpstreamVersion string `json:"upstream_version,omitempty"`
	UpstreamCipher  string `json:"upstream_cipher,omitempty"`
	UpstreamError   string `json:"upstream_error,omitempty" doc:"Why upstream's certificate does not verify, where it was accepted all the same."`
	JA4             string `json:"ja4,omitempty" doc:"The JA4 fingerprint of the client's hello."`
	Certificates    bool   `json:"certificates" doc:"Upstream's certificates are kept, and had by …/certificates."`
}

// CertificateList holds what an upstream server showed: its own certificate first, then those that lead to a root.
type CertificateList struct {
	Certificates []Certificate `json:"certificates" nullable:"false"`
}

// Certificate tells what an X.509 certificate says.
type Certificate struct {
	Subject   string    `json:"subject" doc:"A distinguished name as in RFC 2253."`
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Names     []string  `json:"names" nullable:"false" doc:"What it is for: DNS names, IP addresses, e-mail addresses and URIs."`
	SHA256    string    `json:"sha256" doc:"Hexadecimal, of the certificate in DER."`
	PEM       string    `json:"pem"`
}

// Deleted tells how many sessions there were to delete.
type Deleted struct {
	Deleted int `json:"deleted"`
}

// DeletionRequest says which sessions are to go: those of a filter, or all.
type DeletionRequest struct {
	Filter string `json:"filter,omitempty" maxLength:"2000" doc:"As in the list, and not blank. Left out with all."`
	All    bool   `json:"all,omitempty" doc:"Every session."`
}

// Deletion is a deletion of many sessions that runs, waits for its turn, failed, or ended a moment ago.
type Deletion struct {
	ID      uint64    `json:"id"`
	Filter  string    `json:"filter" doc:"Empty: every session."`
	Done    uint64    `json:"done" doc:"Sessions deleted so far."`
	Total   uint64    `json:"total,omitempty" doc:"How many there were at the start. Absent with a filter: nobody has counted."`
	Started time.Time `json:"started"`
	Running bool      `json:"running" doc:"False while it waits for one before it."`
	Problem string    `json:"problem,omitempty" doc:"Why it ended early, for people."`

	Ended     *time.Time `json:"ended,omitempty" doc:"When it ended. It is told of for a minute after, one that failed until it is dismissed."`
	Cancelled bool       `json:"cancelled,omitempty" doc:"It was cancelled before its end."`
}

// Annotation is what people put on a session. A field left out stays as it is.
type Annotation struct {
	Pinned *bool   `json:"pinned,omitempty"`
	Note   *string `json:"note,omitempty" maxLength:"4000"`
	Color  *string `json:"color,omitempty" pattern:"^[a-z]{0,16}$" doc:"A colour's name in lower case; empty for none."`
}

// ShareRequest asks for a share.
type ShareRequest struct {
	Session   uint64 `json:"session"`
	ExpiresIn int64  `json:"expires_in,omitempty" minimum:"1" maximum:"31536000" default:"604800" doc:"Seconds until the link is dead. A week where left out; at most a year."`
}

// Share is a read-only, expiring link to a session.
type Share struct {
	ID      string    `json:"id" doc:"Names the share; it is no secret."`
	Session uint64    `json:"session"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// NewShare is a Share at the one moment its link is known.
type NewShare struct {
	Share
	URL string `json:"url" doc:"The link, http://HOST/s/ID#token=T. Only this answer holds it: Millpond keeps a hash of the token."`
}

// ShareList holds the shares that are not dead and whose session was not deleted, oldest first.
type ShareList struct {
	Shares []Share `json:"shares" nullable:"false"`
}

// Grant is what a share gives to whoever holds its link.
type Grant struct {
	Session uint64    `json:"session"`
	Expires time.Time `json:"expires"`
}

// Status tells how Millpond is.
type Status struct {
	Version   string    `json:"version"`
	Proxy     string    `json:"proxy" doc:"The proxy's listener, host:port."`
	ProxyAuth bool      `json:"proxy_auth" doc:"The proxy's clients must show a user name and a password."`
	Dashboard string    `json:"dashboard" doc:"The dashboard's listener, host:port."`
	Addresses []string  `json:"addresses" nullable:"false" doc:"Where devices in the network reach the proxy, host:port, the likeliest first. Empty when it listens on loopback only: start it with --proxy 0.0.0.0:8080 and --proxy-auth."`
	Setup     string    `json:"setup" doc:"The page that helps a device whose proxy is already set."`
	CA        string    `json:"ca" doc:"The path of the certificate authority's cert.pem, on the machine that Millpond runs on."`
	Authority Authority `json:"authority"`
	Started   time.Time `json:"started"`
	Store     Store     `json:"store"`

	Deletions []Deletion `json:"deletions,omitempty" nullable:"false" doc:"The deletions of many sessions that have not ended, or did a moment ago, in their order."`

	DurableUntil uint64 `json:"durable_until" doc:"As in store: every ended session up to this id is durable."`
}

// Store tells how the sessions' storage is.
type Store struct {
	Sessions     uint64 `json:"sessions"`
	Open         int    `json:"open" doc:"Sessions that are being captured."`
	LastID       uint64 `json:"last_id" doc:"The newest id given."`
	DurableUntil uint64 `json:"durable_until" doc:"Every ended session up to this id is durable."`
	Bytes        uint64 `json:"bytes" doc:"On disk, all told."`
	Free         uint64 `json:"free" doc:"Bytes the file system has left."`
	Total        uint64 `json:"total" doc:"Bytes the file system holds."`
	Capturing    bool   `json:"capturing" doc:"False while capture does not work; the traffic passes all the same."`
	Problem      string `json:"problem,omitempty" doc:"Why capture does not work, for people: the disk is full, …"`

	Retention Retention `json:"retention"`
}

// Retention tells what the limits on how much is kept do. What is beyond one goes, the oldest first, but for pinned, shared and open sessions.
type Retention struct {
	MaxBytes    uint64    `json:"max_bytes,omitempty" doc:"0 or absent: no limit; so for the others."`
	MaxAge      float64   `json:"max_age,omitempty" doc:"Seconds since a session ended."`
	MaxSessions uint64    `json:"max_sessions,omitempty"`
	Used        uint64    `json:"used" doc:"Bytes that count against max_bytes: what sessions take. Decoded copies, which go first, do not count."`
	Next        uint64    `json:"next,omitempty" doc:"The oldest session that may go. Absent: there is none, or no limit."`
	NextStarted time.Time `json:"next_started,omitzero" doc:"When that began."`
	Stuck       bool      `json:"stuck,omitempty" doc:"A limit is exceeded, and nothing may go: what is left is pinned, shared, open, or the newest, of which 16 MiB, or 100 sessions or half of max_sessions, stay whatever the limit."`
	Short       bool      `json:"short,omitempty" doc:"The disk cannot hold max_bytes: it is full before."`
}
