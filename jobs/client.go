// Package jobs declares the kinds of background work as River sees them:
// arguments, queue, attempts. It also holds the one configuration of River's
// client. It must know nothing but River; the work itself is done by
// jobs/workers.
package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
)

// Client is River's client on pgx.
type Client = river.Client[pgx.Tx]

// Schema is where River's tables live.
const Schema = "river"

// The queues.
const (
	QueueExecution    = "execution"    // executions somebody waits for
	QueueBatchItem    = "batch_item"   // items of batches
	QueueBatchStage   = "batch_stage"  // stages of batches
	QueueSchedule     = "schedule"     // what schedules have started
	QueueMaintenance  = "maintenance"  // partitions, and what has expired
	QueueNotification = "notification" // messages to people
)

const (
	// AttemptsMax is high because a crash costs an attempt too: a job must
	// outlive any series of them.
	AttemptsMax        = 1000
	completedRetention = 15 * time.Minute
	// softStopTimeout is how long a stop waits before it interrupts running
	// jobs, which then go back to the queue without using an attempt.
	softStopTimeout = 15 * time.Second
	// fetchCooldown also debounces the insert notifications of this client; a
	// second insert within it would wait for the next poll. What only inserts has
	// the shortest there is.
	fetchCooldown     = 5 * time.Millisecond
	fetchCooldownSlow = 10 * time.Millisecond // where nobody waits for a job
	// Notifications wake the workers. Polls are for what a notification missed,
	// and for jobs that were put off for less than River's scheduler counts: the
	// more of them, the more an idle process takes.
	pollInterval     = time.Second // where somebody waits
	pollIntervalSlow = 2 * time.Second
	pollIntervalRare = 5 * time.Second
	retryDelayMax    = 10 * time.Second
	// otpExpiryInterval is how long a message whose delivery was discarded may
	// outlive its code, about.
	otpExpiryInterval = time.Minute
)

// StageWorkers is how many stages of batches a process works on at a time.
const StageWorkers = 32

// InsertChannel is where River's clients listen for jobs that are inserted.
// Whoever inserts one by a statement of its own says InsertNotice there.
const InsertChannel = Schema + ".river_insert"

// InsertNotice says that a queue has a job.
func InsertNotice(queue string) string { return `{"queue": "` + queue + `"}` }

// Config is what a client needs to know.
type Config struct {
	// ProcessID identifies this process to River and in table processes.
	ProcessID uuid.UUID
	Logger    *slog.Logger
	// Workers of every kind; nil for a client that only inserts.
	Workers *river.Workers
	// Middleware is around the work of every job.
	Middleware []rivertype.Middleware
}

// NewClient returns River's client. Every kind must be registered on Workers:
// a leader that lacks one discards its jobs.
func NewClient(pool *pgxpool.Pool, c Config) (*Client, error) {
	config := &river.Config{
		ID:                          c.ProcessID.String(),
		Schema:                      Schema,
		Logger:                      c.Logger,
		FetchCooldown:               river.FetchCooldownMin,
		FetchPollInterval:           pollIntervalSlow,
		MaxAttempts:                 AttemptsMax,
		CompletedJobRetentionPeriod: completedRetention,
		SoftStopTimeout:             softStopTimeout,
		// Workers bound their own time; what a dead process held is given back
		// by internal/liveness long before River would rescue it.
		JobTimeout:          -1,
		Middleware:          []rivertype.Middleware{river.JobInsertMiddlewareFunc(dateInDatabase)},
		RetryPolicy:         retryPolicy{},
		ReindexerIndexNames: []string{"river_job_prioritized_fetching_index", "river_job_state_and_finalized_at_index"},
	}
	if c.Workers != nil {
		config.Workers, config.FetchCooldown = c.Workers, fetchCooldown
		config.Middleware = append(config.Middleware, c.Middleware...)
		config.Queues = map[string]river.QueueConfig{
			QueueExecution: {MaxWorkers: 200, FetchPollInterval: pollInterval},
			// More than run: package batch says whose turn it is.
			QueueBatchItem:   {MaxWorkers: 2000, FetchCooldown: fetchCooldownSlow, FetchPollInterval: pollInterval},
			QueueBatchStage:  {MaxWorkers: StageWorkers, FetchCooldown: fetchCooldownSlow},
			QueueSchedule:    {MaxWorkers: 100, FetchCooldown: fetchCooldownSlow},
			QueueMaintenance: {MaxWorkers: 1, FetchPollInterval: pollIntervalRare},
			// Somebody waits for a code, and each waits for a provider.
			QueueNotification: {MaxWorkers: 50, FetchPollInterval: pollInterval},
		}
		config.PeriodicJobs = []*river.PeriodicJob{
			river.NewPeriodicJob(river.PeriodicInterval(24*time.Hour), func() (river.JobArgs, *river.InsertOpts) {
				return PartitionMaintenance{}, nil
			}, &river.PeriodicJobOpts{RunOnStart: true}),
			river.NewPeriodicJob(river.PeriodicInterval(otpExpiryInterval), func() (river.JobArgs, *river.InsertOpts) {
				return OTPExpiry{}, nil
			}, nil),
		}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return nil, fmt.Errorf("make River's client: %w", err)
	}
	return client, nil
}

// dateInDatabase has the database say when a job that may run at once was inserted:
// River would ask the clock of this process, and where that is ahead, by milliseconds
// say, who is notified of the job does not find it yet and leaves it to the next poll.
// It is for Insert and InsertMany; InsertManyFast writes the year 1.
func dateInDatabase(ctx context.Context, inserts []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	for _, job := range inserts {
		if job.State == rivertype.JobStateAvailable {
			job.CreatedAt, job.ScheduledAt = &time.Time{}, &time.Time{}
		}
	}
	return insert(ctx)
}

// retryPolicy repeats a job that met an error, which is the database's being
// away rather than the job's own fault, after 1 s, 2 s … up to 10 s, and up to
// one poll more by chance: in step with the polls it would come back to the same
// process each time, though another one may be able to do it.
type retryPolicy struct{}

func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	delay := min(time.Duration(len(job.Errors)+1)*time.Second, retryDelayMax)
	delay += rand.N(pollInterval) //nolint:gosec // jitter, not a secret
	//nolint:forbidigo // River asks for a time and passes no clock
	return time.Now().Add(delay)
}
