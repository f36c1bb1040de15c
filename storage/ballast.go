package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	// ballastName is a file that only takes room on the disk. Where another program has filled the disk, a start or a commit that cannot write
	// removes it: what must be written down is small, and then sessions can be looked at, and deleted.
	ballastName = "ballast"

	// ballastSize is in bytes: the ends of some thousand sessions that were open, or some hundred pages of the index.
	ballastSize = 2 << 20
)

// makeBallast sees that there is ballast, where the disk has room for it. It is not synced: a power cut takes no more than its use.
func (s *Store) makeBallast() {
	if info, err := s.files.Stat(ballastName); err == nil && info.Size() == ballastSize || s.room.isTight(ballastSize) {
		return
	}
	if err := s.writeBallast(); err != nil {
		s.logger.Warn("make ballast", "error", err)
	}
}

func (s *Store) writeBallast() error {
	f, err := s.files.OpenFile(ballastName, os.O_CREATE|os.O_WRONLY)
	if err != nil {
		return err
	}
	b := make([]byte, ballastSize)
	_, err = rand.Read(b) // some file systems store zeros in no room at all
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	return errors.Join(err, f.Close())
}

// dropBallast gives the room back, and reports whether there was ballast.
func (s *Store) dropBallast() bool {
	err := s.files.Remove(ballastName)
	switch {
	case err == nil:
		s.logger.Warn("the disk is full: Millpond uses the room that it keeps for that")
	case !errors.Is(err, fs.ErrNotExist):
		s.logger.Error("remove ballast", "error", err)
	}
	return err == nil
}

// makeWay makes room for records on a disk that refused one with err: bodies take nothing more, what the log has of them in memory is given up, as it lies before
// the next record, and the ballast goes. It reports whether that may have made room. s.committing is held.
func (s *Store) makeWay(err error) bool {
	s.room.stop()
	s.problem(err)
	shed := s.log.holdsPieces()
	if shed {
		s.logFailed(err)
	}
	way := s.dropBallast() || shed
	s.room.judge()
	return way
}

// makingRoom does a step of the start. Where the disk is full for it, it is done again without the ballast.
func (s *Store) makingRoom(step func() error) error {
	err := step()
	if diskFull(err) && s.dropBallast() {
		err = step()
	}
	if diskFull(err) {
		free, _, _ := s.files.Space()
		return fmt.Errorf("%w: the disk of %s is full (%d KB are free): make some MB of room and start again", err, s.dir, free>>10)
	}
	return err
}
