package settings

import (
	"fmt"
	"io"
	"os"
)

// ReadFile reads a file of at most that many bytes, and no more of one that has no end.
func ReadFile(name string, most int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > most {
		return nil, fmt.Errorf("%s is too large: %d bytes are the most", name, most)
	}
	return data, nil
}
