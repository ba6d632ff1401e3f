package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"tranche/internal/bench"
)

// benchCommand measures the program on this machine.
type benchCommand struct {
	Quick      bool           `name:"quick" env:"TRANCHE_BENCH_QUICK" help:"Take two minutes: fewer rounds, shorter loads, smaller batches."`
	LargeItems int            `name:"large-items" env:"TRANCHE_BENCH_LARGE_ITEMS" placeholder:"N" help:"Run one batch of so many items at the end, 1000000 for instance."`
	Only       *regexp.Regexp `name:"only" env:"TRANCHE_BENCH_ONLY" placeholder:"REGEXP" help:"Measure only the steps whose name matches."`
	JSON       string         `name:"json" env:"TRANCHE_BENCH_JSON" placeholder:"FILE" help:"Write the figures to this file too."`
	PGBin      string         `name:"pg-bin" env:"TRANCHE_PG_BIN" placeholder:"DIR" help:"Where initdb and postgres are. Without it they are looked for, then fetched."`
}

// Help is the long form of the command's help.
func (*benchCommand) Help() string {
	return "Starts a PostgreSQL server of its own with default durability, and the service as a process of its own; measures " +
		"what the database can do and what the service does with it, alternately in several rounds; prints medians, spread and " +
		"ratios beside their targets. Everything that was acknowledged is read back. DATABASE_URL is ignored, and nothing is left behind. " +
		"docs/performance.md explains the figures. Needs Linux."
}

// Run measures and prints.
func (c *benchCommand) Run(ctx context.Context, out *console, log *slog.Logger) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	config := bench.Config{
		Program: program, PGBin: c.PGBin, LargeItems: c.LargeItems, Only: c.Only, Progress: out.Err, Log: log,
		Rounds: 5, Span: 3 * time.Second, Items: 100_000, EffectItems: 50_000,
	}
	if c.Quick {
		config.Rounds, config.Span, config.Items, config.EffectItems = 3, time.Second, 20_000, 10_000
	}
	report, err := bench.Run(ctx, config)
	if err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.JSON, append(text, '\n'), 0o644); err != nil { // #nosec G306 -- figures that anybody may read
			return err
		}
	}
	if err := report.Print(out.Out); err != nil {
		return err
	}
	missed := 0
	for _, ratio := range report.Ratios {
		if !ratio.Held {
			missed++
		}
	}
	if missed > 0 {
		return errors.New(fmt.Sprint(missed, " targets were missed"))
	}
	return nil
}

// benchBureauCommand is what workflows call while bench measures.
type benchBureauCommand struct{}

// Run answers until the bench that started it ends.
func (benchBureauCommand) Run(ctx context.Context, out *console) error {
	return bench.RunBureau(ctx, os.Stdin, out.Out)
}
