// Millpond is a capture proxy with a web dashboard. `millpond --help` tells the rest.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/alecthomas/kong"

	"millpond/server"
)

// version is what the program calls itself.
const version = "0.1.0"

// commandLine is every command and flag.
type commandLine struct {
	Data dataDir `env:"MILLPOND_DATA" default:"${data}" placeholder:"DIR" help:"Where everything is kept."`

	Serve       serveCommand       `cmd:"" default:"withargs" help:"Capture, and serve the dashboard. What runs where no command is named."`
	Verify      verifyCommand      `cmd:"" help:"Read a data directory that no Millpond serves, and report what does not hold; with --repair, mend it."`
	Backup      backupCommand      `cmd:"" help:"Copy the data directory, also while a Millpond runs in it, into one that can be served, verified and kept."`
	Compact     compactCommand     `cmd:"" help:"Give back the room on disk that a data directory no Millpond serves holds and does not use."`
	CA          caCommand          `cmd:"" name:"ca" help:"Print the CA certificate that devices install, making it where there is none."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Healthcheck healthcheckCommand `cmd:"" hidden:"" help:"Ask a running dashboard whether it is well; for containers."`
	OpenAPI     openAPICommand     `cmd:"" name:"openapi" hidden:"" help:"Print the API's OpenAPI document."`
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "millpond: %v\n", err)
		os.Exit(1)
	}
}

// run does what the arguments say. Logs and help about mistakes go to errOut.
func run(args []string, out, errOut io.Writer) error {
	var line commandLine
	parser, err := kong.New(&line,
		kong.Name("millpond"),
		kong.Description("A capture proxy with a web dashboard: see every HTTP session, with bodies of any size, live and kept. Without a command it serves: `millpond serve --help` lists the flags."),
		kong.Vars{"data": defaultData()},
		emptyItems,
		kong.Writers(out, errOut),
	)
	if err != nil {
		return err
	}
	dropEmpty()
	command, err := parser.Parse(args)
	if err != nil {
		return fmt.Errorf("%w\nsee %s", err, helpOf(err))
	}
	return command.Run(&line, &streams{out, errOut})
}

// helpOf is the command line of the help on what could not be read: all the flags of serve are too many to print with an error.
func helpOf(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context.Selected() != nil {
		return "millpond " + wrong.Context.Selected().Name + " --help"
	}
	return "millpond serve --help"
}

// streams are where a command prints.
type streams struct{ out, err io.Writer }

// defaultData is the millpond directory below the user's data directory, by the system's convention.
func defaultData() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "millpond-data" // a user without a home: beside where it was started
	}
	base := os.Getenv("XDG_DATA_HOME")
	switch {
	case runtime.GOOS == "windows" && os.Getenv("LocalAppData") != "":
		base = os.Getenv("LocalAppData")
	case runtime.GOOS == "darwin":
		base = filepath.Join(home, "Library", "Application Support")
	case !filepath.IsAbs(base):
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "millpond")
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(s *streams) error {
	_, err := fmt.Fprintf(s.out, "millpond %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

type openAPICommand struct{}

// Run prints the document that web/openapi.json holds.
func (openAPICommand) Run(s *streams) error {
	doc, err := server.OpenAPI()
	if err != nil {
		return err
	}
	_, err = s.out.Write(doc)
	return err
}
