package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"tranche/internal/fault"
	"tranche/jobs"
)

const (
	// stagesOfTenantMax is on how many stages of one tenant's batches a process
	// works at a time once half of its workers for stages are busy, so that the
	// other half is left to other tenants.
	stagesOfTenantMax = 4
	stagesOfAnyone    = jobs.StageWorkers / 2
	// stageInterval is how often a stage asks again that is one too many, or for which
	// the database is away.
	stageInterval = time.Second
)

// stages counts the stages that this process works on, by tenant.
type stages struct {
	log     *slog.Logger
	mu      sync.Mutex
	all     int
	working map[uuid.UUID]int
}

// work does the work of a stage, or puts its job off while the tenant has as
// many as it may. A stage that this process stops, or for which the database is away,
// is put off too: an error of its job is one of the stage's own.
func (s *stages) work(ctx context.Context, tenantID uuid.UUID, do func() error) error {
	if !s.begin(tenantID) {
		return river.JobSnooze(stageInterval)
	}
	defer s.end(tenantID)
	err := do()
	if err == nil || ctx.Err() == nil && !errors.Is(err, fault.Unavailable) {
		return err
	}
	s.log.WarnContext(ctx, "a stage of a batch is put off", "error", err)
	return river.JobSnooze(stageInterval)
}

func (s *stages) begin(tenantID uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= stagesOfAnyone && s.working[tenantID] >= stagesOfTenantMax {
		return false
	}
	if s.working == nil {
		s.working = map[uuid.UUID]int{}
	}
	s.all++
	s.working[tenantID]++
	return true
}

func (s *stages) end(tenantID uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.working[tenantID]--; s.working[tenantID] == 0 {
		delete(s.working, tenantID)
	}
}
