package workers

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"tranche/jobs"
)

const (
	// stagesOfTenantMax is on how many stages of one tenant's batches a process
	// works at a time once half of its workers for stages are busy, so that the
	// other half is left to other tenants.
	stagesOfTenantMax = 4
	stagesOfAnyone    = jobs.StageWorkers / 2
	// stageInterval is how often a stage that is one too many asks again.
	stageInterval = time.Second
)

// stages counts the stages that this process works on, by tenant.
type stages struct {
	mu      sync.Mutex
	all     int
	working map[uuid.UUID]int
}

// work does the work of a stage, or puts its job off while the tenant has as
// many as it may.
func (s *stages) work(tenantID uuid.UUID, do func() error) error {
	if !s.begin(tenantID) {
		return river.JobSnooze(stageInterval)
	}
	defer s.end(tenantID)
	return do()
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
