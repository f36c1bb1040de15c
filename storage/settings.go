package storage

import (
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// PutSetting keeps a setting's record, durable on return. Like shares, settings are in the index alone.
func (s *Store) PutSetting(name string, record []byte) error {
	s.committing.Lock() // it opens the database anew after a failed update
	defer s.committing.Unlock()
	err := s.index.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketSettings).Put([]byte(name), record) })
	if err != nil {
		return fmt.Errorf("put setting %s: %w", name, err)
	}
	return nil
}

// Setting returns a setting's record; nil where none was put.
func (s *Store) Setting(name string) (record []byte, err error) {
	err = s.index.view(func(tx *bbolt.Tx) error {
		record = slices.Clone(tx.Bucket(bucketSettings).Get([]byte(name)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read setting %s: %w", name, err)
	}
	return record, nil
}
