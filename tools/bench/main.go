// Command bench measures the service next to the limit of its own database. It starts
// a PostgreSQL server with default durability and the service as a separate process,
// measures both alternately in several rounds, and reports medians, spread and ratios
// (docs/performance.md explains them). It calls the service over HTTP as any client
// does, and reads back every acknowledged result.
//
//	go run ./tools/bench                       # measures ./cmd/tranche
//	go run ./tools/bench --tranche OLD --versus NEW
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tranche/internal/logging"
)

// commandLine measures one build of the service, or several by turns.
type commandLine struct {
	Tranche    string         `name:"tranche" placeholder:"PATH" help:"Program of the service. By default, ./cmd/tranche is built."`
	Versus     []string       `name:"versus" placeholder:"PATH" help:"Another build of the service, measured by turns with the first; may be repeated."`
	Quick      bool           `name:"quick" help:"Take two minutes: fewer rounds, shorter loads, smaller batches."`
	Rounds     int            `name:"rounds" placeholder:"N" help:"Number of rounds (5, or 3 with --quick)."`
	LargeItems int            `name:"large-items" placeholder:"N" help:"Run one batch of N items at the end, 1000000 for example."`
	Only       *regexp.Regexp `name:"only" placeholder:"REGEXP" help:"Measure only the steps whose name matches."`
	JSON       string         `name:"json" placeholder:"FILE" help:"Also write the figures to this file."`
	PGBin      string         `name:"pg-bin" env:"TRANCHE_PG_BIN" placeholder:"DIR" help:"Directory of initdb and postgres. By default they are searched for, then downloaded."`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == bureauArgument {
		if err := runBureau(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	parsed := kong.Parse(&commandLine{}, kong.Name("bench"), kong.Description(
		"Measures the limits of PostgreSQL on this machine and the service, by turns in several rounds. Prints "+
			"medians, spread and ratios next to their targets. It starts its own PostgreSQL server and leaves nothing behind. Needs Linux."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.FatalIfErrorf(parsed.Run())
}

// Run measures and prints.
func (c *commandLine) Run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "tranche-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if c.Tranche == "" {
		if c.Tranche, err = build(ctx, dir); err != nil {
			return err
		}
	}
	config := Config{
		Dir: dir, PGBin: c.PGBin, LargeItems: c.LargeItems, Only: c.Only, Progress: os.Stderr, Log: logging.New(os.Stderr, slog.LevelInfo),
		Rounds: 5, Span: 3 * time.Second, Items: 100_000, EffectItems: 50_000,
	}
	if c.Quick {
		config.Rounds, config.Span, config.Items, config.EffectItems = 3, time.Second, 20_000, 10_000
	}
	if c.Rounds > 0 {
		config.Rounds = c.Rounds
	}
	reports, err := Run(ctx, config, append([]string{c.Tranche}, c.Versus...))
	if err != nil {
		return err
	}
	if c.JSON != "" {
		if err := writeJSON(c.JSON, reports); err != nil {
			return err
		}
	}
	for _, report := range reports {
		if err := report.Print(os.Stdout); err != nil {
			return err
		}
	}
	if err := printComparison(os.Stdout, reports); err != nil {
		return err
	}
	if missed := reports[0].missed(); missed > 0 {
		return fmt.Errorf("%d targets were missed", missed)
	}
	return nil
}

// build builds the service of this module and returns the path of the program.
func build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "tranche")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", program, "tranche/cmd/tranche").CombinedOutput() // #nosec G204 -- a path of its own
	if err != nil {
		return "", fmt.Errorf("build the service: %w: %s", err, output)
	}
	return program, nil
}

// writeJSON writes the report, or a list of the reports of several builds.
func writeJSON(path string, reports []*Report) error {
	var value any = reports
	if len(reports) == 1 {
		value = reports[0]
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) // #nosec G306 -- public figures
}
