package storage

import (
	"fmt"
	"time"
)

// Side names one direction of a session.
type Side uint8

// The two sides of a session.
const (
	Request Side = iota
	Response
)

func (s Side) String() string {
	if s == Response {
		return "response"
	}
	return "request"
}

// ParseSide returns the side that the word names.
func ParseSide(word string) (Side, error) {
	switch word {
	case "request":
		return Request, nil
	case "response":
		return Response, nil
	}
	return 0, fmt.Errorf("parse side %q: want request or response", word)
}

// State says how far a session has come, or how it ended.
type State uint8

// The states of a session. Every state but Open is final.
const (
	Open            State = iota
	Done                  // both sides were relayed whole
	ClientAborted         // the client left before the end
	UpstreamAborted       // upstream broke off before the end
	Interrupted           // Millpond itself was ended before the session was, or a backup was made
	Failed                // no exchange took place; Error says why
)

var stateNames = [...]string{"open", "done", "client_aborted", "upstream_aborted", "interrupted", "failed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Flags name what is unusual about a session.
const (
	FlagHostDiffers      = "host_differs"      // Host or :authority is not what was asked of the proxy
	FlagAmbiguousFraming = "ambiguous_framing" // a message's length could be read in two ways, or bytes came after the response
	FlagModified         = "modified"          // a modifier changed what was sent on
	FlagMoved            = "moved"             // a modifier sent it to another host
	FlagAnswered         = "answered"          // a modifier answered without upstream
	FlagInsecure         = "insecure_upstream" // upstream's certificate did not verify, and was accepted
	FlagTunnel           = "tunnel"            // bytes passed through unread
	FlagUpgraded         = "upgraded"          // the exchange became another protocol
	FlagCut              = "cut"               // capture of a body stopped before the body did
	FlagReused           = "reused"            // sent on an upstream connection that had served before
	FlagOddName          = "odd_name"          // a field's name is none that HTTP allows, and passed as it is
	FlagReverse          = "reverse"           // came to a listener that forwards to one upstream
	FlagPassthrough      = "passthrough"       // a tunnel to a host that is set to pass unread
	FlagUpstreamProxy    = "upstream_proxy"    // sent through another proxy
	FlagWebSocket        = "websocket"         // the protocol that an exchange became; put on rows, because a session has Messages
)

// Session is one captured request with its response; also a tunnel. It is what the log keeps of it.
type Session struct {
	ID    uint64   `cbor:"1,keyasint"`
	State State    `cbor:"2,keyasint"`
	Error string   `cbor:"3,keyasint,omitempty"` // why it did not end as Done, or what upstream sent beyond it, for people
	Flags []string `cbor:"4,keyasint,omitempty"`

	Client   string `cbor:"5,keyasint,omitempty"`  // the client's address, host:port
	Method   string `cbor:"6,keyasint,omitempty"`  // CONNECT for a tunnel
	Scheme   string `cbor:"7,keyasint,omitempty"`  // http, https, or tcp for a tunnel
	Host     string `cbor:"8,keyasint,omitempty"`  // what was asked: host, or host:port where the port is not the scheme's
	Path     string `cbor:"9,keyasint,omitempty"`  // path and query as on the wire; empty for a tunnel
	Upstream string `cbor:"10,keyasint,omitempty"` // where it went: the address dialled, host:port
	Protocol string `cbor:"11,keyasint,omitempty"` // HTTP/1.0, HTTP/1.1, HTTP/2, or the tunnel's (TLS, TCP)

	Status      int    `cbor:"12,keyasint,omitempty"` // 0 until a response head came
	ContentType string `cbor:"13,keyasint,omitempty"` // the response's media type, as sent

	Timing Timing `cbor:"14,keyasint"`
	TLS    *TLS   `cbor:"15,keyasint,omitempty"`

	Sides [2]Message `cbor:"16,keyasint"` // by Side

	Pinned bool   `cbor:"17,keyasint,omitempty"`
	Note   string `cbor:"18,keyasint,omitempty"`
	Color  string `cbor:"19,keyasint,omitempty"`

	HTTP2        *HTTP2    `cbor:"20,keyasint,omitempty"` // nil: not over HTTP/2
	Certificates *Extent   `cbor:"21,keyasint,omitempty"` // where the log has TLS.Chain. Storage owns it
	Messages     *Messages `cbor:"30,keyasint,omitempty"` // nil where its bodies are no messages that Millpond reads
}

// Message is one side of a session.
type Message struct {
	Head          []byte   `cbor:"1,keyasint,omitempty"` // as forwarded. HTTP/1: the bytes with the final empty line; HTTP/2: one "name: value\n" a line, pseudo-fields first as sent
	Received      []byte   `cbor:"2,keyasint,omitempty"` // as received, where that differs from Head
	Informational [][]byte `cbor:"3,keyasint,omitempty"` // 1xx heads, in order
	Trailers      []byte   `cbor:"4,keyasint,omitempty"` // in the form of Head, without a start line
	Body          Body     `cbor:"5,keyasint"`
	Framing       Framing  `cbor:"6,keyasint,omitempty"`
	Chunks        *Chunks  `cbor:"9,keyasint,omitempty"` // what its chunked framing held beside the data; nil for nothing
}

// Body tells what is kept of one side's body. Storage owns it: what a caller puts here is ignored.
type Body struct {
	Size     uint64   `cbor:"1,keyasint,omitempty"` // bytes captured, from the first one on without a gap
	Passed   uint64   `cbor:"2,keyasint,omitempty"` // bytes forwarded; more than Size where capture was cut
	Complete bool     `cbor:"3,keyasint,omitempty"` // the sender finished it, and all of it is kept
	SHA256   []byte   `cbor:"4,keyasint,omitempty"` // of the Size bytes, when known
	Missing  string   `cbor:"5,keyasint,omitempty"` // why bytes beyond Size are not kept: "captured to byte N: reason"
	Extents  []Extent `cbor:"6,keyasint,omitempty"`
}

// Extent is a run of a body: bytes of a log slot (Chunk empty) or of a chunk file.
type Extent struct {
	Length  uint64 `cbor:"1,keyasint"`
	Segment uint64 `cbor:"2,keyasint,omitempty"`
	Slot    uint32 `cbor:"3,keyasint,omitempty"`
	Chunk   []byte `cbor:"4,keyasint,omitempty"` // SHA-256 of the chunk's content
}

// Timing holds the moments of a session; the zero time where one did not come. It is stored as timingMoments.
type Timing struct {
	Started      time.Time // the request's first byte
	RequestSent  time.Time // the request's last byte was written
	FirstByte    time.Time // the response's first byte came, or that of an informational one; over HTTP/2 it is ResponseHead
	ResponseHead time.Time // the response's head was complete
	Ended        time.Time
	Setup        *Setup // how its connection was made; nil where that is not known, and on a connection that had served before
}

// Setup holds the moments in which a connection to upstream was made. They may all be before the session began. Sessions share it: it is not changed once one has it.
type Setup struct {
	Connect       time.Time // the dial to upstream began
	Resolved      time.Time // upstream's name was looked up; that began with Connect. Not where upstream was an address
	Connected     time.Time // TCP to upstream stood
	ClientHello   time.Time // what the client asks of TLS was read: TLS to upstream began
	Secured       time.Time // TLS to upstream stood
	ClientSecured time.Time // TLS to the client stood
}

// Connection returns the moments of Setup, none where there is no Setup.
func (t *Timing) Connection() Setup {
	if t.Setup == nil {
		return Setup{}
	}
	return *t.Setup
}

// TLS tells what was negotiated.
type TLS struct {
	ServerName      string `cbor:"1,keyasint,omitempty"` // the client's SNI
	ALPN            string `cbor:"2,keyasint,omitempty"`
	ClientVersion   string `cbor:"3,keyasint,omitempty"` // "TLS 1.3"
	ClientCipher    string `cbor:"4,keyasint,omitempty"`
	UpstreamVersion string `cbor:"5,keyasint,omitempty"`
	UpstreamCipher  string `cbor:"6,keyasint,omitempty"`
	UpstreamError   string `cbor:"7,keyasint,omitempty"` // why upstream's certificate does not verify, where it was accepted all the same
	JA4             string `cbor:"8,keyasint,omitempty"` // the fingerprint of the client's hello
	Chain           *Chain `cbor:"-"`                    // upstream's certificates; nil where there are none, and in a record: Session.Certificates says where
}

// HasFlag reports whether the flag is set.
func (s *Session) HasFlag(flag string) bool {
	for _, f := range s.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

// SetFlag sets the flag once.
func (s *Session) SetFlag(flag string) {
	if !s.HasFlag(flag) {
		s.Flags = append(s.Flags, flag)
	}
}

// Row is what a list shows of a session, without opening its record.
type Row struct {
	ID            uint64
	State         State
	Durable       bool // survives a power cut
	Method        string
	Scheme        string
	Host          string
	Upstream      string
	Path          string
	Protocol      string
	Status        int
	ContentType   string
	RequestBytes  uint64 // body bytes forwarded so far
	ResponseBytes uint64
	Started       time.Time
	Duration      time.Duration // so far, for an open session
	FirstByte     time.Duration // from Started to the response's head; 0 until it came
	Client        string
	Error         string
	Flags         []string
	Pinned        bool
	Note          string
	Color         string
}
