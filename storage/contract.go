package storage

// This file is the outline the other packages are built against. Each declaration moves to the file that builds it.

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// SlowDisk says what gives when the disk cannot keep up.
type SlowDisk uint8

const (
	Wait SlowDisk = iota // hold the relay back: nothing is lost
	Cut                  // end the capture of that body: nothing is held back
)

// Config says where and how a Store keeps sessions. The zero value of each field but Dir is usable.
type Config struct {
	Dir      string
	SlowDisk SlowDisk
	Logger   *slog.Logger
	Files    Files // nil: the disk
	Now      func() time.Time
}

// Store keeps sessions and their bodies.
type Store struct{}

// OpenStore opens or makes the store in cfg.Dir, recovering what a former process left open.
// A directory that another process holds is ErrLocked, which names the holder.
func OpenStore(cfg Config) (*Store, error) { panic("outline") }

// Close ends open recordings as Interrupted, commits, and lets go of the directory.
func (s *Store) Close() error { panic("outline") }

// Begin starts the recording of a session and gives it its id. It never fails and never waits for the disk:
// where storage cannot keep the session, the session says so.
func (s *Store) Begin(begun Session) *Recording { panic("outline") }

// Recording is a session that is being captured. Its methods never fail and are safe for concurrent use.
type Recording struct{}

func (r *Recording) ID() uint64 { panic("outline") }

// Change lets fn alter the session's fields (not its Bodies, id or state). fn must be quick.
func (r *Recording) Change(fn func(*Session)) { panic("outline") }

// Body returns the writer for one side. A side that never gets a byte needs no call but Complete.
func (r *Recording) Body(side Side) *BodyWriter { panic("outline") }

// End ends the session; writers that are not Complete keep what they have. why is for people, empty for Done. Only the first call counts.
func (r *Recording) End(state State, why string) { panic("outline") }

// BodyWriter takes one side's bytes in order, from one goroutine.
type BodyWriter struct{}

// Give hands over the first n bytes of b, already forwarded, without a copy; b is the store's from here on. It never blocks.
func (w *BodyWriter) Give(b *Buffer, n int) { panic("outline") }

// Write copies p, already forwarded; small writes are gathered. It never blocks and always returns len(p), nil.
func (w *BodyWriter) Write(p []byte) (int, error) { panic("outline") }

// Full is nil while the recording holds no more memory than its share. Else it is a channel closed when it again does not, or when the capture was cut:
// the relay should take no more from the sender until then.
func (w *BodyWriter) Full() <-chan struct{} { panic("outline") }

// Wait blocks while Full, or until ctx is done.
func (w *BodyWriter) Wait(ctx context.Context) { panic("outline") }

// Complete says that the sender finished the body.
func (w *BodyWriter) Complete() { panic("outline") }

// Session returns the whole record, also of an open session. An unknown id is fs.ErrNotExist.
func (s *Store) Session(id uint64) (Session, error) { panic("outline") }

// Row returns one row. An unknown id is fs.ErrNotExist.
func (s *Store) Row(id uint64) (Row, error) { panic("outline") }

// Scan calls fn for each session with an id in [from, to), in rising order, until fn returns false. No transaction is held for longer than 50 ms,
// and none while fn waits for a socket: fn may block only on the CPU. ScanDown is the same in falling order.
func (s *Store) Scan(from, to uint64, fn func(*Row) bool) error     { panic("outline") }
func (s *Store) ScanDown(from, to uint64, fn func(*Row) bool) error { panic("outline") }

// Body opens what is kept of a body. An unknown id, or a body cut short before its first byte, is fs.ErrNotExist.
func (s *Store) Body(id uint64, side Side) (*BodyReader, error) { panic("outline") }

// BodyReader reads a body at any offset, also while it grows. ReadAt past the bytes captured so far returns io.EOF with what there is.
type BodyReader struct{ io.ReaderAt }

func (b *BodyReader) Size() int64            { panic("outline") } // readable now; only grows
func (b *BodyReader) Complete() bool         { panic("outline") } // nothing will be added, and nothing is missing
func (b *BodyReader) Final() bool            { panic("outline") } // nothing will be added
func (b *BodyReader) Grown() <-chan struct{} { panic("outline") } // closed at the next growth or when final
func (b *BodyReader) Close() error           { panic("outline") }

// SHA256 returns the digest of a final body, hashing it now where it is not known yet. It is kept once known.
func (s *Store) SHA256(ctx context.Context, id uint64, side Side) ([]byte, error) { panic("outline") }

// Delete removes sessions; the open among them are dropped at their end. It returns how many there were.
func (s *Store) Delete(ctx context.Context, ids []uint64) (int, error) { panic("outline") }

// DeleteThrough removes every session with an id up to cutoff, in steps.
func (s *Store) DeleteThrough(ctx context.Context, cutoff uint64) (int, error) { panic("outline") }

// Annotate changes what people put on a session: Pinned, Note, Color.
func (s *Store) Annotate(id uint64, fn func(*Session)) error { panic("outline") }

// Subscribe returns a feed of changed session ids.
func (s *Store) Subscribe() *Feed { panic("outline") }

// Status tells how the store is.
type Status struct {
	Sessions     uint64 // rows
	Open         int
	LastID       uint64 // the newest id given
	DurableUntil uint64 // every ended session up to this id is durable
	Bytes        uint64 // on disk: log, chunks, incoming, index, derived
	Free         uint64 // bytes the file system has left
	Total        uint64 // bytes the file system holds
	Problem      string // why capture does not work now, for people; empty when it does. "the disk is full: …"
}

func (s *Store) Status() Status { panic("outline") }

// PutShare, Share, Shares and DeleteShare keep the server's share records, by id, durable on return.
func (s *Store) PutShare(id string, record []byte) error { panic("outline") }
func (s *Store) Share(id string) ([]byte, error)         { panic("outline") }
func (s *Store) Shares() (map[string][]byte, error)      { panic("outline") }
func (s *Store) DeleteShare(id string) error             { panic("outline") }

// Derive returns another representation of a body from the derived cache, making it in the background where it is not there.
// The name says which (side and representation, "response.decoded"). The reader grows while it is made, and Err says how the making ended.
// make must write to w only; w refuses bytes beyond limit with ErrDerivedLimit.
func (s *Store) Derive(id uint64, name string, limit int64, make func(w io.Writer) error) (*DerivedReader, error) {
	panic("outline")
}

// DerivedReader is a BodyReader over a derived file.
type DerivedReader struct{ BodyReader }

func (d *DerivedReader) Err() error { panic("outline") } // nil while it is being made or when it was made whole
