package storage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"millpond/storage"
)

// TestDamagedSmallBodyIsNotServed: bytes of the log that its checksum does not prove are no body, and get no digest.
func TestDamagedSmallBodyIsNotServed(t *testing.T) {
	s, _, dir := openFaulty(t, storage.Wait)
	body, other := bytesOf(1, 9000), bytesOf(2, 9000)
	r, sound := record(s, body), record(s, other)
	eventually(t, "they are durable", durable(s, sound.ID()))
	name := filepath.Join(dir, "log", "000001")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, body)
	if at < 0 {
		t.Fatal("the body is not in the log")
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{b[at+100] ^ 1}, int64(at+100)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Body(r.ID(), storage.Response); err == nil {
		got.Close()
		t.Error("a damaged body is opened")
	}
	if session, err := s.Session(r.ID()); err != nil || session.Sides[storage.Response].Body.SHA256 != nil {
		t.Errorf("it has a digest, %v", err)
	}
	checkRead(t, s, sound.ID(), other)
}
