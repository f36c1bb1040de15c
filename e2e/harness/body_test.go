package harness

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

func TestBodyReadsTheSameFromAnyOffset(t *testing.T) {
	b := NewBody(7, 1_000)
	whole, err := io.ReadAll(b.Reader())
	if err != nil || len(whole) != 1_000 {
		t.Fatalf("read %d bytes, %v", len(whole), err)
	}
	for _, off := range []int64{0, 1, 15, 16, 17, 500, 999} {
		part, err := io.ReadAll(b.Range(off, b.Size-off))
		if err != nil || !bytes.Equal(part, whole[off:]) {
			t.Errorf("from %d: differs, %v", off, err)
		}
	}
	if err := iotest.TestReader(b.Reader(), whole); err != nil {
		t.Error(err)
	}
	other, _ := io.ReadAll(NewBody(8, 1_000).Reader())
	if bytes.Equal(whole, other) {
		t.Error("two seeds give the same body")
	}
}

func BenchmarkBody(b *testing.B) {
	b.SetBytes(256 << 10)
	body := NewBody(1, 1<<40)
	p := make([]byte, 256<<10)
	for i := 0; b.Loop(); i++ {
		_, _ = body.ReadAt(p, int64(i)<<18)
	}
}
