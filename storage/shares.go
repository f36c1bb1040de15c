package storage

import (
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/bbolt"
)

// PutShare keeps the server's record of a share, durable on return.
func (s *Store) PutShare(id string, record []byte) error {
	err := s.updateShares(func(b *bbolt.Bucket) error { return b.Put([]byte(id), record) })
	if err != nil {
		return fmt.Errorf("put share: %w", err)
	}
	return nil
}

// Share returns the record of a share. An unknown id is fs.ErrNotExist.
func (s *Store) Share(id string) (record []byte, err error) {
	err = s.index.view(func(tx *bbolt.Tx) error {
		record = slices.Clone(tx.Bucket(bucketShares).Get([]byte(id)))
		if record == nil {
			return fs.ErrNotExist
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read share: %w", err)
	}
	return record, nil
}

// Shares returns the records of all shares, by id.
func (s *Store) Shares() (map[string][]byte, error) {
	all := make(map[string][]byte)
	err := s.index.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketShares).ForEach(func(k, v []byte) error {
			all[string(k)] = slices.Clone(v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read shares: %w", err)
	}
	return all, nil
}

// DeleteShare forgets a share, for good on return. An unknown id is no error.
func (s *Store) DeleteShare(id string) error {
	err := s.updateShares(func(b *bbolt.Bucket) error { return b.Delete([]byte(id)) })
	if err != nil {
		return fmt.Errorf("delete share: %w", err)
	}
	return nil
}

// updateShares keeps the committer out: after a failed update it opens the database anew.
func (s *Store) updateShares(fn func(*bbolt.Bucket) error) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	return s.index.update(func(tx *bbolt.Tx) error { return fn(tx.Bucket(bucketShares)) })
}
