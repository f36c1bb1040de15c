package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize    = 4 << 20         // a chunk's longest; bodies are cut at its multiples, so that equal large bodies have equal chunks
	smallBody    = 256 << 10       // a body up to this stays in the log
	recentBody   = 64 << 10        // a body up to this is looked up among recent ones
	markInterval = 512 << 10       // bytes of an incoming file between marks. A SIGKILL can cost a body that and what a worker had not written: 1 MiB in all
	tellInterval = time.Second     // how long bytes of a slow body may stay without a mark
	syncInterval = 5 * time.Second // and without a sync: what a power cut can cost a body
)

// incoming is a file that takes the bytes of one body between two multiples of chunkSize. Full, or at the body's end, it becomes a chunk.
type incoming struct {
	number uint64
	rec    *Recording
	side   Side
	start  uint64 // of the body

	file   File // by the worker until it is sealed, then by the committer
	sha    hash.Hash
	marked uint64
	ragged bool // a write failed, and may have left bytes beyond length

	// under rec.mu
	length uint64
	crc    uint32 // of the length bytes
	chunk  []byte // the name it has as a chunk, once it has
	sealed bool
	told   uint64 // the length that the last mark in the log has
	toldAt time.Time
	lost   bool // a sync failed
	synced time.Time

	// by the committer
	sum       []byte // SHA-256 of the whole file
	named     bool   // it was moved, or found to be a duplicate
	duplicate bool   // the chunk was there
}

func incomingName(number uint64) string { return fmt.Sprintf("incoming/%d", number) }

// chunkName is a chunk's file in the data directory.
func chunkName(sum []byte) string {
	name := hex.EncodeToString(sum)
	return "chunks/" + name[:2] + "/" + name
}

// newIncoming makes the file for what follows the first start bytes of a body.
func (s *Store) newIncoming(r *Recording, side Side, start uint64) (*incoming, error) {
	if err := s.gone(); err != nil {
		return nil, err
	}
	in := &incoming{number: s.incomingNumber.Add(1), rec: r, side: side, start: start, sha: sha256.New(), synced: s.now(), toldAt: s.now()}
	f, err := s.files.OpenFile(incomingName(in.number), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("make incoming file: %w", err)
	}
	in.file = f
	s.incomings.add(in)
	return in, nil
}

// write appends p, which fits, and returns the length and checksum it has now. It is the worker's.
func (in *incoming) write(p []byte) (length uint64, crc uint32, err error) {
	if _, err := in.file.WriteAt(p, int64(in.length)); err != nil {
		in.ragged = true
		return 0, 0, fmt.Errorf("write incoming file: %w", err)
	}
	in.sha.Write(p)
	return in.length + uint64(len(p)), crc32.Update(in.crc, castagnoli, p), nil
}

// sync makes the file durable, at its length.
func (in *incoming) sync() error {
	if in.ragged {
		if err := in.file.Truncate(int64(in.length)); err != nil {
			return err
		}
	}
	return in.file.Sync()
}

// room is how many bytes still fit.
func (in *incoming) room() int { return int(chunkSize - in.start%chunkSize - in.length) }

// record is a mark of the file as it is. rec.mu is held.
func (in *incoming) record() *record {
	return &record{kind: recordMark, mark: mark{
		ID: in.rec.id, Side: in.side, Offset: in.start, Incoming: in.number, Length: in.length, CRC: in.crc,
	}}
}

// incomings are the files that are being filled, and those that are full and wait for the committer.
type incomings struct {
	mu   sync.Mutex
	room *sync.Cond
	open map[*incoming]struct{}
	full []*incoming

	bytes atomic.Uint64 // of the files that are no chunks in the index yet

	limit int // fullLimit, but for tests
}

// fullLimit is how many full files may wait for the committer, each with a descriptor: 1 GiB that is not synced.
// Beyond that workers wait, and so do the relays behind them once their memory is used up. Each may be past the limit by what one recording held.
const fullLimit = 256

func newIncomings() *incomings {
	l := &incomings{open: make(map[*incoming]struct{}), limit: fullLimit}
	l.room = sync.NewCond(&l.mu)
	return l
}

func (l *incomings) add(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[in] = struct{}{}
}

// await blocks while too many full files wait for the committer. The committer, which writes for recordings too, must not call it.
func (l *incomings) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.full) >= l.limit {
		l.room.Wait()
	}
}

// seal hands a file to the committer.
func (l *incomings) seal(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, in)
	l.full = append(l.full, in)
}

// drop forgets a file that is given up.
func (l *incomings) drop(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, in)
}

// count returns how many files are full, and how many are being filled.
func (l *incomings) count() (full, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.full), len(l.open)
}

// opened returns the files that are being filled.
func (l *incomings) opened() (open []*incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for in := range l.open {
		open = append(open, in)
	}
	return open
}

// take returns the full files, and those that are being filled.
func (l *incomings) take() (full, open []*incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, l.full = l.full, nil
	l.room.Broadcast()
	for in := range l.open {
		open = append(open, in)
	}
	return full, open
}
