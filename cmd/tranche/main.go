// Command tranche is the service and its operator's tools. Each subcommand has a file
// of its own. This package knows the configuration but not the domain; package
// internal/server wires the domain.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/logging"
	"tranche/internal/postgres/embedded"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1 // the command was understood and failed
	exitUsage = 2 // the command line or the environment is wrong
)

func main() {
	stdlog.SetOutput(io.Discard) // net/http writes bytes of other servers' responses to it
	limitMemory()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// commandLine is everything that can be said to the program: flags, the
// environment variables that stand for them, defaults and help.
type commandLine struct {
	LogLevel slog.Level `name:"log-level" env:"TRANCHE_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Least level of what is logged to stderr: debug, info, warn or error."`

	Demo     demoCommand      `cmd:"" help:"Show everything at work, with nothing to set up."`
	Serve    serveCommand     `cmd:"" help:"Run the service."`
	Migrate  migrateCommand   `cmd:"" help:"Bring the database to the schema of this program."`
	Tenant   tenantCommands   `cmd:"" help:"Create and revoke tenants, and set their limits."`
	Client   clientCommands   `cmd:"" help:"Create, list and revoke the clients that call the API, and rotate their secrets."`
	Key      keyCommands      `cmd:"" help:"Rotate the keys that sign access tokens, and seal what is kept under a new master key."`
	Audit    auditCommand     `cmd:"" help:"Show who did what, and which requests were refused."`
	Evidence evidenceCommands `cmd:"" help:"Verify the evidence of consents."`
	Version  versionCommand   `cmd:"" help:"Show which build of the program this is."`
}

// console is where commands write: results to Out, everything else to Err.
type console struct {
	Out io.Writer
	Err io.Writer
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	dataDir, err := embedded.DefaultDir()
	if err != nil {
		dataDir = "" // then --data-dir is needed, and the own server says so
	}
	parser, err := newParser(&line, dataDir, kong.Writers(stdout, stderr))
	if err != nil {
		return fail(stderr, err, exitUsage)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return fail(stderr, err, exitUsage)
	}
	parsed.BindTo(audit.WithOrigin(ctx, audit.Operator, ""), (*context.Context)(nil))
	parsed.Bind(logging.New(stderr, line.LogLevel))
	if err := parsed.Run(&console{Out: stdout, Err: stderr}); err != nil {
		return fail(stderr, err, exitError)
	}
	return exitOK
}

// newParser returns what reads a command line into line.
func newParser(line *commandLine, dataDir string, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(line, append(options,
		kong.Name("tranche"),
		kong.Description("Tranche runs lending workflows: for one borrower or for a million, on demand or on schedule."),
		kong.Vars{"data_dir": dataDir, "demo_data_dir": demoDataDir(dataDir)},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)...)
}

func fail(stderr io.Writer, err error, status int) int {
	if status == exitUsage {
		fmt.Fprintf(stderr, "tranche: %s\nRun tranche --help, or tranche COMMAND --help, to see what there is.\n", err)
		return status
	}
	fmt.Fprintf(stderr, "tranche: %s\n", explain(err))
	return status
}

// explain is the text of an error for the operator: what a fault says where it
// says all there is to know, else the whole chain of causes.
func explain(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal && f.Kind != fault.Unavailable {
		return f.Message
	}
	return err.Error()
}
