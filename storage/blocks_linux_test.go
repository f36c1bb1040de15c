package storage

import (
	"context"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
)

// blocksOf returns the bytes of the disk's blocks that the files of a directory take.
func blocksOf(t *testing.T, dir string) (n uint64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += 512 * uint64(info.Sys().(*syscall.Stat_t).Blocks)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBlocksForEachByte records bodies that do not repeat, of sizes between two bounds (each doubling as frequent as the next), deletes two of three, and compares
// what the disk gives to the log and the chunks with the bytes of bodies that are left: after the cleaning that goes on by itself, and after a whole one.
func TestBlocksForEachByte(t *testing.T) {
	for name, sizes := range map[string]struct{ least, most float64 }{"8 KiB to 256 KiB": {8 << 10, 256 << 10}, "256 KiB to 16 MiB": {256<<10 + 1, 16 << 20}, "8 KiB to 16 MiB": {8 << 10, 16 << 20}} {
		t.Run(name, func(t *testing.T) {
			total := 300 << 20
			if testing.Short() {
				total = 30 << 20
			}
			dir := t.TempDir()
			s := openTest(t, dir)
			s.log.mu.Lock()
			s.log.limit /= 16 // so that most segments are closed ones
			s.log.mu.Unlock()
			random := rand.New(rand.NewPCG(7, 7))
			var kept uint64
			var gone []uint64
			for i := 0; total > 0; i++ {
				size := int(sizes.least * math.Pow(sizes.most/sizes.least, random.Float64()))
				r := s.Begin(Session{Method: "GET", Host: "example.com"})
				give(r.Body(Response), noise(r.ID(), size))
				r.Body(Response).Complete()
				r.End(Done, "")
				total -= size
				if i%3 == 0 {
					kept += uint64(size)
				} else {
					gone = append(gone, r.ID())
				}
			}
			waitDurable(t, s)
			if n, err := s.Delete(context.Background(), gone); n != len(gone) || err != nil {
				t.Fatalf("deleted %d of %d, %v", n, len(gone), err)
			}
			waitDurable(t, s)
			waitCleaned(t, s)
			perByte := func() float64 {
				return float64(blocksOf(t, filepath.Join(dir, "log"))+blocksOf(t, filepath.Join(dir, "chunks"))) / float64(kept)
			}
			byItself := perByte()
			if err := s.CleanLog(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			whole := perByte()
			t.Logf("%d KiB of bodies: %.3f bytes of blocks for each after the cleaning by itself, %.3f after a whole one", kept>>10, byItself, whole)
			open := 1 + float64(4<<20)/float64(kept) // the segment that is written to is not cleaned
			if byItself > 2*open || whole > 1.03*open {
				t.Error("that is too much")
			}
		})
	}
}
