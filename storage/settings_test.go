package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func checkSetting(t *testing.T, s *Store, want string) {
	t.Helper()
	if got, err := s.Setting("out"); err != nil || string(got) != want {
		t.Errorf("the setting is %q, %v; want %q", got, err, want)
	}
}

// TestSettingsOutliveTheIndex loses the index in two ways. Settings are there all the same; that shares are not is told.
func TestSettingsOutliveTheIndex(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"deleted": os.Remove,
		"zeroed meta pages": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 2*os.Getpagesize()), 0)
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			ids := fillMarked(t, s)
			for _, record := range []string{"first", "second"} {
				if err := s.PutSetting("out", []byte(record)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := lose(s.index.path); err != nil {
				t.Fatal(err)
			}
			s, logs := openLogged(t, s.dir)
			checkMarked(t, s, ids)
			checkSetting(t, s, "second")
			checkShares(t, s, nil)
			if !strings.Contains(logs.String(), "level=ERROR") || !strings.Contains(logs.String(), "shares are lost") {
				t.Errorf("logged %s", logs)
			}
		})
	}
}

// A new data directory has lost nothing.
func TestNewIndexLosesNothing(t *testing.T) {
	if _, logs := openLogged(t, t.TempDir()); logs.Len() > 0 {
		t.Errorf("logged %s", logs)
	}
}

// TestSettingFiles has one file for a setting, which its owner alone reads, whatever a process that ended in between left.
func TestSettingFiles(t *testing.T) {
	s := openTest(t, t.TempDir())
	checkSetting(t, s, "")
	dir := filepath.Join(s.dir, settingsDir)
	for _, record := range []string{"first", "second"} {
		if err := s.PutSetting("out", []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	for name, left := range map[string]string{"out.1": "older", "new": "tor"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkSetting(t, s, "second")
	if err := s.PutSetting("out", []byte("third")); err != nil {
		t.Fatal(err)
	}
	checkSetting(t, s, "third")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "out.3" {
		t.Fatalf("got %v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || runtime.GOOS != "windows" && info.Mode() != fs.FileMode(0o600) {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	if err := s.PutSetting("out", make([]byte, maxSetting+1)); err == nil {
		t.Error("a record beyond the limit is taken")
	}
	checkSetting(t, s, "third")
}
