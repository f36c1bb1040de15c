package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"millpond/content/ws"
	"millpond/storage"
)

const (
	// maxInflated bounds the decompressed messages of one direction, in bytes. Those beyond it are shown as they are.
	maxInflated = 4 << 30

	// maxInflating bounds how many copies of decompressed messages are made at a time. One takes 300 KiB, and goes on as long as its session and its reader do.
	maxInflating = 64

	// inflatedEntry is the size of what the index tells of a message: where its end lies in the copy (eight bytes, little-endian), and a condition.
	inflatedEntry = 9
)

// condition says how the decompression of a message went.
type condition byte

const (
	whole condition = iota
	damaged
	tooLarge
	brokenOff
	depends // on a message before it that could not be decompressed
)

func (c condition) String() string {
	switch c {
	case whole:
		return ""
	case tooLarge:
		return "it becomes too large when decompressed, and is shown as it is"
	case brokenOff:
		return "it was broken off, and is shown compressed"
	case depends:
		return "a message before it cannot be decompressed, so it is shown as it is"
	}
	return "it cannot be decompressed, and is shown as it is"
}

// inflated is the compressed messages of a direction, decompressed: one behind the other in a derived copy, and in another where each ends, so that any is
// found by arithmetic although each can need all those before it. The two are made by two passes, so that both are plain files that only grow.
type inflated struct{ data, index *storage.DerivedReader }

func (in *inflated) close() {
	in.data.Close()
	in.index.Close()
}

// inflated opens a compressed message's decompressed payload. It waits for it until ctx is done.
func (m *messages) inflated(ctx context.Context, e *storage.Entry) (payload, error) {
	if m.plain[e.Side] == nil {
		in, err := m.s.inflate(m.session, e.Side)
		if err != nil {
			return payload{}, err
		}
		m.plain[e.Side] = in
	}
	in := m.plain[e.Side]
	if !m.s.await(ctx, in.index, int64(e.Nth+1)*inflatedEntry) {
		return payload{pending: true}, nil
	}
	var entries [2 * inflatedEntry]byte // the message's, and that of the one before
	part, at := entries[:], int64(e.Nth-1)*inflatedEntry
	if e.Nth == 0 {
		part, at = entries[inflatedEntry:], 0
	}
	if n, err := in.index.ReadAt(part, at); n < len(part) {
		return payload{problem: unmade(in.index, err)}, nil
	}
	from, to := int64(binary.LittleEndian.Uint64(entries[:])), int64(binary.LittleEndian.Uint64(entries[inflatedEntry:]))
	if how := condition(entries[2*inflatedEntry-1]); how != whole {
		return payload{problem: how.String()}, nil
	}
	if !m.s.await(ctx, in.data, to) {
		return payload{pending: true}, nil
	}
	if in.data.Size() < to {
		return payload{problem: unmade(in.data, nil)}, nil
	}
	return payload{r: io.NewSectionReader(in.data, from, to-from), size: to - from}, nil
}

// unmade says why a copy ends before a message.
func unmade(r *storage.DerivedReader, err error) string {
	if r.Err() != nil {
		err = r.Err()
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Sprintf("it is shown as it is: %v", err)
}

// inflate opens the two copies, which are made in the background where they are not there.
func (s *Server) inflate(session *storage.Session, side storage.Side) (*inflated, error) {
	open := func(name string, sink func(*bufio.Writer) inflateSink) (*storage.DerivedReader, error) {
		r, err := s.store.Derive(session.ID, side.String()+"."+name, maxInflated, func(ctx context.Context, w io.Writer) error {
			return s.replay(ctx, session, side, sink(bufio.NewWriterSize(w, 64<<10)))
		})
		if err != nil {
			return nil, s.failed("decompress the messages", err)
		}
		return r, nil
	}
	data, err := open("messages", func(w *bufio.Writer) inflateSink {
		return inflateSink{data: w, index: bufio.NewWriter(io.Discard), told: true}
	})
	if err != nil {
		return nil, err
	}
	index, err := open("messages.index", func(w *bufio.Writer) inflateSink { return inflateSink{data: bufio.NewWriter(io.Discard), index: w} })
	if err != nil {
		data.Close()
		return nil, err
	}
	return &inflated{data, index}, nil
}

// inflateSink takes what a replay makes.
type inflateSink struct {
	data, index *bufio.Writer
	size        uint64 // of data
	told        bool   // that a message is damaged, or it is not to be told by this pass
}

// Write implements io.Writer for the data.
func (s *inflateSink) Write(p []byte) (int, error) {
	n, err := s.data.Write(p)
	s.size += uint64(n)
	if err != nil {
		err = sinkError{err}
	}
	return n, err
}

// sinkError is an error of the copy, which no further message can be put into.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// flush makes readable what was written.
func (s *inflateSink) flush() error { return errors.Join(s.data.Flush(), s.index.Flush()) }

func (s *inflateSink) end(how condition) error {
	var entry [inflatedEntry]byte
	binary.LittleEndian.PutUint64(entry[:], s.size)
	entry[inflatedEntry-1] = byte(how)
	_, err := s.index.Write(entry[:])
	return err
}

// replay decompresses the compressed messages of a direction in their order, also while there come more.
func (s *Server) replay(ctx context.Context, session *storage.Session, side storage.Side, sink inflateSink) error {
	ctx, cancel := s.until(ctx)
	defer cancel()
	select {
	case s.inflating <- struct{}{}:
		defer func() { <-s.inflating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	m := &messages{s: s, session: session}
	var err error
	if m.list, err = s.store.Messages(session.ID); err != nil {
		return fmt.Errorf("open the messages: %w", err)
	}
	defer m.close()
	inflater := ws.Inflater{Fresh: session.Messages.Fresh[side]}
	entries := make([]storage.Entry, 256)
	for next := uint64(0); ; {
		final, grown := m.list.Final(), m.list.Grown() // before Read, so that no growth is missed
		n, err := m.list.Read(entries, next)
		if err != nil {
			return err
		}
		for i := range entries[:n] {
			if e := &entries[i]; e.Side == side && e.Compressed {
				if err := m.replayOne(ctx, next+uint64(i), e, &inflater, &sink); err != nil {
					return err
				}
			}
		}
		if next += uint64(n); n > 0 {
			continue
		}
		if err := sink.flush(); err != nil {
			return err
		}
		if final {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replayOne decompresses a message. Its error is one of reading or of the sink, not of what was sent.
func (m *messages) replayOne(ctx context.Context, number uint64, e *storage.Entry, inflater *ws.Inflater, sink *inflateSink) error {
	if e.Broken {
		return sink.end(brokenOff)
	}
	p, err := m.wire(ctx, e)
	if err != nil {
		return err
	}
	if p.pending {
		return context.Cause(ctx)
	}
	before := inflater.Damaged()
	err = inflater.Message(sink, io.NewSectionReader(p.r, 0, p.size), e.Size)
	var disk sinkError
	switch {
	case err == nil:
		return sink.end(whole)
	case errors.As(err, &disk), ctx.Err() != nil:
		return err
	case before:
		return sink.end(depends)
	}
	if !sink.told {
		sink.told = true
		why := fmt.Sprintf("message %d cannot be decompressed: %v; it is shown as it passed", number, err)
		if inflater.Damaged() {
			why += ", and so is what its side sent after it"
		}
		if err := m.s.store.LoseMessages(m.session.ID, e.Side, why); err != nil {
			m.s.log.Warn("note a damaged message", "err", err)
		}
	}
	if errors.Is(err, ws.ErrLarge) {
		return sink.end(tooLarge)
	}
	return sink.end(damaged)
}
