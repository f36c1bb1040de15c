package main

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropCache writes out the files below dir and has the page cache forget them.
func dropCache(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	})
}

func blocksOf(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// parts are a process's resident size in bytes: at its peak, and now what is its own and what are pages of files.
type parts struct{ peak, anon, file int64 }

func residentParts(pid int) (s parts, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmHWM": &s.peak, "RssAnon": &s.anon, "RssFile": &s.file}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return s, err
		}
		*into = kib << 10
	}
	return s, nil
}

// written is how many bytes the process has caused to be written to disks.
func written(p *process) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// commits is how many transactions have been written to the index of a data directory: the newer of bbolt's two meta pages counts them.
func commits(dir string) uint64 {
	f, err := os.Open(filepath.Join(dir, "index.db"))
	if err != nil {
		return 0
	}
	defer f.Close()
	const head, txid = 16, 48 // of the page, and in the meta behind it
	var n uint64
	for page := range int64(2) {
		var b [8]byte
		if _, err := f.ReadAt(b[:], page*int64(os.Getpagesize())+head+txid); err == nil {
			n = max(n, binary.LittleEndian.Uint64(b[:]))
		}
	}
	return n
}
