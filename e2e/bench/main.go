// Bench measures Millpond beside its peers: the same loads through each, one after the other, on one machine.
//
// Origin, load client and each proxy are processes of their own, so that the resident size of each is its own
// and no garbage collector serves two of them. Bench is all of them but Millpond and mitmdump; its first argument says which.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"millpond/e2e/harness"
)

// roles are what a process of this program can be. Each says on standard output where it listens, and ends with its context.
var roles = map[string]func(ctx context.Context, args []string, out io.Writer) error{
	"origin":  runOrigin,
	"load":    runLoad,
	"martian": runMartian,
	"reverse": runReverse,
	"million": runMillion,
	"syncs":   runSyncs,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run, args := measure, os.Args[1:]
	if len(args) > 0 && roles[args[0]] != nil {
		run, args = roles[args[0]], args[1:]
	}
	if err := run(ctx, args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the whole benchmark.
func measure(ctx context.Context, args []string, out io.Writer) error {
	var r runner
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&r.millpond, "millpond", "bin/millpond", "the Millpond to measure")
	flags.StringVar(&r.dir, "dir", os.TempDir(), "where proxies keep what they capture; it needs room for the large body")
	flags.StringVar(&r.only, "only", "", "measure only these subjects, comma-separated: direct,martian,reverse,millpond,mitmdump")
	flags.StringVar(&r.protocols, "protocols", "http,https,http2", "measure only these protocols, comma-separated")
	flags.DurationVar(&r.time, "time", defaultTime, "how long each load of many requests lasts")
	flags.Int64Var(&r.size, "size", 1<<30, "bytes of the large body")
	flags.StringVar(&r.profile, "profile", "", "put processor profiles of Millpond into this directory, for go tool pprof")
	smoke := flags.Bool("smoke", false, "only see that everything runs: little of each, and every failure ends the run")
	leaves := flags.Bool("leaves", false, "measure only how long a new name's certificate takes, which else comes first")
	write := flags.String("write", "", "put the table into this Markdown file, between its marks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, everything := leafNames, r.only == ""
	if *smoke {
		names = smokeNames
		r.strict, r.time, r.size = true, smokeTime, smokeSize
		if r.only == "" {
			r.only = "direct,martian,reverse,millpond"
		}
	}
	put := func(name, text string) error {
		fmt.Fprintln(out, text)
		if *write == "" {
			return nil
		}
		return harness.Insert(*write, name, text)
	}
	if everything || *leaves {
		text, err := measureLeaves(ctx, names)
		if err == nil {
			err = put("leaves", text)
		}
		if err != nil || *leaves {
			return err
		}
	}
	report, err := r.run(ctx)
	if err != nil {
		return err
	}
	return put("figures", report.markdown())
}
