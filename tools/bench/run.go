package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Config sets how much is measured.
type Config struct {
	// Dir is a directory for databases and logs.
	Dir string
	// PGBin is the directory of initdb and postgres; empty searches for them.
	PGBin string
	// Rounds is the number of repetitions.
	Rounds int
	// Span is the duration of each load.
	Span time.Duration
	// Items and EffectItems are the sizes of the batches without and with calls.
	// Items is also the number of jobs in River's drain.
	Items, EffectItems int
	// LargeItems is the size of the large batch at the end; 0 omits it.
	LargeItems int
	// Only selects the steps with a matching name; nil selects all.
	Only *regexp.Regexp
	// Progress receives the name of each step before it runs.
	Progress io.Writer
	Log      *slog.Logger
}

// bench measures one build of the service, on a PostgreSQL server of its own.
type bench struct {
	Config
	program string
	db      *database
	service *service
	tenant  *tenant
	bureau  *bureau
	record

	signers int // number of signers so far
}

// Run measures the programs by turns and returns one report each. It fails if the
// settings of the database allow it to lose commits, or if an acknowledged result cannot be read
// back.
func Run(ctx context.Context, config Config, programs []string) (reports []*Report, err error) {
	if err := os.Chmod(config.Dir, 0o755); err != nil { // #nosec G302 -- PostgreSQL may run as another user
		return nil, err
	}
	var all []*bench
	for i, program := range programs {
		b := &bench{Config: config, program: program}
		b.Dir = filepath.Join(config.Dir, fmt.Sprint(i))
		if err := os.Mkdir(b.Dir, 0o755); err != nil { // #nosec G301 -- likewise
			return nil, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		if err := b.open(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		all = append(all, b)
	}
	if err := measureAll(ctx, config, all); err != nil {
		return nil, err
	}
	for _, b := range all {
		reports = append(reports, b.report())
	}
	return reports, nil
}

// open starts the database, the bureau and the service.
func (b *bench) open(ctx context.Context) (err error) {
	if b.db, err = openDatabase(ctx, b.Dir, b.Config); err != nil {
		return err
	}
	if b.bureau, err = startBureau(ctx); err != nil {
		return fmt.Errorf("start the bureau: %w", err)
	}
	if err := b.measureStart(ctx, b.Dir); err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	if b.tenant, err = b.newTenant(ctx, "bench"); err != nil {
		return fmt.Errorf("create a tenant: %w", err)
	}
	return nil
}

func (b *bench) close() (err error) {
	if b.service != nil {
		err = b.service.stop()
	}
	if b.bureau != nil {
		err = errors.Join(err, b.bureau.close())
	}
	if b.db != nil {
		err = errors.Join(err, b.db.close())
	}
	return err
}

// step is one measurement.
type step struct {
	name    string
	measure func(*bench, context.Context) error
}

// measureAll measures the idle service, then the rounds, and finally the steps that
// need no repetition.
func measureAll(ctx context.Context, config Config, all []*bench) error {
	all = slices.Clone(all)
	if err := measureSteps(ctx, config, "before", all, []step{{"idle service", (*bench).measureIdle}}); err != nil {
		return err
	}
	for round := range config.Rounds {
		if err := measureSteps(ctx, config, fmt.Sprintf("round %d of %d", round+1, config.Rounds), all, roundSteps()); err != nil {
			return err
		}
		slices.Reverse(all) // the first of a pair gains or loses by its place
	}
	return measureSteps(ctx, config, "after", all, []step{
		{"lists", (*bench).measureLists},
		{"a small batch during a large one", (*bench).measureSmallBatch},
		{"a neighbour's batch", (*bench).measureNeighbour},
	})
}

// roundSteps has each limit of the database next to the measurement that is compared
// with it.
func roundSteps() []step {
	return []step{
		{"disk", (*bench).measureDisk},
		{"insert, 1 client", (*bench).measureInsertAlone},
		{"synchronous, 1 connection", (*bench).measureSyncAlone},
		{"synchronous with a call, 1 connection", (*bench).measureCallAlone},
		{"insert, call, insert", (*bench).measureInsertTwice},
		{"asynchronous, 1 connection", (*bench).measureAsyncAlone},
		{"insert, 32 clients", (*bench).measureInsertMany},
		{"insert, by pgbench", (*bench).measurePgbench},
		{"synchronous, 32 connections", (*bench).measureSyncMany},
		{"row and job, 32 clients", (*bench).measureJobMany},
		{"synchronous with a call, 32 connections", (*bench).measureCallMany},
		{"asynchronous, 32 connections", (*bench).measureAsyncMany},
		{"copy", (*bench).measureCopy},
		{"River's drain", (*bench).measureDrain},
		{"batch without effects", (*bench).measureBatch},
		{"batch with a call an item", (*bench).measureEffectBatch},
		{"token endpoint", (*bench).measureTokens},
		{"one-time passwords", (*bench).measureAttempts},
	}
}

// measureSteps runs each step for every build before the next step.
func measureSteps(ctx context.Context, config Config, when string, all []*bench, steps []step) error {
	for _, s := range steps {
		if config.Only != nil && !config.Only.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(config.Progress, "%s: %s\n", when, s.name)
		for _, b := range all {
			if err := s.measure(b, ctx); err != nil {
				return fmt.Errorf("%s: %s: %w", b.program, s.name, err)
			}
		}
	}
	return nil
}
