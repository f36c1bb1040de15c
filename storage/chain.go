package storage

import (
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/bbolt"
)

// Chain is the certificates that an upstream server showed, DER, its own first. All sessions of a connection share one. The log has it once for all sessions
// whose chains are equal, as it has small bodies that repeat: the first appends it with its own record, and it goes with the last. See chainReach for how long.
type Chain struct {
	certificates [][]byte
	key          recentKey
	at           place // where it was last found: there it need not be compared again. Store.chains guards it
}

// chainLimit bounds what is kept of a chain, in bytes. Common ones are 2 to 6 KB; crypto/tls takes up to 256 KiB.
const chainLimit = recentBody

// chainReach is from how many segments back a chain is named; then it is appended again. A few KB in each 128 MB of log are less than the segments
// that chains of common servers would keep from being removed.
const chainReach = 8

// Chain makes a Chain of certificates, which stay unchanged. Of a chain longer than 64 KiB the first certificates are kept. It is nil where there are none.
func (s *Store) Chain(certificates [][]byte) *Chain {
	size := 0
	for i, c := range certificates {
		if size += len(c); size > chainLimit {
			certificates = certificates[:i]
			break
		}
	}
	if len(certificates) == 0 {
		return nil
	}
	c := &Chain{certificates: certificates, key: s.recent.key(certificates)}
	c.key.hash = ^c.key.hash // a body of the same bytes is another record
	return c
}

// keepChain notes on the recording where the log has its chain, appending it where the log does not have it at hand. The recording keeps its segment until the
// index knows the session. r.mu is held.
func (s *Store) keepChain(r *Recording) {
	t := r.session.TLS
	if t == nil || t.Chain == nil || r.session.Certificates != nil {
		return
	}
	c := t.Chain
	s.chains.Lock() // sessions that end at once must not all append it
	defer s.chains.Unlock()
	var at place
	found, ok := s.recent.find(c.key)
	if ok && found[0] != c.at {
		s.recent.unpin(segmentsOf(found))
		found, ok = s.findRecent(c.key, c.certificates)
	}
	if ok && s.log.gaveUp(found[0]) {
		s.recent.unpin(segmentsOf(found))
		ok = false
	}
	if ok {
		at = found[0] // a chain is one record
	}
	if ok && at.Segment+chainReach < s.log.end().Segment {
		s.recent.unpin([]uint64{at.Segment})
		ok = false
	}
	if !ok {
		at = s.log.append(&record{kind: recordChain, rec: r}, c.certificates...)
		s.recent.add(c.key, at)
		_, ok = s.recent.find(c.key)
	}
	if ok {
		r.pinned = append(r.pinned, at.Segment)
	}
	c.at, r.chainAt = at, at
	r.session.Certificates = &Extent{Length: uint64(at.length), Segment: at.Segment, Slot: at.Slot}
}

// Certificates returns the certificates that a session's upstream server showed, DER one after the other. An unknown id, and a session without any, is fs.ErrNotExist.
func (s *Store) Certificates(id uint64) ([]byte, error) {
	der, err := s.certificates(id)
	if err == nil && der == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read certificates of session %d: %w", id, err)
	}
	return der, nil
}

func (s *Store) certificates(id uint64) ([]byte, error) {
	if r := s.live.get(id); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t := r.session.TLS; !r.deleted && t != nil && t.Chain != nil {
			return slices.Concat(t.Chain.certificates...), nil
		}
		return nil, nil
	}
	var at place
	if err := s.stored(id, func(tx *bbolt.Tx, session *Session) (err error) {
		if e := session.Certificates; e != nil {
			at, err = findSlot(tx, slotID{e.Segment, e.Slot})
		}
		return err
	}); err != nil || at.length == 0 {
		return nil, err
	}
	der := make([]byte, at.length)
	n, err := s.readLog(der, at, 0)
	return der[:n], s.orDeleted(id, err)
}
