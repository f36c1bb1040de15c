package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"millpond/content"
	"millpond/content/sse"
	"millpond/storage"
)

// codedEnd is how long the end of a session waits until the last events of a coded event stream are decoded: they are behind by a moment, unless the disk stalls.
const codedEnd = 250 * time.Millisecond

// isEventStream reports whether the response has a body that is one.
func (x *exchange) isEventStream() bool {
	if x.sent.head.method == http.MethodHead || x.got.head.status == http.StatusNoContent || x.got.head.status == http.StatusNotModified {
		return false
	}
	text, _ := x.got.head.value("Content-Type")
	media, _, _ := strings.Cut(text, ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// readEvents lists the events of the response's body.
func (x *exchange) readEvents() {
	x.rec.ListMessages(storage.Messages{Kind: storage.Events})
	e := &events{rec: x.rec}
	e.parser.Found = e.found
	coding := x.got.head.joined("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		x.rec.ReadAlong(storage.Response, e)
		return
	}
	c := &codedEvents{events: e, coding: coding, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	x.rec.ReadAlong(storage.Response, c)
	go c.run(ctx, x.p.cfg.Store)
}

// events reads an event stream, for the list of messages.
type events struct {
	rec    *storage.Recording
	mu     sync.Mutex // the session can be ended while its bytes still pass
	parser sse.Parser
}

// Write implements io.Writer.
func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.parser.Write(p)
}

// Close implements io.Closer.
func (e *events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parser.End()
	return nil
}

func (e *events) found(m sse.Message) {
	entry := storage.Entry{Side: storage.Response, Time: time.Now(), Offset: m.Offset, Length: m.Length, Size: m.Size, Broken: m.Broken}
	if m.Comment {
		entry.Opcode = storage.Comment
	}
	e.rec.List(entry)
}

// codedEvents reads an event stream that has a content coding. A decoder asks for bytes, while the relay has some to give, and may make many of few: so it
// follows the recording in a goroutine of its own, and holds nobody up.
type codedEvents struct {
	events *events
	coding string
	cancel context.CancelFunc
	done   chan struct{}
}

// Write implements io.Writer. The goroutine finds the bytes in the recording.
func (c *codedEvents) Write(p []byte) (int, error) { return len(p), nil }

// Close implements io.Closer.
func (c *codedEvents) Close() error {
	c.cancel() // ends the following once all that came is read
	late := time.NewTimer(codedEnd)
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
		c.events.rec.LoseMessages(storage.Response, "the last events were not decoded before the session ended")
	}
	return nil
}

func (c *codedEvents) run(ctx context.Context, store *storage.Store) {
	defer close(c.done)
	defer c.cancel()
	err := c.read(ctx, store)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.events.rec.LoseMessages(storage.Response, fmt.Sprintf("events are listed until the body could not be decoded: %v", err))
	}
	c.events.Close()
}

func (c *codedEvents) read(ctx context.Context, store *storage.Store) error {
	body, err := store.Body(c.events.rec.ID(), storage.Response)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder, err := content.Decode(body.Follow(ctx), c.coding)
	if err != nil {
		return err
	}
	defer decoder.Close()
	_, err = io.Copy(c.events, decoder)
	return err
}
