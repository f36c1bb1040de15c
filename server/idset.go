package server

import (
	"math/bits"
	"slices"
)

// idSet is an ordered set of session ids that knows its members by position. It is a bit for each id in the blocks that have a member, so a million
// sessions in a row are 130 KiB, whatever part of them is in the set. The zero value is empty.
type idSet struct {
	blocks []*idBlock // by rising number, none empty
	n      int
}

const blockBits = 12 // ids in a block: 4,096

type idBlock struct {
	number uint64 // id >> blockBits
	count  int
	words  [1 << blockBits / 64]uint64
}

func (s *idSet) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.blocks, id>>blockBits, func(b *idBlock, number uint64) int {
		switch {
		case b.number < number:
			return -1
		case b.number > number:
			return 1
		}
		return 0
	})
}

// place returns the word and the bit of an id within its block.
func place(id uint64) (word int, bit uint64) {
	in := id & (1<<blockBits - 1)
	return int(in / 64), 1 << (in % 64)
}

func (s *idSet) has(id uint64) bool {
	i, ok := s.find(id)
	word, bit := place(id)
	return ok && s.blocks[i].words[word]&bit != 0
}

// add reports whether the id was not there.
func (s *idSet) add(id uint64) bool {
	i, ok := s.find(id)
	if !ok {
		s.blocks = slices.Insert(s.blocks, i, &idBlock{number: id >> blockBits})
	}
	b := s.blocks[i]
	word, bit := place(id)
	if b.words[word]&bit != 0 {
		return false
	}
	b.words[word] |= bit
	b.count++
	s.n++
	return true
}

// remove reports whether the id was there.
func (s *idSet) remove(id uint64) bool {
	i, ok := s.find(id)
	word, bit := place(id)
	if !ok || s.blocks[i].words[word]&bit == 0 {
		return false
	}
	b := s.blocks[i]
	b.words[word] &^= bit
	b.count--
	s.n--
	if b.count == 0 {
		s.blocks = slices.Delete(s.blocks, i, i+1)
	}
	return true
}

// below returns how many members are lower than id.
func (s *idSet) below(id uint64) int {
	n := 0
	for _, b := range s.blocks {
		switch {
		case b.number < id>>blockBits:
			n += b.count
			continue
		case b.number == id>>blockBits:
			word, bit := place(id)
			for _, w := range b.words[:word] {
				n += bits.OnesCount64(w)
			}
			n += bits.OnesCount64(b.words[word] & (bit - 1))
		}
		break
	}
	return n
}

// slice returns the members at positions from to from+count-1, in rising order; fewer at the end.
func (s *idSet) slice(from, count int) []uint64 {
	if from < 0 || from >= s.n || count <= 0 {
		return nil
	}
	ids := make([]uint64, 0, min(count, s.n-from))
	for _, b := range s.blocks {
		if from >= b.count {
			from -= b.count
			continue
		}
		for i, w := range b.words {
			if n := bits.OnesCount64(w); from >= n {
				from -= n
				continue
			}
			for ; w != 0; w &= w - 1 {
				if from > 0 {
					from--
					continue
				}
				ids = append(ids, b.number<<blockBits|uint64(i*64+bits.TrailingZeros64(w)))
				if len(ids) == cap(ids) {
					return ids
				}
			}
		}
	}
	return ids
}
