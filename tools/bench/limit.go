package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"tranche/jobs"
)

const (
	blockBytes   = 8 << 10
	rowBytes     = 1 << 10 // of the insert
	copyRows     = 100_000
	copyRowBytes = 300
)

// makeLimitTables creates the tables for the limits of the database.
func (d *database) makeLimitTables(ctx context.Context) error {
	_, err := d.limit.Exec(ctx, `
		CREATE TABLE bench_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, doc jsonb NOT NULL, status text);
		CREATE TABLE bench_jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, row_id bigint NOT NULL, state text NOT NULL DEFAULT 'available',
			queue text NOT NULL DEFAULT 'default', priority smallint NOT NULL DEFAULT 1, scheduled_at timestamptz NOT NULL DEFAULT now());
		CREATE INDEX ON bench_jobs (state, queue, priority, scheduled_at, id);`)
	return err
}

// measureDisk syncs blocks of 8 kB to the disk of the database.
func (b *bench) measureDisk(ctx context.Context) error {
	file, err := os.CreateTemp(b.db.dir, "disk-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer func() { _ = file.Close() }()
	block := make([]byte, blockBytes)
	result, err := load(ctx, 1, b.Span/2, func(context.Context) (func() error, func(), error) {
		return func() error {
			if _, err := file.WriteAt(block, 0); err != nil {
				return err
			}
			return syncData(file)
		}, func() {}, nil
	})
	b.add(diskRate, result.perSecond())
	return err
}

// statement runs a load of one prepared statement with a commit each.
func (b *bench) statement(ctx context.Context, clients int, sql string, args ...any) (loaded, error) {
	return load(ctx, clients, b.Span, func(ctx context.Context) (func() error, func(), error) {
		conn, err := b.db.limit.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			_, err := conn.Exec(ctx, sql, args...)
			return err
		}, conn.Release, nil
	})
}

const insertRow = `INSERT INTO bench_rows (doc) VALUES ($1)`

// aRow returns a document of 1 kB.
func aRow() string {
	return `{"borrowerId": "B-1001", "income": 5400.50, "notes": "` + strings.Repeat("x", rowBytes-60) + `"}`
}

func (b *bench) measureInsertAlone(ctx context.Context) error {
	result, err := b.statement(ctx, 1, insertRow, aRow())
	b.add(insertAlone, result.percentile(50))
	return err
}

func (b *bench) measureInsertMany(ctx context.Context) error {
	result, err := b.statement(ctx, clientsMany, insertRow, aRow())
	b.add(insertMany, result.perSecond())
	return err
}

// measureJobMany inserts a row and a job in one statement, then updates the row and
// deletes the job in another, with a commit each.
func (b *bench) measureJobMany(ctx context.Context) error {
	result, err := load(ctx, clientsMany, b.Span, func(ctx context.Context) (func() error, func(), error) {
		conn, err := b.db.limit.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		doc := aRow()
		return func() error {
			var row, job int64
			err := conn.QueryRow(ctx, `WITH r AS (INSERT INTO bench_rows (doc) VALUES ($1) RETURNING id)
				INSERT INTO bench_jobs (row_id) SELECT id FROM r RETURNING row_id, id`, doc).Scan(&row, &job)
			if err != nil {
				return err
			}
			_, err = conn.Exec(ctx, `WITH j AS (DELETE FROM bench_jobs WHERE id = $1) UPDATE bench_rows SET status = 'done' WHERE id = $2`, job, row)
			return err
		}, conn.Release, nil
	})
	b.add(jobMany, result.perSecond())
	return err
}

// measureCopy copies rows with a bigint key.
func (b *bench) measureCopy(ctx context.Context) error {
	doc := `{"x": "` + strings.Repeat("y", copyRowBytes-10) + `"}`
	begin := time.Now()
	n, err := b.db.limit.CopyFrom(ctx, pgx.Identifier{"bench_rows"}, []string{"doc"},
		pgx.CopyFromSlice(copyRows, func(int) ([]any, error) { return []any{doc}, nil }))
	b.add(copyRate, float64(n)/time.Since(begin).Seconds())
	if err != nil {
		return err
	}
	_, err = b.db.limit.Exec(ctx, "TRUNCATE bench_rows, bench_jobs")
	return err
}

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type doNothing struct {
	river.WorkerDefaults[nothing]
	left sync.WaitGroup
}

func (w *doNothing) Work(context.Context, *river.Job[nothing]) error {
	w.left.Done()
	return nil
}

// wait waits until all jobs have run. Polling the table would slow them down. wait returns
// when ctx ends, because the remaining jobs then do not run.
func (w *doNothing) wait(ctx context.Context) error {
	worked := make(chan struct{})
	go func() {
		w.left.Wait()
		close(worked)
	}()
	select {
	case <-worked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drainWorkers and drainCooldown are the fastest settings of River here.
const (
	drainWorkers  = 500
	drainCooldown = 5 * time.Millisecond
	insertChunk   = 5000
	watchInterval = 20 * time.Millisecond
)

// measureDrain measures how fast River runs empty jobs.
func (b *bench) measureDrain(ctx context.Context) error {
	pool := b.db.limit
	workers, worker := river.NewWorkers(), &doNothing{}
	worker.left.Add(b.Items)
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID: uuid.NewString(), Schema: jobs.Schema, Workers: workers, Logger: slog.New(slog.DiscardHandler), FetchCooldown: drainCooldown,
		Queues:              map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: drainWorkers}},
		ReindexerIndexNames: []string{"river_job_prioritized_fetching_index"},
	})
	if err != nil {
		return err
	}
	for left := b.Items; left > 0; left -= insertChunk {
		inserts := make([]river.InsertManyParams, min(left, insertChunk))
		for i := range inserts {
			inserts[i].Args = nothing{}
		}
		if _, err := client.InsertManyFast(ctx, inserts); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := client.Start(ctx); err != nil {
		return err
	}
	if err := worker.wait(ctx); err != nil {
		return err
	}
	if err := waitForNone(ctx, pool, `SELECT count(*) FROM river.river_job WHERE state <> 'completed'`); err != nil {
		return err
	}
	b.add(drainRate, float64(b.Items)/time.Since(begin).Seconds())
	if err := client.Stop(ctx); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "TRUNCATE river.river_job")
	return err
}

// waitForNone waits until a query returns 0.
func waitForNone(ctx context.Context, pool *pgxpool.Pool, sql string) error {
	for {
		var n int
		if err := pool.QueryRow(ctx, sql).Scan(&n); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		if n == 0 {
			return nil
		}
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
