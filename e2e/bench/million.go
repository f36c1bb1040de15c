package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func runMillion(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("million", flag.ExitOnError)
	dir := flags.String("dir", filepath.Join(os.TempDir(), "millpond-million"), "where the sessions are made, and kept for the next run")
	sessions := flags.Int("sessions", 1_000_000, "how many sessions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := fill(ctx, *dir, *sessions)
	fmt.Fprintf(out, "%+v\n", f)
	return err
}
