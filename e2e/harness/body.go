// Package harness starts the real program and real origins for the whole-program tests and the benchmark, and talks to both.
package harness

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"
)

// Body is a body of any size that is never in memory: the same seed and size always give the same bytes, from any offset.
// No two seeds share a block, so that nothing is kept once for two of them.
type Body struct {
	Seed uint64
	Size int64

	block cipher.Block
}

// NewBody returns the body of size bytes that the seed stands for.
func NewBody(seed uint64, size int64) Body {
	var key [16]byte
	binary.BigEndian.PutUint64(key[:], seed)
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // only for a key of another length
	}
	return Body{Seed: seed, Size: size, block: block}
}

// ReadAt is io.ReaderAt. The bytes are the key stream of AES in counter mode, which is several times faster than they are relayed.
func (b Body) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.Size {
		return 0, io.EOF
	}
	var err error
	if rest := b.Size - off; int64(len(p)) > rest {
		p, err = p[:rest], io.EOF
	}
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[8:], uint64(off/aes.BlockSize))
	stream := cipher.NewCTR(b.block, counter[:])
	var skip [aes.BlockSize]byte
	into := skip[:off%aes.BlockSize]
	stream.XORKeyStream(into, into)
	clear(p)
	stream.XORKeyStream(p, p)
	return len(p), err
}

// Reader reads the body from its start.
func (b Body) Reader() *io.SectionReader { return io.NewSectionReader(b, 0, b.Size) }

// Range reads n bytes from off on.
func (b Body) Range(off, n int64) *io.SectionReader { return io.NewSectionReader(b, off, n) }

type digestKey struct {
	seed uint64
	size int64
}

var digests sync.Map // digestKey to string

// SHA256 returns the digest of the whole body in hexadecimal. It is computed once.
func (b Body) SHA256() string {
	key := digestKey{b.Seed, b.Size}
	if known, ok := digests.Load(key); ok {
		return known.(string)
	}
	digest, _, err := Digest(b.Reader())
	if err != nil {
		panic(err) // a Body cannot fail
	}
	digests.Store(key, digest)
	return digest
}

// Digest reads r to its end and returns the SHA-256 in hexadecimal and the number of bytes, also where reading ends with an error.
func Digest(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := Copy(h, r)
	return sum(h), n, err
}

// Copy copies with large reads and writes, so that the tests' ends are not what is slow.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	// Hiding ReadFrom and WriteTo keeps io.CopyBuffer from choosing small buffers of its own.
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func (b Body) String() string { return fmt.Sprintf("body %d of %d bytes", b.Seed, b.Size) }
