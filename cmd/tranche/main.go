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
	exitError = 1 // the command failed
	exitUsage = 2 // the command line or the environment is wrong
)

func main() {
	stdlog.SetOutput(io.Discard) // net/http writes bytes of other servers' responses to it
	limitMemory()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// commandLine declares all commands and flags, with their environment variables,
// defaults and help.
type commandLine struct {
	LogLevel slog.Level `name:"log-level" env:"TRANCHE_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Lowest level of the messages logged to stderr: debug, info, warn or error."`

	Demo     demoCommand      `cmd:"" help:"Show the service at work. Needs no setup."`
	Serve    serveCommand     `cmd:"" help:"Run the service."`
	Migrate  migrateCommand   `cmd:"" help:"Migrate the database to the schema of this program."`
	Tenant   tenantCommands   `cmd:"" help:"Create, list and revoke tenants, and set their rate limits."`
	Client   clientCommands   `cmd:"" help:"Create, list and revoke API clients, and rotate their secrets."`
	Key      keyCommands      `cmd:"" help:"Rotate the keys that sign access tokens, and reseal confidential values with a new master key."`
	Audit    auditCommand     `cmd:"" help:"Show the audit trail and the denied requests."`
	Evidence evidenceCommands `cmd:"" help:"Verify the evidence of consents."`
	Version  versionCommand   `cmd:"" help:"Print the version of the program."`
}

// console holds the outputs of a command: Out for results, Err for everything else.
type console struct {
	Out io.Writer
	Err io.Writer
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	dataDir, err := embedded.DefaultDir()
	if err != nil {
		dataDir = "" // package embedded then asks for --data-dir
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

// newParser returns a parser that fills line.
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
		fmt.Fprintf(stderr, "tranche: %s\nRun tranche --help, or tranche COMMAND --help, for usage.\n", err)
		return status
	}
	fmt.Fprintf(stderr, "tranche: %s\n", explain(err))
	return status
}

// explain returns the text of an error for the operator: the message of a fault if the
// operator can correct it, else the whole chain of causes.
func explain(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal && f.Kind != fault.Unavailable {
		return f.Message
	}
	return err.Error()
}
