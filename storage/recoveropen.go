package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
)

// finishNaming does what a crash kept from being done after a record said it: the incoming file becomes the chunk.
func (s *Store) finishNaming(n named, leftover map[uint64]bool) error {
	name := chunkName(n.Extent.Chunk)
	if info, err := s.files.Stat(name); err == nil && uint64(info.Size()) == n.Extent.Length {
		return nil
	}
	f, err := s.files.OpenFile(incomingName(n.Incoming), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another record named it
	}
	if err != nil {
		return fmt.Errorf("open incoming file: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, chunkSize)); err != nil {
		return fmt.Errorf("read incoming file: %w", err)
	}
	if string(h.Sum(nil)) != string(n.Extent.Chunk) {
		return nil // an old record: the number was given again
	}
	delete(leftover, n.Incoming)
	return s.renameSynced(f, n.Incoming, n.Extent.Chunk)
}

func (s *Store) renameSynced(f File, number uint64, sum []byte) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync incoming file: %w", err)
	}
	name := chunkName(sum)
	if err := s.rename(incomingName(number), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("name chunk: %w", err)
	}
	if err := s.files.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("sync chunk directory: %w", err)
	}
	return nil
}

// recovered is an incoming file of which a prefix proved good.
type recovered struct {
	mark mark
	sum  []byte
}

// recoverOpen ends the sessions that were open, with what proves to be on disk.
func (s *Store) recoverOpen(leftover map[uint64]bool) error {
	_, err := s.files.Stat(backupMark)
	backup := err == nil
	if err := s.endOpen(leftover, backup); err != nil || !backup {
		return err
	}
	if err := s.files.Remove(backupMark); err != nil { // before another session is open
		return err
	}
	return s.files.SyncDir(".")
}

// endOpen is recoverOpen, of a backup of a store that was in use or of what a Millpond left that was ended.
func (s *Store) endOpen(leftover map[uint64]bool, backup bool) error {
	ids := make([]uint64, 0, len(s.index.open))
	for id := range s.index.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var files []recovered
	for _, id := range ids {
		o := s.index.open[id]
		if o.begun.Segment == 0 || o.doomed.Segment != 0 || id <= s.cutoff.Load() {
			rec := &record{kind: recordDeleted, gone: deletion{IDs: []uint64{id}}}
			s.appendValue(rec, rec.gone)
			continue
		}
		session, err := s.recoverSession(o, leftover, &files, backup)
		if err != nil {
			return err
		}
		rec := &record{kind: recordEnded, session: session}
		s.appendValue(rec, session)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := s.log.flush(); err != nil {
		return err
	}
	end := s.log.end()
	if err := s.log.sync(); err != nil {
		return err
	}
	for _, r := range files {
		if err := s.nameRecovered(r); err != nil {
			return err
		}
	}
	_, err := s.index.apply(s.log.take(end), end, s.readSession, nil)
	return err
}

func (s *Store) nameRecovered(r recovered) error {
	if _, err := s.files.Stat(chunkName(r.sum)); err == nil {
		return nil
	}
	f, err := s.files.OpenFile(incomingName(r.mark.Incoming), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("open incoming file: %w", err)
	}
	defer f.Close()
	return s.renameSynced(f, r.mark.Incoming, r.sum)
}

// begunSession reads what the log tells of the session's fields. Where that is damaged, it is what the row has.
func (s *Store) begunSession(o *openSession) (*Session, error) {
	var at place
	var row Row
	err := s.index.view(func(tx *bbolt.Tx) (err error) {
		if v := tx.Bucket(bucketRows).Get(idKey(o.id)); v != nil {
			if err := decodeRow(&row, o.id, v, s.index.dict.snapshot()); err != nil {
				return err
			}
		}
		at, err = findSlot(tx, o.begun)
		return err
	})
	var session *Session
	if err == nil {
		session, err = s.readSession(at)
	}
	if errors.Is(err, errGone) || errors.Is(err, errTorn) {
		s.logger.Error("the record of a session that was open is damaged", "session", o.id, "error", err)
		row.ID = o.id
		return sessionOfRow(&row), nil
	}
	return session, err
}

// sessionOfRow is what a row has of a session whose record is damaged: it is open, until the log has shown what else there is of it.
func sessionOfRow(row *Row) *Session {
	return &Session{
		ID: row.ID, Flags: row.Flags, Client: row.Client, Method: row.Method, Scheme: row.Scheme, Host: row.Host, Path: row.Path, Upstream: row.Upstream,
		Protocol: row.Protocol, Status: row.Status, ContentType: row.ContentType, Timing: Timing{Started: row.Started},
		Pinned: row.Pinned, Note: row.Note, Color: row.Color,
		Sides: [2]Message{{Body: Body{Passed: row.RequestBytes}}, {Body: Body{Passed: row.ResponseBytes}}},
	}
}

func (s *Store) recoverSession(o *openSession, leftover map[uint64]bool, files *[]recovered, backup bool) (*Session, error) {
	ended, why := "Millpond was ended", "Millpond was ended before the session was"
	if backup {
		ended, why = "the backup was made", "The backup was made before the session ended"
	}
	session, err := s.begunSession(o)
	if err != nil {
		return nil, err
	}
	if e := session.Certificates; e != nil && !s.hasSlot(slotID{e.Segment, e.Slot}) { // an open session is not counted among those that name them
		session.Certificates = nil
	}
	whole := session.State != Open
	for side, known := range session.streams() {
		good, err := s.goodIncoming(&o.bodies[side], leftover)
		if err != nil {
			return nil, err
		}
		body := assemble(&o.bodies[side], good)
		body.Complete = known.Complete && known.Size == body.Size
		if body.Complete {
			body.SHA256 = known.SHA256
		}
		body.Passed = max(body.Size, known.Passed)
		if body.Missing = known.Missing; body.Missing == "" && body.Passed > body.Size {
			body.Missing = fmt.Sprintf("captured to byte %d: %s", body.Size, ended)
		}
		whole = whole && body.Size == known.Size
		*known = body
		for _, r := range good {
			if !slices.ContainsFunc(body.Extents, func(e Extent) bool { return string(e.Chunk) == string(r.sum) }) {
				continue
			}
			rec := &record{kind: recordNamed, named: named{
				ID: o.id, Side: side, Offset: r.mark.Offset,
				Extent: Extent{Length: r.mark.Length, Chunk: r.sum}, Incoming: r.mark.Incoming,
			}}
			s.appendValue(rec, rec.named)
			*files = append(*files, r)
		}
	}
	if !whole {
		session.State, session.Error = Interrupted, why
	}
	return session, nil
}

func (s *Store) hasSlot(id slotID) bool {
	return s.index.view(func(tx *bbolt.Tx) error {
		_, err := findSlot(tx, id)
		return err
	}) == nil
}

// assemble puts a body together from what the log tells of it and the incoming files' good prefixes: its first bytes, up to the first gap.
func assemble(b *openBody, good []recovered) Body {
	var body Body
	from := func(at uint64) (Extent, bool) {
		var best Extent
		for _, r := range good {
			if r.mark.Offset == at && r.mark.Length > best.Length {
				best = Extent{Length: r.mark.Length, Chunk: r.sum}
			}
		}
		inLog := uint64(0)
		for _, e := range b.extents { // pieces that were moved to the file, and of which it may prove less
			if e.Offset == at+inLog && (at == 0 && e.Offset < smallBody || inLog == 0) {
				inLog += e.Extent.Length
			}
		}
		if best.Length > 0 && best.Length >= inLog {
			return best, true
		}
		for _, e := range b.extents {
			if e.Offset == at {
				return e.Extent, e.Extent.Length > 0 // logs of older versions name empty files
			}
		}
		return Extent{}, false
	}
	for e, ok := from(0); ok; e, ok = from(body.Size) {
		body.Extents = append(body.Extents, e)
		body.Size += e.Length
	}
	return body
}

// goodIncoming checks the incoming files that the body's marks speak of, and cuts each to the longest prefix that a mark proves.
func (s *Store) goodIncoming(b *openBody, leftover map[uint64]bool) (good []recovered, err error) {
	for i := 0; i < len(b.marks); {
		j := i
		for j < len(b.marks) && b.marks[j].Mark.Incoming == b.marks[i].Mark.Incoming {
			j++
		}
		if leftover[b.marks[i].Mark.Incoming] {
			r, err := s.verifyMarks(b.marks[i:j])
			if err != nil {
				return nil, fmt.Errorf("recover incoming file %d: %w", b.marks[i].Mark.Incoming, err)
			}
			if r.mark.Length > 0 {
				good = append(good, r)
			}
		}
		i = j
	}
	return good, nil
}

// verifyMarks returns the last mark that the file's content matches, and the SHA-256 up to there. The file is cut to it.
func (s *Store) verifyMarks(marks []openMark) (r recovered, err error) {
	f, err := s.files.OpenFile(incomingName(marks[0].Mark.Incoming), os.O_RDWR)
	if err != nil {
		return r, err
	}
	defer f.Close()
	h, crc, at := sha256.New(), uint32(0), uint64(0)
	buf := NewLargeBuffer()
	defer buf.Free()
	for _, m := range marks {
		for at < m.Mark.Length {
			n, err := f.ReadAt(buf.B[:min(uint64(len(buf.B)), m.Mark.Length-at)], int64(at))
			if n == 0 {
				if err != nil && !errors.Is(err, io.EOF) {
					s.logger.Error("read incoming file", "error", err)
				}
				break
			}
			h.Write(buf.B[:n])
			crc = crc32.Update(crc, castagnoli, buf.B[:n])
			at += uint64(n)
		}
		if at != m.Mark.Length || crc != m.Mark.CRC {
			break
		}
		r = recovered{m.Mark, h.Sum(nil)}
	}
	if r.mark.Length == 0 {
		return r, nil
	}
	return r, f.Truncate(int64(r.mark.Length))
}

// sweep removes what nothing names: incoming files, segments, and after an unclean end also chunks and segments that a removal did not get to.
func (s *Store) sweep(clean bool) error {
	leftover, err := s.incomingFiles()
	if err != nil {
		return err
	}
	for number := range leftover {
		s.removeFile(incomingName(number))
	}
	gone, err := s.index.sweep(s.recent.mayRemove)
	if err != nil {
		return err
	}
	s.unlink(gone)
	if clean {
		return nil
	}
	if err := s.sweepLog(); err != nil {
		return err
	}
	return s.sweepChunks()
}

// sweepLog removes segments that were given up, and those that a crash kept from being unlinked once the index had let go of them:
// to a later rebuilding they would bring deleted sessions back. So it does with the files of a rewriting, finished or not, that the index does not name.
func (s *Store) sweepLog() error {
	known, err := s.index.generations()
	if err != nil {
		return err
	}
	spans, others, err := logFiles(s.files, known)
	if err != nil {
		return err
	}
	applied := s.index.snapshot().Applied.Segment
	for _, span := range spans {
		_, ok := known[span.number]
		if begun := span.number > applied && span.end == 0; !ok && (span.number < applied || begun) { // or about to be begun
			if _, _, err := readSegmentHead(s.files, span); err != nil && !begun && span.end > 0 {
				s.keepAside(span, err)
				continue
			}
			s.removeFile(span.file())
		}
	}
	for _, span := range others {
		s.removeFile(span.file())
	}
	entries, err := s.files.ReadDir("log")
	if err != nil {
		return fmt.Errorf("list log: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			s.removeFile("log/" + e.Name())
		}
	}
	return nil
}

// keepAside moves a segment of which nothing can be read out of the log, for whoever can.
func (s *Store) keepAside(span segmentSpan, damage error) {
	to := damagedDir + "/" + strings.ReplaceAll(span.file(), "/", "-")
	if err := s.files.Mkdir(damagedDir); err != nil && !errors.Is(err, fs.ErrExist) {
		s.logger.Error("keep damaged log segment aside", "error", err)
		return
	}
	if err := s.files.Rename(span.file(), to); err != nil {
		s.logger.Error("keep damaged log segment aside", "error", err)
		return
	}
	s.logger.Error("a log segment of which nothing can be read is kept aside", "as", to, "error", damage)
}

func (s *Store) sweepChunks() error {
	dirs, err := s.files.ReadDir("chunks")
	if err != nil {
		return fmt.Errorf("list chunks: %w", err)
	}
	var unknown []string
	for _, dir := range dirs {
		entries, err := s.files.ReadDir("chunks/" + dir.Name())
		if err != nil {
			return fmt.Errorf("list chunks: %w", err)
		}
		for _, e := range entries {
			if sum, err := hex.DecodeString(e.Name()); err != nil || len(sum) != sha256.Size || s.index.hasChunk(sum) {
				continue
			}
			unknown = append(unknown, "chunks/"+dir.Name()+"/"+e.Name())
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	missing := ""
	if err := s.index.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketChunks).Cursor()
		for k, _ := c.First(); k != nil && missing == ""; k, _ = c.Next() {
			if _, err := s.files.Stat(chunkName(k)); err != nil {
				missing = chunkName(k)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if missing != "" { // then it may be the index that is wrong
		s.logger.Error("chunks that nothing names are left, as one that is named is not there: millpond verify --repair finds out", "missing", missing, "left", len(unknown))
		return nil
	}
	for _, name := range unknown {
		s.removeFile(name)
	}
	return nil
}

// sweep takes segments out of the index that nothing names, also those that no record touched lately.
func (ix *index) sweep(mayRemove func(uint64) bool) (dropped, error) {
	var dead []uint64
	err := ix.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketSegments).ForEach(func(k, v []byte) error {
			var row segmentRow
			row.decode(v)
			if row.sealed && row.slots == 0 {
				dead = append(dead, idOf(k))
			}
			return nil
		})
	})
	if err != nil || len(dead) == 0 {
		return dropped{}, err
	}
	return ix.apply(nil, ix.snapshot().Applied, nil, mayRemove, dead...)
}
