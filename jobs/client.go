// Package jobs declares the kinds of background jobs for River: arguments, queue, attempts. It
// also has the configuration of River's client. It must know only River; package jobs/workers
// does the work.
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

// Schema is the schema of River's tables.
const Schema = "river"

// The queues.
const (
	QueueExecution    = "execution"    // executions that a caller waits for
	QueueBatchItem    = "batch_item"   // items of batches
	QueueBatchStage   = "batch_stage"  // stages of batches
	QueueSchedule     = "schedule"     // runs that schedules started
	QueueMaintenance  = "maintenance"  // partitions and expired rows
	QueueNotification = "notification" // messages to people
)

const (
	// AttemptsMax is high, because a crash uses an attempt too, and a job must survive any
	// series of crashes.
	AttemptsMax        = 1000
	completedRetention = 15 * time.Minute
	// softStopTimeout is how long a stop waits before it interrupts running jobs. An
	// interrupted job returns to the queue without using an attempt.
	softStopTimeout = 15 * time.Second
	// fetchCooldown also debounces the insert notifications of this client: a second insert
	// within it waits for the next poll. A client that only inserts has the shortest one.
	fetchCooldown     = 5 * time.Millisecond
	fetchCooldownSlow = 10 * time.Millisecond // for jobs that no caller waits for
	// Notifications wake the workers. Polls find jobs whose notification was lost, and jobs
	// that were postponed for less time than River's scheduler handles. Each poll costs
	// processor time in an idle process.
	pollInterval     = time.Second // for jobs that a caller waits for
	pollIntervalSlow = 2 * time.Second
	pollIntervalRare = 5 * time.Second
	retryDelayMax    = 10 * time.Second
	// otpExpiryInterval is about how long a message whose delivery was discarded may outlive
	// its code.
	otpExpiryInterval = time.Minute
)

// StageWorkers is how many stages of batches a process works on concurrently.
const StageWorkers = 32

// InsertChannel is the channel on which River's clients listen for new jobs. A statement that
// inserts jobs without River's client has to send InsertNotice there.
const InsertChannel = Schema + ".river_insert"

// InsertNotice returns the notice that a queue has a new job.
func InsertNotice(queue string) string { return `{"queue": "` + queue + `"}` }

// Config configures a client.
type Config struct {
	// ProcessID identifies this process to River and in table processes.
	ProcessID uuid.UUID
	Logger    *slog.Logger
	// Workers of every kind; nil for a client that only inserts.
	Workers *river.Workers
	// Middleware wraps the work of every job.
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
		// Workers bound their own time. The failure detector recovers the jobs of a dead
		// process long before River would rescue them.
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
			// More than run concurrently: the fair semaphores of package batch choose among them.
			QueueBatchItem:   {MaxWorkers: 2000, FetchCooldown: fetchCooldownSlow, FetchPollInterval: pollInterval},
			QueueBatchStage:  {MaxWorkers: StageWorkers, FetchCooldown: fetchCooldownSlow},
			QueueSchedule:    {MaxWorkers: 100, FetchCooldown: fetchCooldownSlow},
			QueueMaintenance: {MaxWorkers: 1, FetchPollInterval: pollIntervalRare},
			// A signer waits for each message, and each job waits for a provider.
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

// dateInDatabase lets the database set the time of jobs that may run immediately. River uses
// the clock of this process. If that clock is ahead, even by milliseconds, a notified worker
// does not find the job and waits for the next poll. It is for Insert and InsertMany only:
// InsertManyFast would write the year 1.
func dateInDatabase(ctx context.Context, inserts []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	for _, job := range inserts {
		if job.State == rivertype.JobStateAvailable {
			job.CreatedAt, job.ScheduledAt = &time.Time{}, &time.Time{}
		}
	}
	return insert(ctx)
}

// retryPolicy repeats a failed job after 1 s, 2 s and so on, up to 10 s. The usual reason is
// that the database is unavailable. A random part of up to one poll is added: in step with the
// polls, the same process would get the job each time, even if another one could do it.
type retryPolicy struct{}

func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	delay := min(time.Duration(len(job.Errors)+1)*time.Second, retryDelayMax)
	delay += rand.N(pollInterval) //nolint:gosec // jitter, not a secret
	//nolint:forbidigo // River asks for a time and passes no clock
	return time.Now().Add(delay)
}
