package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
)

const (
	settingsDir = "settings"
	// maxSetting bounds a setting's record, in bytes: a thousand entries for each list, and some client certificates.
	maxSetting = 16 << 20
)

// PutSetting keeps a setting's record, durable on return. It is a file NAME.N of its own, of mode 0600, so that it outlives the index; N counts up, because a
// file is never renamed over another. name is a word of letters.
func (s *Store) PutSetting(name string, record []byte) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	err := s.putSetting(name, record)
	if diskFull(err) {
		s.committing.Lock()
		way := s.makeWay(err)
		s.committing.Unlock()
		if way {
			err = s.putSetting(name, record)
		}
	}
	if err != nil {
		return fmt.Errorf("put setting %s: %w", name, err)
	}
	return nil
}

func (s *Store) putSetting(name string, record []byte) error {
	if len(record) > maxSetting {
		return fmt.Errorf("it has %d bytes; %d are the most", len(record), maxSetting)
	}
	if err := s.files.Mkdir(settingsDir); err == nil {
		err = s.files.SyncDir(".")
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	older, err := settingNumbers(s.files, name)
	if err != nil {
		return err
	}
	fresh := path.Join(settingsDir, "new")
	if err := s.files.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.writeSetting(fresh, record); err != nil {
		return err
	}
	number := uint64(1)
	if len(older) > 0 {
		number = older[len(older)-1] + 1
	}
	if err := s.files.Rename(fresh, settingFile(name, number)); err != nil {
		return err
	}
	if err := s.files.SyncDir(settingsDir); err != nil {
		return err
	}
	for _, n := range older {
		if err := s.files.Remove(settingFile(name, n)); err != nil {
			s.logger.Warn("remove an older setting", "name", name, "error", err) // the newest counts all the same
		}
	}
	return nil
}

func (s *Store) writeSetting(file string, record []byte) error {
	f, err := s.files.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(record)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Setting returns a setting's record; nil where none was put.
func (s *Store) Setting(name string) (record []byte, err error) {
	s.setting.Lock()
	defer s.setting.Unlock()
	record, file, err := newestSetting(s.files, name)
	if err == nil && file == "" {
		record, err = s.indexedSetting(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read setting %s: %w", name, err)
	}
	return record, nil
}

// StoppedSetting returns the record of a setting in the data directory dir, and the path of the file that holds it. Both are empty where there is no such file.
func StoppedSetting(dir, name string) (record []byte, file string, err error) {
	files, err := OpenDir(dir)
	if err != nil {
		return nil, "", err
	}
	defer files.Close()
	record, file, err = newestSetting(files, name)
	if file != "" {
		file = filepath.Join(dir, filepath.FromSlash(file))
	}
	return record, file, err
}

// SettingFile returns the path of the file that holds a setting's record, for people.
func (s *Store) SettingFile(name string) string {
	file := indexName // in the index alone
	if numbers, _ := settingNumbers(s.files, name); len(numbers) > 0 {
		file = settingFile(name, numbers[len(numbers)-1])
	}
	return filepath.Join(s.dir, filepath.FromSlash(file))
}

// newestSetting reads the file of a setting that counts. file is empty where there is none.
func newestSetting(files Files, name string) (record []byte, file string, err error) {
	numbers, err := settingNumbers(files, name)
	if err != nil || len(numbers) == 0 {
		return nil, "", err
	}
	file = settingFile(name, numbers[len(numbers)-1])
	record, err = readSetting(files, file)
	return record, file, err
}

func readSetting(files Files, file string) ([]byte, error) {
	f, err := files.OpenFile(file, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSetting {
		return nil, fmt.Errorf("%s has %d bytes; %d are the most", file, size, maxSetting)
	}
	record := make([]byte, size)
	if n, err := f.ReadAt(record, 0); n < len(record) {
		return nil, err
	}
	return record, nil
}

// indexedSetting returns a record of a data directory whose settings are in the index alone: they move out of it when they are next put.
func (s *Store) indexedSetting(name string) (record []byte, err error) {
	err = s.index.view(func(tx *bbolt.Tx) error {
		record = slices.Clone(tx.Bucket(bucketSettings).Get([]byte(name)))
		return nil
	})
	return record, err
}

// settingNumbers returns the numbers of a setting's files, rising. There are several only where the process ended, or a removal failed, in between.
func settingNumbers(files Files, name string) (numbers []uint64, err error) {
	entries, err := files.ReadDir(settingsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), name+"."); ok {
			if n, err := strconv.ParseUint(text, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

func settingFile(name string, number uint64) string {
	return path.Join(settingsDir, name+"."+strconv.FormatUint(number, 10))
}
