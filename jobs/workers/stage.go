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
	// stagesOfTenantMax is how many stages of one tenant's batches a process works on at
	// a time once half of its workers for stages are busy: the other half is left to other
	// tenants.
	stagesOfTenantMax = 4
	stagesOfAnyone    = jobs.StageWorkers / 2
	// stageInterval is how long a stage is put off that is one too many, or for which the
	// database is away.
	stageInterval = time.Second
	// stageAttemptsMax is after how many errors of its own a stage is given up.
	stageAttemptsMax = 5
	// A tenant's stages that are too many come again one by one, each stageSpacing after
	// the one before it: were thousands to come every second, workers would do little else.
	stageSpacing = 5 * time.Millisecond
	stageWaitMax = time.Minute
	// priorityPutOff is the priority of stages that were too many, River's least: thousands
	// of one tenant do not stand in the queue before those of others.
	priorityPutOff = 4
)

// stages counts the stages that this process works on, by tenant.
type stages struct {
	db      queries.DBTX
	clock   func() time.Time
	log     *slog.Logger
	mu      sync.Mutex
	all     int
	working map[uuid.UUID]*ofTenant
}

// ofTenant is the stages of a tenant, of which some are worked on.
type ofTenant struct {
	working int
	next    time.Time // when the one that was put off last comes again
}

// work does the work of a stage, or puts its job off while the tenant has as
// many as it may. A stage that this process stops, or for which the database is away,
// is put off too: an error of its job is one of the stage's own. After too many of
// these fail, unless nil, records that the stage is given up; where it finds nothing
// to give up the job is tried on.
func (s *stages) work(ctx context.Context, job *rivertype.JobRow, tenantID uuid.UUID, do func() error, fail func() (bool, error)) error {
	if wait := s.begin(tenantID); wait > 0 {
		return s.putOff(ctx, job, wait)
	}
	defer s.end(tenantID)
	err := do()
	if isOwn(ctx, err) && fail != nil && len(job.Errors) >= stageAttemptsMax-1 {
		err = giveUp(err, fail)
	}
	if err == nil || isOwn(ctx, err) {
		return err
	}
	s.log.WarnContext(ctx, "a stage of a batch is put off", "error", err)
	return river.JobSnooze(stageInterval)
}

// isOwn reports whether an error is the stage's own.
func isOwn(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, fault.Unavailable)
}

func giveUp(err error, fail func() (bool, error)) error {
	hasFailed, failErr := fail()
	if failErr != nil || !hasFailed {
		return errors.Join(err, failErr)
	}
	return river.JobCancel(err)
}

// putOff has the job of a stage come again, behind those of others.
func (s *stages) putOff(ctx context.Context, job *rivertype.JobRow, wait time.Duration) error {
	if job.Priority != priorityPutOff {
		if err := queries.New().SysJobSetPriority(ctx, s.db, queries.SysJobSetPriorityParams{ID: job.ID, Priority: priorityPutOff}); err != nil {
			s.log.WarnContext(ctx, "a stage of a batch keeps its place before others", "error", err)
		}
	}
	return river.JobSnooze(wait)
}

// begin counts a stage, or says when it is to come again.
func (s *stages) begin(tenantID uuid.UUID) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.working[tenantID]
	if of != nil && s.all >= stagesOfAnyone && of.working >= stagesOfTenantMax {
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
		of = &ofTenant{}
		if s.working == nil {
			s.working = map[uuid.UUID]*ofTenant{}
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
