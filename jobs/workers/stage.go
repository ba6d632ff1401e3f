package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"tranche/internal/fault"
	"tranche/jobs"
	"tranche/queries"
)

const (
	// tenantStagesMax is how many stages of one tenant's batches a process works on
	// concurrently once half of its workers for stages are busy. The other half is for other
	// tenants.
	tenantStagesMax = 4
	sharedStages    = jobs.StageWorkers / 2
	// stageInterval is how long a stage is postponed if its tenant has too many, or if the
	// database is unavailable.
	stageInterval = time.Second
	// stageAttemptsMax is after how many errors of its own a stage fails.
	stageAttemptsMax = 5
	// A tenant's stages above the limit are repeated one by one, at intervals of stageSpacing.
	// If thousands were repeated every second, workers would do little else.
	stageSpacing = 5 * time.Millisecond
	stageWaitMax = time.Minute
	// priorityPostponed is River's lowest priority. Postponed stages have it, so that
	// thousands of one tenant are not queued before those of others.
	priorityPostponed = 4
)

// stages counts the stages that this process works on, by tenant.
type stages struct {
	db      queries.DBTX
	clock   func() time.Time
	log     *slog.Logger
	mu      sync.Mutex
	all     int
	working map[uuid.UUID]*tenantStages
}

// tenantStages is the stages of a tenant.
type tenantStages struct {
	working int
	next    time.Time // when the stage that was postponed last is repeated
}

// work does the work of a stage, or postpones its job while the tenant has as many stages as
// it may. It also postpones a stage that a stop interrupts, or for which the database is
// unavailable, so an error of its job is an error of the stage itself. After several of these,
// fail (unless nil) records that the stage has failed. If fail returns false, the job is tried
// again.
func (s *stages) work(ctx context.Context, job *rivertype.JobRow, tenantID uuid.UUID, do func() error, fail func() (bool, error)) error {
	if wait := s.begin(tenantID); wait > 0 {
		return s.postpone(ctx, job, wait)
	}
	defer s.end(tenantID)
	err := do()
	if isOwn(ctx, err) && fail != nil && len(job.Errors) >= stageAttemptsMax-1 {
		err = failStage(err, fail)
	}
	if err == nil || isOwn(ctx, err) {
		return err
	}
	s.log.WarnContext(ctx, "a stage of a batch is postponed", "error", err)
	return river.JobSnooze(stageInterval)
}

// isOwn reports whether an error is an error of the stage itself.
func isOwn(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, fault.Unavailable)
}

func failStage(err error, fail func() (bool, error)) error {
	hasFailed, failErr := fail()
	if failErr != nil || !hasFailed {
		return errors.Join(err, failErr)
	}
	return river.JobCancel(err)
}

// postpone repeats the job of a stage later, behind the jobs of other tenants.
func (s *stages) postpone(ctx context.Context, job *rivertype.JobRow, wait time.Duration) error {
	if job.Priority != priorityPostponed {
		if err := queries.New().SysJobSetPriority(ctx, s.db, queries.SysJobSetPriorityParams{ID: job.ID, Priority: priorityPostponed}); err != nil {
			s.log.WarnContext(ctx, "a postponed stage of a batch keeps its priority", "error", err)
		}
	}
	return river.JobSnooze(wait)
}

// begin counts a stage, or returns how long it is postponed.
func (s *stages) begin(tenantID uuid.UUID) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.working[tenantID]
	if of != nil && s.all >= sharedStages && of.working >= tenantStagesMax {
		now := s.clock()
		of.next = of.next.Add(stageSpacing)
		if first := now.Add(stageInterval); of.next.Before(first) {
			of.next = first
		} else if last := now.Add(stageWaitMax); of.next.After(last) {
			of.next = last
		}
		return of.next.Sub(now)
	}
	if of == nil {
		of = &tenantStages{}
		if s.working == nil {
			s.working = map[uuid.UUID]*tenantStages{}
		}
		s.working[tenantID] = of
	}
	s.all++
	of.working++
	return 0
}

func (s *stages) end(tenantID uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	of := s.working[tenantID]
	if of.working--; of.working == 0 {
		delete(s.working, tenantID)
	}
}
