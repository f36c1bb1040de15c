package storage

// This file is the outline the other packages are built against. Each declaration moves to the file that builds it.

import "io"

// Derive returns another representation of a body from the derived cache, making it in the background where it is not there.
// The name says which (side and representation, "response.decoded"). The reader grows while it is made, and Err says how the making ended.
// make must write to w only; w refuses bytes beyond limit with ErrDerivedLimit.
func (s *Store) Derive(id uint64, name string, limit int64, make func(w io.Writer) error) (*DerivedReader, error) {
	panic("outline")
}

// DerivedReader is a BodyReader over a derived file.
type DerivedReader struct{ BodyReader }

func (d *DerivedReader) Err() error { panic("outline") } // nil while it is being made or when it was made whole
