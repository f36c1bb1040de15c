package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"millpond/server"
	"millpond/storage"
)

type backupCommand struct {
	Dir       string `arg:"" placeholder:"DIR" help:"Where the backup goes: a directory that is empty, or not there yet. It is a data directory then: --data DIR serves it."`
	WithoutCA bool   `name:"without-ca" help:"Leave out the certificate authority and its key. Without this, keep the backup as you keep a password: devices trust that key. Passwords and client certificates of the dashboard's settings are in it anyway."`
	Copy      bool   `help:"Copy everything. Without this, what never changes is linked where the file system can, which takes no room and shares the disk's blocks with the original: it is no help against a disk that fails."`
}

// Run backs up by itself, or has the Millpond do it that runs there.
func (c backupCommand) Run(line *commandLine, s *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.Dir == "" {
		return errors.New("the backup wants a directory, and its name is empty")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("find the backup's directory: %w", err)
	}
	show := showBackup(s.err)
	lacks := uint64(0)
	lack := func(problem string) {
		lacks++
		fmt.Fprintln(s.out, problem)
	}
	done, err := storage.BackupStopped(ctx, string(line.Data), storage.BackupTo{Dir: dir, WithoutCA: c.WithoutCA, Copy: c.Copy, Progress: show, Lacks: lack})
	if errors.Is(err, storage.ErrLocked) {
		done, err = c.ask(ctx, string(line.Data), dir, err, show, lack)
	}
	if ctx.Err() != nil {
		return errors.New("the backup was broken off; what it had made is removed")
	}
	if err != nil {
		return err
	}
	if lacks > 0 {
		return fmt.Errorf("%s: the backup is made of what there is, and is incomplete: %s in %s wrong; millpond verify --repair mends what can be", dir, counted(lacks, "thing"), string(line.Data))
	}
	_, err = fmt.Fprintf(s.out, "backed up %s to %s: %s copied, %s linked\n", counted(done.Sessions, "session"), dir, size(done.Copied), size(done.Linked))
	return err
}

// showBackup returns what prints how far a backup is.
func showBackup(out io.Writer) func(storage.BackupProgress) {
	told := uint64(0) // tenths
	return func(p storage.BackupProgress) {
		all := p.ToCopy + p.ToLink
		switch now := (p.Copied + p.Linked) * 10 / max(all, 1); {
		case p.Copied+p.Linked == 0:
			fmt.Fprintf(out, "%s to copy, %s to link\n", size(p.ToCopy), size(p.ToLink))
		case now > told && now < 10:
			told = now
			fmt.Fprintf(out, "%d %%\n", now*10)
		}
	}
}

// size is a number of bytes for people.
func size(n uint64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.1f KB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// ask has the Millpond that holds the data directory make the backup. locked is the error that names it.
func (c backupCommand) ask(ctx context.Context, data, dir string, locked error, show func(storage.BackupProgress), lack func(string)) (done storage.BackupProgress, err error) {
	control, err := storage.ReadControl(data)
	if errors.Is(err, storage.ErrNoControl) {
		return done, fmt.Errorf("%w: it takes no backup now: it is starting or stopping, another command, or an older Millpond; try again, or stop it first", locked)
	}
	if err != nil {
		return done, err
	}
	body, err := json.Marshal(server.BackupRequest{Dir: dir, WithoutCA: c.WithoutCA, Copy: c.Copy})
	if err != nil {
		return done, fmt.Errorf("ask for a backup: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+control.Address+"/api/backup", bytes.NewReader(body))
	if err != nil {
		return done, fmt.Errorf("ask for a backup: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+control.Secret)
	client := http.Client{Transport: &http.Transport{Proxy: nil}}
	answer, err := client.Do(req)
	if err != nil {
		return done, fmt.Errorf("%w: it does not answer (%w): run this where it runs, as in its container, or try again when it has started", locked, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var told server.Problem
		if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&told); err != nil || told.Detail == "" {
			return done, fmt.Errorf("%w: it answers %s", locked, answer.Status)
		}
		return done, errors.New(told.Detail)
	}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		var line server.BackupLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return done, fmt.Errorf("read what Millpond says of the backup: %w", err)
		}
		switch {
		case line.Error != "":
			return done, errors.New(line.Error)
		case line.Done:
			return line.BackupProgress, nil
		case line.Lacks != "":
			lack(line.Lacks)
		default:
			show(line.BackupProgress)
		}
	}
	return done, errors.New("the Millpond that made the backup ended before it was whole: nothing is there, or what is there is no data directory; try again")
}

type compactCommand struct{}

// Run compacts the log and the index, and says what that gave back.
func (compactCommand) Run(line *commandLine, s *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	done, err := storage.Compact(ctx, string(line.Data), log, func(p storage.CompactPlan) {
		fmt.Fprintf(s.err, "up to %s are needed on the disk until it is done; %s are free\n", size(p.Need), size(p.Free))
	})
	switch {
	case errors.Is(err, storage.ErrLocked):
		return fmt.Errorf("%w: stop that Millpond first; when it stops it compacts an index that is mostly unused by itself", err)
	case err != nil && ctx.Err() != nil:
		return errors.New("compacting was broken off; nothing is lost")
	case err != nil:
		return line.Data.unwritable(err)
	}
	_, err = fmt.Fprintf(s.out, "the index had %s and has %s, the log had %s and has %s\n", size(done.Before), size(done.After), size(done.LogBefore), size(done.LogAfter))
	return err
}
