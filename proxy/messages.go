package proxy

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"millpond/content/ws"
	"millpond/storage"
)

// expectMessages begins to read along before a WebSocket over HTTP/2 is accepted (RFC 8441): its client may not wait for the answer. Whether messages are
// compressed is as it asked, until then.
func (x *exchange) expectMessages() {
	if x.extended() {
		x.readWebSocket(ws.Agreed(x.sent.head.joined("Sec-WebSocket-Extensions")))
	}
}

// extended reports whether the request is an extended CONNECT for a WebSocket. RFC 8441, section 5.
func (x *exchange) extended() bool {
	if x.sent.head.method != "CONNECT" {
		return false
	}
	protocol, _ := x.sent.head.value(":protocol")
	return strings.EqualFold(protocol, "websocket")
}

// readMessages begins to read along where the response says that messages follow.
func (x *exchange) readMessages() {
	h := x.got.head
	expected := x.extended()
	switch {
	case expected && h.status/100 == 2:
		x.rec.Change(func(s *storage.Session) {
			if s.Messages != nil {
				s.Messages = agreed(ws.Agreed(h.joined("Sec-WebSocket-Extensions")))
			}
		})
	case expected: // refused
		x.rec.ReadAlong(storage.Request, nil)
		x.rec.ReadAlong(storage.Response, nil)
		x.rec.Change(func(s *storage.Session) { s.Messages = nil })
	case h.status == 101 && h.lists("Upgrade", "websocket"):
		x.readWebSocket(ws.Agreed(h.joined("Sec-WebSocket-Extensions")))
	case x.isEventStream():
		x.readEvents()
	}
}

func agreed(a ws.Agreement) *storage.Messages {
	return &storage.Messages{Kind: storage.WebSocket, Deflate: a.Deflate, Fresh: [2]bool{a.ClientFresh, a.ServerFresh}}
}

// readWebSocket lists the messages of both directions.
func (x *exchange) readWebSocket(a ws.Agreement) {
	x.rec.ListMessages(*agreed(a))
	for _, side := range []storage.Side{storage.Request, storage.Response} {
		d := &direction{rec: x.rec, side: side}
		d.parser = &ws.Parser{Deflate: a.Deflate, Found: d.found, Lost: func(at uint64, why string) {
			if a.Other != "" {
				why += "; the extension " + a.Other + " may, which Millpond does not read"
			}
			d.rec.LoseMessages(d.side, lostAt(at, d.side, why))
		}}
		x.rec.ReadAlong(side, d)
	}
}

// direction reads one direction of a WebSocket, for the list of messages.
type direction struct {
	rec  *storage.Recording
	side storage.Side

	mu     sync.Mutex // the session can be ended while its bytes still pass
	parser *ws.Parser
	nth    uint64 // compressed messages
}

// Write implements io.Writer.
func (d *direction) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parser.Write(p)
}

// Close implements io.Closer.
func (d *direction) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parser.End()
	return nil
}

func (d *direction) found(m ws.Message) {
	d.rec.List(storage.Entry{
		Side: d.side, Opcode: m.Opcode, Time: time.Now(), Offset: m.Offset, Length: m.Length, Size: m.Size,
		Compressed: m.Compressed, Broken: m.Broken, Code: m.Code, Nth: d.nth,
	})
	if m.Compressed {
		d.nth++
	}
}

// lostAt says where and why the reading of a direction as messages ended.
func lostAt(at uint64, side storage.Side, why string) string {
	sender := "the client"
	if side == storage.Response {
		sender = "the server"
	}
	return fmt.Sprintf("messages are listed to byte %d of what %s sent: %s", at, sender, why)
}
