// Package storage keeps captured sessions and their bodies: an append-only log of records and small bodies, chunk files for large
// bodies, and a bbolt index that can be made again from the log.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"millpond/migrations"
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
	Logger   *slog.Logger // nil: no logs
	Files    Files        // nil: the disk
	Now      func() time.Time

	still bool // no segment is rewritten: for tests that compare what is on disk
}

// formatVersion is the version of the stored format, which each segment's head names.
const formatVersion = 2

// reserve is how many ids are taken from the log at a time, so that none is given twice, whatever a crash makes forgotten.
const reserve = 10_000

// Store keeps sessions and their bodies.
type Store struct {
	dir    string
	files  Files
	lock   *dirLock
	logger *slog.Logger
	now    func() time.Time

	log     *log
	index   *index
	handles *handles
	room    room
	slow    SlowDisk
	budget  *budget
	crowd   crowd
	feeds   feeds
	recent  *recent

	retention *retention

	chains  sync.Mutex // held while a Chain is looked for and appended
	derived *derived
	live    live
	hold    hold
	backups backups

	cleaning    *cleaning
	cleaners    sync.WaitGroup
	endCleaning context.CancelFunc

	ready     *recordings   // for the workers
	noted     *recordings   // for the writer
	wrote     chan struct{} // has a value when the writer has left something to commit
	incomings *incomings
	workers   sync.WaitGroup
	digests   chan digestJob
	upkeep    sync.WaitGroup // digester, retainer and preread
	endUpkeep context.CancelFunc
	gaps      bool // in the log, from which records are lost; known of what was replayed
	unclean   bool // the process before did not close the store, or its index was damaged
	closing   chan struct{}
	ended     chan struct{} // the committer has
	closed    atomic.Bool

	controlled atomic.Bool // there is a control file
	format     fs.FileInfo // of the format file, as it was found; nil: not yet
	dirGone    atomic.Bool // see gone

	incomingNumber atomic.Uint64
	reserved       atomic.Uint64
	cutoff         atomic.Uint64
	trouble        atomic.Pointer[string] // why capture does not work
	waiting        atomic.Int64           // bytes held of sessions that ended and are not in the index yet
	troubleTold    atomic.Int64           // when the log last told of it, ns since 1970
	unkept         atomic.Uint64          // sessions that there was no room for, in memory or on disk, since capture last worked

	setting      sync.Mutex // held while a setting is read or put
	amending     sync.Mutex // held from the reading of an ended record to the commit of the new one, and while one is deleted
	committing   sync.Mutex // held for a commit; below is the committer's
	chunksToName []*incoming
	fresh        map[string]bool // chunks named since the index last took records
	toApply      []*record
	damage       error    // why the index is to be set aside and made again, until an empty one is in its place
	aside        string   // where it is then
	rebuildTo    position // up to where a partial index is to be made again
	dead         []uint64 // segments of which nothing is live, to look at again: a session that was not in the index yet named them
	rebuilt      bool     // the index was made again since the start: what it let go of meanwhile is not removed
	leftOver     bool     // an update of the index failed: what it let go of may lie about
	tail         position // from here on its segment does not count: the log was given up there; zero for nowhere

	lookedThrough bool // the index was, since a reader met damage
}

// OpenStore opens or makes the store in cfg.Dir, recovering what a former process left open.
// A directory that another process holds is ErrLocked, which names the holder.
func OpenStore(cfg Config) (*Store, error) {
	s, err := openStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	for range storageWorkers {
		s.workers.Go(s.worker)
	}
	written := make(chan struct{})
	go s.writer(s.closing, written)
	go s.committer(written, s.ended)
	ctx, cancel := context.WithCancel(context.Background())
	s.endUpkeep = cancel
	below := uint64(0)
	if s.unclean {
		below = s.live.newest() + 1
	}
	s.upkeep.Go(func() { s.digester(ctx, below) })
	s.upkeep.Go(func() { s.retainer(ctx) })
	if !s.unclean && !s.index.isSmall() { // else it was just looked through
		s.upkeep.Go(func() { s.index.preread(ctx.Done()) })
	}
	cleaning, endCleaning := context.WithCancel(context.Background())
	s.endCleaning = endCleaning
	if !cfg.still {
		s.cleaners.Go(func() { s.cleaner(cleaning) })
	}
	return s, nil
}

func openStore(cfg Config) (_ *Store, err error) {
	s := &Store{
		files: cfg.Files, logger: cfg.Logger, now: cfg.Now, slow: cfg.SlowDisk, budget: newBudget(cfg.SlowDisk),
		ready: newRecordings(), noted: newRecordings(), incomings: newIncomings(), recent: newRecent(), retention: newRetention(),
		live: live{byID: make(map[uint64]*Recording)}, fresh: make(map[string]bool),
		closing: make(chan struct{}), ended: make(chan struct{}), wrote: make(chan struct{}, 1),
		digests: make(chan digestJob, digestQueue), cleaning: newCleaning(), backups: backups{stop: make(chan struct{})},
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	if s.files == nil {
		if s.files, err = OpenDir(s.dir); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := migrations.Check(s.dir, lockName); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(s.dir); err != nil {
		return nil, err
	}
	if err := settleIndex(s.files); err != nil {
		return nil, err
	}
	if err := s.makingRoom(func() error { return migrations.Migrate(s.dir, s.logger, lockName) }); err != nil {
		return nil, err
	}
	for _, dir := range []string{"log", "chunks", "incoming"} {
		if err := s.files.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make %s directory: %w", dir, err)
		}
	}
	if s.derived, err = newDerived(s.files, derivedTotal); err != nil {
		return nil, err
	}
	if err := s.files.SyncDir("."); err != nil {
		return nil, fmt.Errorf("sync data directory: %w", err)
	}
	if s.format, err = s.files.Stat("format"); err != nil {
		return nil, fmt.Errorf("look at format of data: %w", err)
	}
	s.handles = newHandles(s.files)
	s.room.files = s.files
	s.log = s.newLog()
	if err := s.makingRoom(s.openIndex); err != nil {
		return nil, err
	}
	if err := s.makingRoom(s.recover); err != nil {
		return nil, err
	}
	s.index.met = s.readerMetDamage
	s.makeBallast()
	s.room.isTight(0) // so that a disk that is full already is told before a body is refused
	return s, nil
}

func (s *Store) newLog() *log {
	return &log{files: s.files, limit: segmentSize, head: s.segmentHead, gone: s.gone}
}

// segmentHead says what the next segment's head carries from those before. The log's lock is held.
func (s *Store) segmentHead() segmentHead {
	return segmentHead{Version: formatVersion, Reserved: s.reserved.Load(), Cutoff: s.cutoff.Load()}
}

// release lets go of everything that is open.
func (s *Store) release() error {
	var errs []error
	if s.derived != nil {
		s.derived.close()
	}
	if s.log != nil {
		errs = append(errs, s.log.close())
	}
	if s.handles != nil {
		s.handles.close()
	}
	if s.index != nil {
		errs = append(errs, s.index.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(append(errs, s.files.Close())...)
}

// Close ends open recordings as Interrupted, commits, and lets go of the directory.
func (s *Store) Close() error { return s.close(nil) }

// close is Close that gives compact, where it is not nil and all went well, the last word before the directory is let go of; the index is closed then.
func (s *Store) close(compact func() error) error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.controlled.Load() {
		if err := s.files.Remove(controlName); err != nil {
			s.logger.Warn("remove control file", "error", err)
		}
	}
	close(s.backups.stop)
	s.backups.running.Lock() // none begins any more
	s.endUpkeep()
	s.endCleaning()
	s.upkeep.Wait()
	s.cleaners.Wait()
	for _, r := range s.live.all() {
		r.End(Interrupted, "Millpond was stopped")
	}
	s.ready.close()
	s.workers.Wait()
	close(s.closing)
	<-s.ended
	err := s.finalCommit()
	if err == nil && compact != nil {
		err = compact()
	}
	if releaseErr := s.release(); err == nil {
		err = releaseErr
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// finalCommit notes that nothing is left over, and that the ids not given are free.
func (s *Store) finalCommit() error {
	if len(s.live.all()) > 0 {
		return fmt.Errorf("%d sessions could not be kept: %s", len(s.live.all()), s.Status().Problem)
	}
	clean := !s.rebuilt && !s.leftOver && !s.index.damaged.Load() // else the next start looks through everything
	if s.log.end() == (position{}) {
		return s.index.change(func(state *indexState) { state.Clean, state.Reserved = clean, s.live.newest() })
	}
	rec := &record{kind: recordReserved, ids: reservation{Through: s.live.newest(), Cutoff: s.cutoff.Load()}}
	s.appendValue(rec, rec.ids)
	if err := s.commit(); err != nil {
		return err
	}
	return s.index.setClean(clean)
}

// troublePause is how long the log says nothing of a trouble that goes on with other words.
const troublePause = 10 * time.Second

// problem notes why capture does not work.
func (s *Store) problem(err error) {
	if gone := s.gone(); gone != nil {
		err = gone
	}
	text := reason(err)
	s.crowd.disperse() // waiting would not help
	old, now := s.trouble.Swap(&text), time.Now().UnixNano()
	if old == nil || *old != text && now-s.troubleTold.Load() > int64(troublePause) { // each try may name another file
		s.troubleTold.Store(now)
		s.logger.Error("keep sessions", "error", err)
	}
	if diskFull(err) {
		s.derived.dropIdle() // it can be made again
	}
}

// solved notes that capture works, unless there is no room for bodies.
func (s *Store) solved() {
	if s.trouble.Load() != nil && s.room.isFull() {
		return
	}
	trouble, unkept := s.trouble.Swap(nil), s.unkept.Swap(0)
	if trouble != nil || unkept > 0 {
		s.logger.Info("sessions are kept again", "not kept", unkept)
		s.makeBallast()
	}
}

// Subscribe returns a feed of changed session ids.
func (s *Store) Subscribe() *Feed { return s.feeds.subscribe() }
