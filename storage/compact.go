package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"millpond/migrations"
)

// Files of a compaction of the index: the copy is made beside it, the index moves aside, the copy to its name, and the former index goes. settleIndex knows
// each state in between.
const (
	indexCompact = "index.db.compact"
	indexOld     = "index.db.old"
)

const (
	compactAbove = 512 << 10 // bytes; a smaller index, which grows by half of that, is not worth compacting at a stop
	compactBatch = 8 << 20   // bytes that a transaction of the copy holds in memory
)

// Compacted is what compacting did: sizes in bytes of the index's file, and of the log's.
type Compacted struct{ Before, After, LogBefore, LogAfter uint64 }

// CompactPlan is what compacting takes at most, in bytes: Need of the disk beside what is there, until it is done. Size is the index's.
type CompactPlan struct{ Size, Need, Free uint64 }

// Compact gives back what the store in dir, which no process may have open (else ErrLocked), holds and does not use. plan is told first, before anything
// changes; where the disk has not enough, that is the error. The process may be killed at any time: nothing is lost.
func Compact(ctx context.Context, dir string, logger *slog.Logger, plan func(CompactPlan)) (Compacted, error) {
	fail := func(err error) (Compacted, error) { return Compacted{}, fmt.Errorf("compact %s: %w", dir, err) }
	p, err := planCompact(dir)
	if err != nil {
		return fail(err)
	}
	plan(p)
	if err := p.check(); err != nil {
		return fail(err)
	}
	s, err := OpenStore(Config{Dir: dir, Logger: logger})
	if err != nil {
		return fail(err)
	}
	var done Compacted
	before, _ := s.use() // figures to show
	cleaned := s.CleanLog(ctx)
	after, _ := s.use()
	err = s.close(func() error {
		if err := s.index.close(); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		done, err = compactIndex(ctx, s.files, s.dir)
		return err
	})
	if err := errors.Join(cleaned, err); err != nil {
		return fail(err)
	}
	done.LogBefore, done.LogAfter = before.log, after.log
	return done, nil
}

// CloseCompacting is Close, and compacts the index before it lets go of the directory where more than half of its file is unused and the disk has room. That
// ends, without having done anything, with ctx.
func (s *Store) CloseCompacting(ctx context.Context) error {
	return s.close(func() error {
		worth := s.index.mostlyUnused()
		err := s.index.close()
		if err != nil || !worth || ctx.Err() != nil {
			return err
		}
		done, err := compactIndex(ctx, s.files, s.dir)
		switch {
		case err == nil:
			s.logger.Info("the index was compacted", "from", done.Before, "to", done.After)
		case ctx.Err() != nil:
			s.logger.Info("the index was not compacted in time; millpond compact does it")
		default:
			s.logger.Warn("compact index", "error", err)
		}
		return nil
	})
}

// mostlyUnused reports whether the index is to be compacted when the store is closed.
func (ix *index) mostlyUnused() bool {
	if ix.damaged.Load() {
		return false
	}
	info, err := os.Stat(ix.path)
	if err != nil || info.Size() <= compactAbove {
		return false
	}
	used := uint64(0)
	err = ix.view(func(tx *bbolt.Tx) error {
		used = usedSize(tx)
		return nil
	})
	return err == nil && used < uint64(info.Size())/2
}

// usedSize is what the database would have without its free pages.
func usedSize(tx *bbolt.Tx) uint64 {
	stats := tx.DB().Stats()
	return uint64(tx.Size()) - uint64(stats.FreePageN+stats.PendingPageN)*uint64(tx.DB().Info().PageSize)
}

func (p CompactPlan) check() error {
	if p.Free < p.Need {
		return fmt.Errorf("up to %d MB are needed on the disk, and %d MB are free: make room first; nothing was changed", p.Need>>20+1, p.Free>>20)
	}
	return nil
}

// planCompact looks at a store that no process has open.
func planCompact(dir string) (p CompactPlan, err error) {
	if err := migrations.Current(dir, lockName); err != nil {
		return p, err
	}
	files, err := OpenDir(dir)
	if err != nil {
		return p, err
	}
	defer files.Close()
	lock, err := lockDir(dir)
	if err != nil {
		return p, err
	}
	defer lock.release()
	return planIndex(files, filepath.Join(dir, presentIndex(files)))
}

func planIndex(files Files, name string) (p CompactPlan, err error) {
	if p.Free, _, err = files.Space(); err != nil {
		return p, err
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil // it is made when the store is opened
	}
	if err != nil {
		return p, err
	}
	p.Size = uint64(info.Size())
	used := p.Size // where it cannot be read
	_ = viewClosed(name, func(tx *bbolt.Tx) error {
		used = usedSize(tx)
		return nil
	})
	p.Need = used + used/4 + 4<<20 + segmentSize // full pages get some room, and the copy's own are written several times; of the log, one segment at a time
	return p, nil
}

// viewClosed runs fn in a transaction of an index that nobody has open.
func viewClosed(name string, fn func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverDamage(&err)
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, FreelistType: bbolt.FreelistMapType, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	defer db.Close()
	return db.View(fn)
}

// compactIndex puts a copy of the index without its unused pages in its place. Nobody has it open, and this process holds the directory.
func compactIndex(ctx context.Context, files Files, dir string) (done Compacted, err error) {
	p, err := planIndex(files, filepath.Join(dir, indexName))
	if err != nil {
		return done, fmt.Errorf("compact index: %w", err)
	}
	done.Before = p.Size
	if err = p.check(); err == nil {
		err = copyIndex(ctx, files, dir)
	}
	if err != nil {
		_ = files.Remove(indexCompact)
		return done, fmt.Errorf("compact index: %w", err)
	}
	if done.After, err = replaceByCopy(files); err != nil {
		return done, fmt.Errorf("compact index: %w", err)
	}
	return done, nil
}

// replaceByCopy moves the copy to the index's name. The index is moved aside first: no file is renamed over another.
func replaceByCopy(files Files) (size uint64, err error) {
	for _, move := range [][2]string{{indexName, indexOld}, {indexCompact, indexName}} {
		if err := files.Rename(move[0], move[1]); err != nil {
			return 0, err
		}
		if err := files.SyncDir("."); err != nil {
			return 0, err
		}
	}
	info, err := files.Stat(indexName)
	if err != nil {
		return 0, err
	}
	if err := files.Remove(indexOld); err != nil {
		return 0, err
	}
	return uint64(info.Size()), files.SyncDir(".")
}

// copyIndex writes the index's copy, durable on return, and compares the two.
func copyIndex(ctx context.Context, files Files, dir string) error {
	if err := files.Remove(indexCompact); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to := filepath.Join(dir, indexCompact)
	var keys map[string]int
	var size int64
	err := viewClosed(filepath.Join(dir, indexName), func(from *bbolt.Tx) error {
		db, err := bbolt.Open(to, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType, Timeout: time.Second})
		if err != nil {
			return err
		}
		db.AllocSize = growBy(0)
		keys, err = copyBuckets(ctx, db, from)
		if err == nil {
			err = db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
		}
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return err
	}
	f, err := files.OpenFile(indexCompact, os.O_RDWR)
	if err != nil {
		return err
	}
	err = f.Truncate(size) // bbolt makes files longer than they need to be
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return viewClosed(to, func(tx *bbolt.Tx) error {
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if n := b.Stats().KeyN; n != keys[string(name)] {
				return fmt.Errorf("the copy has %d entries in %s, want %d", n, name, keys[string(name)])
			}
			delete(keys, string(name))
			return nil
		})
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("the copy has %d buckets less", len(keys))
		}
		return err
	})
}

// copyBuckets copies every bucket, in transactions of a bounded size, and returns how many keys each has.
func copyBuckets(ctx context.Context, to *bbolt.DB, from *bbolt.Tx) (keys map[string]int, err error) {
	keys = make(map[string]int)
	tx, err := to.Begin(true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	size := 0
	err = from.ForEach(func(name []byte, b *bbolt.Bucket) error {
		into, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		into.FillPercent = fillPercent
		keys[string(name)] = 0
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return fmt.Errorf("bucket %s holds a bucket", name)
			}
			if size += len(k) + len(v); size > compactBatch {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := tx.Commit(); err != nil {
					return err
				}
				next, err := to.Begin(true)
				if err != nil {
					return err
				}
				tx, into, size = next, next.Bucket(name), len(k)+len(v)
				into.FillPercent = fillPercent
			}
			keys[string(name)]++
			return into.Put(k, v)
		})
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return keys, tx.Commit()
}

// presentIndex is the index's file in the data directory, also where a compaction was broken off in between.
func presentIndex(files Files) string {
	if _, err := files.Stat(indexName); errors.Is(err, fs.ErrNotExist) {
		if _, err := files.Stat(indexOld); err == nil {
			return indexOld
		}
	}
	return indexName
}

// settleIndex ends a compaction that was broken off: with the index that has the name, or else with the former one.
func settleIndex(files Files) error {
	old := presentIndex(files) == indexOld
	if old {
		if err := files.Rename(indexOld, indexName); err != nil {
			return fmt.Errorf("take back the index from before it was compacted: %w", err)
		}
		if err := files.SyncDir("."); err != nil {
			return fmt.Errorf("sync data directory: %w", err)
		}
	}
	for _, name := range []string{indexOld, indexCompact} {
		if err := files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // an old one that stays might be taken back later
			return fmt.Errorf("remove %s of a compaction that was broken off: %w", name, err)
		}
	}
	return nil
}
