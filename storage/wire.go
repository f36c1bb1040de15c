package storage

import "fmt"

// Framing says how the receiver of a message finds its body's end. The numbers are part of the stored format.
type Framing uint8

// The framings of a body. RFC 9112, section 6.3; RFC 9113, section 8.1.
const (
	FramingUnknown Framing = iota // a tunnel's, or none came yet
	FramingNone                   // there is no body
	FramingLength                 // Content-Length
	FramingChunked                // Transfer-Encoding
	FramingClose                  // the end of the connection
	FramingHTTP2                  // the END_STREAM flag
)

var framingNames = [...]string{"", "none", "content_length", "chunked", "close", "http2"}

func (f Framing) String() string {
	if int(f) < len(framingNames) {
		return framingNames[f]
	}
	return fmt.Sprintf("framing(%d)", uint8(f))
}

// Chunks tells what stood in a chunked body's framing beside the sizes. It is not changed once a session has it.
type Chunks struct {
	Extensions []ChunkExtension `cbor:"1,keyasint"`           // the first of them
	Cut        uint64           `cbor:"2,keyasint,omitempty"` // bytes of further ones, which are not kept
}

// ChunkExtension is what a chunk's size line held after the size. RFC 9112, section 7.1.1.
type ChunkExtension struct {
	_      struct{} `cbor:",toarray"`
	Offset uint64   // where in the body the chunk begins
	Size   uint64   // of the chunk, in bytes; 0 for the last
	Text   []byte   // as on the wire, from the byte after the size to the line's end
}

// Party is who did something on a relayed connection. The numbers are part of the stored format.
type Party uint8

// The parties of a relayed connection.
const (
	ByNobody Party = iota
	ByClient
	ByUpstream
	ByProxy
)

var partyNames = [...]string{"", "client", "upstream", "proxy"}

func (p Party) String() string {
	if int(p) < len(partyNames) {
		return partyNames[p]
	}
	return fmt.Sprintf("party(%d)", uint8(p))
}

// HTTP2 tells what frames said of a stream and its connection beside fields and data. Sessions share one value and what it points to: it is
// replaced, never changed.
type HTTP2 struct {
	Stream uint32   `cbor:"1,keyasint"`
	Reset  *Reset   `cbor:"2,keyasint,omitempty"` // the RST_STREAM that ended it; nil: none did
	Away   []GoAway `cbor:"3,keyasint,omitempty"` // the latest of each party that came before the stream's end

	// The SETTINGS of the connection's two ends in force when the stream began, as they were sent. They are told again with each stream, in some
	// 50 bytes: a session can then be deleted, shared or moved without what became of its connection's others.
	ClientSettings   []Setting `cbor:"4,keyasint,omitempty"`
	UpstreamSettings []Setting `cbor:"5,keyasint,omitempty"`
}

// Reset is an RST_STREAM frame. RFC 9113, section 6.4.
type Reset struct {
	_    struct{} `cbor:",toarray"`
	By   Party
	Code uint32
}

// GoAway is a GOAWAY frame. RFC 9113, section 6.8.
type GoAway struct {
	_     struct{} `cbor:",toarray"`
	By    Party
	Last  uint32 // the highest stream that the sender acts on
	Code  uint32
	Debug []byte // the first GoAwayDebug bytes of what it adds
	Size  uint32 // of all that it adds, in bytes
}

// GoAwayDebug is how much of a GOAWAY's debug data is kept, in bytes: it is meant to be a line of text, and each session open then keeps it.
const GoAwayDebug = 1 << 10

// Setting is one of SETTINGS. RFC 9113, section 6.5.1.
type Setting struct {
	_     struct{} `cbor:",toarray"`
	ID    uint16
	Value uint32
}
