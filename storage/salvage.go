package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// salvage copies from the index that was set aside what no log can make again: settings and shares. What cannot be read is lost, and that is told.
func (s *Store) salvage(aside string) {
	kept, err := readSettings(aside)
	if err == nil {
		err = s.index.update(func(tx *bbolt.Tx) error {
			for _, e := range kept {
				if err := tx.Bucket(e.bucket).Put(e.key, e.value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		s.logger.Error("shares are lost with the damaged index", "error", err)
		return
	}
	s.logger.Info("shares are kept from the damaged index", "shares and settings", len(kept))
}

// salvageLimit bounds the bytes that are kept from a damaged index: many thousands of shares.
const salvageLimit = 16 << 20

// setting is an entry of one of the buckets that are not made from the log.
type setting struct{ bucket, key, value []byte }

func readSettings(path string) (kept []setting, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverDamage(&err)
	if err := checkMetas(path); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open damaged index: %w", err)
	}
	defer db.Close()
	size := 0
	err = db.View(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketSettings, bucketShares} {
			bucket := tx.Bucket(name)
			if bucket == nil {
				return fmt.Errorf("read damaged index: no bucket %s", name)
			}
			if err := bucket.ForEach(func(k, v []byte) error {
				if size += len(k) + len(v); size > salvageLimit || len(k) == 0 {
					return fmt.Errorf("read damaged index: bucket %s holds what it cannot", name)
				}
				kept = append(kept, setting{name, slices.Clone(k), slices.Clone(v)})
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return kept, err
}

// checkMetas checks that both of bbolt's meta pages are whole. With one, bbolt opens the database as it was a transaction earlier: then a share that
// was revoked might work again.
func checkMetas(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read damaged index: %w", err)
	}
	defer f.Close()
	const (
		header = 16 // of a page
		length = 56 // of a meta before its checksum: FNV-1a, 64 bits. bbolt, internal/common/meta.go
	)
	for n := range int64(2) {
		var b [length + 8]byte
		var first [12]byte // magic, version, page size
		if _, err := f.ReadAt(first[:], header); err != nil {
			return fmt.Errorf("read damaged index: %w", err)
		}
		at := n*int64(binary.NativeEndian.Uint32(first[8:])) + header
		if _, err := f.ReadAt(b[:], at); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read damaged index: %w", err)
		}
		sum := fnv.New64a()
		sum.Write(b[:length])
		if sum.Sum64() != binary.NativeEndian.Uint64(b[length:]) {
			return fmt.Errorf("read damaged index: meta page %d is damaged", n)
		}
	}
	return nil
}
