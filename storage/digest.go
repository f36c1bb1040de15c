package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

const (
	digestQueue = 1024                   // bodies that wait to be hashed; what does not fit is hashed when somebody asks
	digestPause = 500 * time.Millisecond // how often the digester looks whether bodies are still being recorded
)

// digestJob is a body to hash, or a digest to keep where sum is set.
type digestJob struct {
	id   uint64
	side Side
	sum  []byte
}

// digester hashes bodies of more than one chunk when the CPU is not needed for recording, and puts their digests into their sessions' records.
// Beside those that end it looks at the sessions below an id, newest first, for bodies that a former process was ended before it hashed.
func (s *Store) digester(ctx context.Context, below uint64) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.digests:
			s.makeDigest(ctx, job)
			continue
		default:
		}
		if below > 0 {
			below = s.makeUp(ctx, below)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case job := <-s.digests:
			s.makeDigest(ctx, job)
		}
	}
}

func (s *Store) makeDigest(ctx context.Context, job digestJob) {
	if job.sum == nil {
		job.sum = s.hashIdle(ctx, job)
	}
	if job.sum != nil {
		s.keepDigest(job.id, job.side, job.sum)
	}
}

// makeUp hashes the bodies of the newest session below an id that may lack digests, once nothing is recorded, and returns which that was; 0 where
// there is none.
func (s *Store) makeUp(ctx context.Context, below uint64) (id uint64) {
	if s.idle(ctx) != nil {
		return 0
	}
	err := s.ScanDown(0, below, func(r *Row) bool {
		if r.State != Open && max(r.RequestBytes, r.ResponseBytes) > smallBody && ctx.Err() == nil {
			id = r.ID
		}
		return id == 0 && ctx.Err() == nil
	})
	if err != nil {
		s.logger.Warn("look for bodies to hash", "error", err)
	}
	if id == 0 {
		return 0
	}
	session, err := s.Session(id)
	if err != nil {
		return id // deleted, or damaged: who reads it is told
	}
	for side := range session.Sides {
		if b := &session.Sides[side].Body; b.Size > smallBody && b.SHA256 == nil {
			s.makeDigest(ctx, digestJob{id: id, side: Side(side)})
		}
	}
	return id
}

// hashIdle hashes a body while nothing is recorded. It returns nil where that did not come to an end.
func (s *Store) hashIdle(ctx context.Context, job digestJob) []byte {
	session, err := s.Session(job.id)
	if err != nil || session.Sides[job.side].Body.SHA256 != nil {
		return nil
	}
	b, err := s.Body(job.id, job.side)
	if err != nil {
		return nil // deleted
	}
	defer b.Close()
	sum, err := hashBody(b, func() error { return s.idle(ctx) })
	if err != nil {
		if _, gone := s.Session(job.id); ctx.Err() == nil && !errors.Is(gone, fs.ErrNotExist) { // one that was deleted meanwhile has nothing to hash
			s.logger.Warn("hash body", "session", job.id, "side", job.side, "error", err)
		}
		return nil
	}
	return sum
}

// idle waits until no large body is being recorded.
func (s *Store) idle(ctx context.Context) error {
	for {
		if full, open := s.incomings.count(); full+open == 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(digestPause):
		}
	}
}

// digestLater has a body hashed, or its digest kept, in the background.
func (s *Store) digestLater(job digestJob) {
	select {
	case s.digests <- job:
	default:
	}
}

// keepDigest puts a body's digest into its session's record.
func (s *Store) keepDigest(id uint64, side Side, sum []byte) {
	err := s.amend(id, func(session *Session) { session.Sides[side].Body.SHA256 = sum })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("keep digest", "session", id, "error", err)
	}
}

// SHA256 returns the digest of a final body, hashing it now where it is not known yet. It is kept once known.
func (s *Store) SHA256(ctx context.Context, id uint64, side Side) ([]byte, error) {
	session, err := s.Session(id)
	if err != nil {
		return nil, err
	}
	if sum := session.Sides[side].Body.SHA256; sum != nil {
		return sum, nil
	}
	b, err := s.Body(id, side)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if !b.Final() {
		return nil, fmt.Errorf("hash %s body of session %d: it is not final: %w", side, id, fs.ErrInvalid)
	}
	sum, err := hashBody(b, ctx.Err)
	if err != nil {
		return nil, fmt.Errorf("hash %s body of session %d: %w", side, id, err)
	}
	if b.Size() > smallBody && session.State != Open {
		s.digestLater(digestJob{id, side, sum})
	}
	return sum, nil
}

// fillDigests hashes the small bodies of a session: it takes less than a look at it takes, and more than recording them did.
func (s *Store) fillDigests(session *Session) {
	for side := range session.Sides {
		d := &session.Sides[side].Body
		if d.SHA256 != nil || d.Size == 0 || d.Size > smallBody {
			continue
		}
		b, err := s.Body(session.ID, Side(side))
		if err != nil {
			continue // who reads the body is told
		}
		if b.Final() && uint64(b.Size()) == d.Size {
			d.SHA256, _ = hashBody(b, func() error { return nil })
		}
		b.Close()
	}
}

// hashBody hashes a body, asking before each read whether it should go on.
func hashBody(b *BodyReader, goOn func() error) ([]byte, error) {
	h := sha256.New()
	buf := NewLargeBuffer()
	defer buf.Free()
	for off := int64(0); off < b.Size(); {
		if err := goOn(); err != nil {
			return nil, err
		}
		n, err := b.ReadAt(buf.B[:min(int64(len(buf.B)), b.Size()-off)], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		h.Write(buf.B[:n])
		off += int64(n)
	}
	return h.Sum(nil), nil
}
