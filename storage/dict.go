package storage

import (
	"encoding/binary"
	"sync"

	"go.etcd.io/bbolt"
)

const (
	wordLimit  = 1 << 17 // words kept; later ones are spelled out in each row
	wordLength = 255     // bytes; a longer one is spelled out
)

// dictionary numbers the words that many rows share (hosts, content types, clients), so that a row names each in three bytes.
// Number 0 is no word. It is held in memory whole: at most wordLimit words.
type dictionary struct {
	mu    sync.RWMutex
	words []string // by number, less one
	ids   map[string]uint32
}

func (d *dictionary) load(b *bbolt.Bucket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.words, d.ids = nil, make(map[string]uint32)
	return b.ForEach(func(_, v []byte) error {
		d.words = append(d.words, string(v))
		d.ids[string(v)] = uint32(len(d.words))
		return nil
	})
}

// id returns the word's number, giving it one in b where it has none. ok is false where the word is to be spelled out.
func (d *dictionary) id(b *bbolt.Bucket, word string) (id uint32, ok bool, err error) {
	if word == "" {
		return 0, true, nil
	}
	d.mu.RLock()
	id, ok = d.ids[word]
	n := len(d.words)
	d.mu.RUnlock()
	if ok {
		return id, true, nil
	}
	if len(word) > wordLength || n >= wordLimit {
		return 0, false, nil
	}
	id = uint32(n + 1)
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], id)
	b.FillPercent = fillPercent
	if err := b.Put(key[:], []byte(word)); err != nil {
		return 0, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.words = append(d.words, word)
	d.ids[word] = id
	return id, true, nil
}

// words are the words of a dictionary at some moment, by number, less one.
type words []string

// snapshot returns the words so far. Words are only ever added, so they need no lock.
func (d *dictionary) snapshot() words {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.words[:len(d.words):len(d.words)]
}

// word returns the word of a number, of which the lower three bytes count.
func (w words) word(id uint32) string {
	if i := int(id&wordMask) - 1; uint(i) < uint(len(w)) {
		return w[i]
	}
	return ""
}
