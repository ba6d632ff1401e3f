// Package bench measures the service beside the limit of its own database: it
// starts a PostgreSQL server with default durability and the service as a
// process of its own, measures both alternately in several rounds, and reports
// medians, spread and ratios (docs/performance.md says what they mean). It
// speaks to the service over HTTP as any caller does, and reads back what was
// acknowledged.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"time"
)

// Config says how much is measured.
type Config struct {
	// Program is the executable of the service.
	Program string
	// PGBin is where initdb and postgres are; empty looks for them.
	PGBin string
	// Rounds is how often everything is measured.
	Rounds int
	// Span is how long a load lasts.
	Span time.Duration
	// Items and EffectItems are the sizes of the batches without and with
	// effects; Items is also how many jobs River drains.
	Items, EffectItems int
	// LargeItems is the size of one large batch at the end; 0 leaves it out.
	LargeItems int
	// Only leaves out the steps whose name does not match; nil measures all.
	Only *regexp.Regexp
	// Progress is told what is being measured.
	Progress io.Writer
	Log      *slog.Logger
}

// bench is one run of everything.
type bench struct {
	Config
	db      *database
	service *service
	tenant  *tenant
	bureau  *bureau
	record

	signers int // that were sent a code
}

// Run measures everything. It fails rather than reports where the database does
// not keep what it commits, or where something that was acknowledged cannot be
// read back.
func Run(ctx context.Context, config Config) (_ *Report, err error) {
	dir, err := os.MkdirTemp("", "tranche-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- the server's own user must pass
		return nil, err
	}
	b := &bench{Config: config}
	if b.db, err = openDatabase(ctx, dir, config); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.db.close()) }()
	if b.bureau, err = startBureau(ctx, config.Program); err != nil {
		return nil, fmt.Errorf("start what workflows call: %w", err)
	}
	defer func() { err = errors.Join(err, b.bureau.close()) }()
	if err := b.measureStart(ctx, dir); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	defer func() { err = errors.Join(err, b.service.stop()) }()
	if err := b.measureAll(ctx); err != nil {
		return nil, err
	}
	return b.report(), nil
}

// step is one thing that is measured.
type step struct {
	name    string
	measure func(context.Context) error
}

// measureAll measures what an idle service takes, then the rounds, and last
// what needs no repetition.
func (b *bench) measureAll(ctx context.Context) (err error) {
	if b.tenant, err = b.newTenant(ctx, "bench"); err != nil {
		return fmt.Errorf("make a tenant: %w", err)
	}
	if err := b.measureSteps(ctx, "before", []step{{"idle service", b.measureIdle}}); err != nil {
		return err
	}
	for round := range b.Rounds {
		if err := b.measureSteps(ctx, fmt.Sprintf("round %d of %d", round+1, b.Rounds), b.round()); err != nil {
			return err
		}
	}
	return b.measureSteps(ctx, "after", []step{
		{"lists", b.measureLists},
		{"a small batch beside a large one", b.measureSmallBatch},
		{"a neighbour's batch", b.measureNeighbour},
	})
}

// round has each limit of the database beside what is compared with it.
func (b *bench) round() []step {
	return []step{
		{"disk", b.measureDisk},
		{"insert, 1 client", b.measureInsertAlone},
		{"synchronous, 1 connection", b.measureSyncAlone},
		{"synchronous with a call, 1 connection", b.measureCallAlone},
		{"insert, call, insert", b.measureInsertTwice},
		{"asynchronous, 1 connection", b.measureAsyncAlone},
		{"insert, 32 clients", b.measureInsertMany},
		{"insert, by pgbench", b.measurePgbench},
		{"synchronous, 32 connections", b.measureSyncMany},
		{"row and job, 32 clients", b.measureJobMany},
		{"synchronous with a call, 32 connections", b.measureCallMany},
		{"asynchronous, 32 connections", b.measureAsyncMany},
		{"copy", b.measureCopy},
		{"River's drain", b.measureDrain},
		{"batch without effects", b.measureBatch},
		{"batch with a call an item", b.measureEffectBatch},
		{"token endpoint", b.measureTokens},
		{"one-time passwords", b.measureAttempts},
	}
}

func (b *bench) measureSteps(ctx context.Context, when string, steps []step) error {
	for _, s := range steps {
		if b.Only != nil && !b.Only.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(b.Progress, "%s: %s\n", when, s.name)
		if err := s.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}
