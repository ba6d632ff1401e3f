package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

const (
	flushEvery   = time.Minute
	flushTimeMax = 10 * time.Second
	// kindsMax bounds what a process keeps between two writes. Whatever is
	// beyond it is counted without its client.
	kindsMax = 1000
)

// refusalsKept is how long the counts of a minute are kept. Whoever sends bad requests
// adds rows with every minute, with or without a token.
const refusalsKept = 90 * 24 * time.Hour

// Refusal is a kind of refused request.
type Refusal struct {
	TenantID uuid.UUID // uuid.Nil: no token told one
	ClientID uuid.UUID // likewise
	Status   int       // 401 or 403
	Reason   string    // one of a few texts, never what a caller sent
}

// Refusals counts refused requests and writes the counts once a minute, for as
// long as there are any. It is safe for concurrent use.
type Refusals struct {
	db    queries.DBTX
	clock func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	counts map[refusalKey]int64
	timer  *time.Timer // nil: nothing to write
}

type refusalKey struct {
	minute time.Time
	Refusal
}

// NewRefusals returns a counter. Flush writes what it has not written yet.
func NewRefusals(db queries.DBTX, clock func() time.Time, log *slog.Logger) *Refusals {
	return &Refusals{db: db, clock: clock, log: log, counts: map[refusalKey]int64{}}
}

// Count counts one refused request.
func (r *Refusals) Count(refusal Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusalKey{r.clock().UTC().Truncate(time.Minute), refusal}
	if _, known := r.counts[key]; !known && len(r.counts) >= kindsMax {
		key.TenantID, key.ClientID = uuid.Nil, uuid.Nil
	}
	r.counts[key]++
	if r.timer == nil {
		r.timer = time.AfterFunc(flushEvery, func() {
			if err := r.Flush(context.Background()); err != nil {
				r.log.Warn("refusals could not be recorded", "error", err)
			}
		})
	}
}

// Flush writes what has been counted. What could not be written is lost: it
// was counted for those who look, and nothing depends on it.
func (r *Refusals) Flush(ctx context.Context) error {
	r.mu.Lock()
	counts := r.counts
	r.counts = map[refusalKey]int64{}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeMax)
	defer cancel()
	for key, count := range counts {
		err := queries.New().SysDeniedRequestAdd(ctx, r.db, queries.SysDeniedRequestAddParams{
			Minute: key.minute, TenantID: queries.Optional(key.TenantID), ClientID: queries.Optional(key.ClientID),
			Status: int16(key.Status), Reason: key.Reason, Count: count,
		})
		if err != nil {
			return fmt.Errorf("record refusals: %w", postgres.Translate(err))
		}
	}
	return nil
}

// sweepPart is how many counts a statement forgets.
const sweepPart = 10_000

// SweepRefusals forgets, for all tenants, the counts that are older than
// refusalsKept. ctx is the system's.
func SweepRefusals(ctx context.Context, db queries.DBTX) error {
	err := postgres.ByParts(sweepPart, func(countsMax int32) (int64, error) {
		return queries.New().SysDeniedRequestDeleteOld(ctx, db, queries.SysDeniedRequestDeleteOldParams{
			OlderThanSeconds: refusalsKept.Seconds(), CountsMax: countsMax,
		})
	})
	if err != nil {
		return fmt.Errorf("forget counts of refusals: %w", err)
	}
	return nil
}

// RefusalCount is how often requests of a kind were refused in a minute.
type RefusalCount struct {
	Minute   time.Time
	ClientID *uuid.UUID
	Status   int
	Reason   string
	Count    int64
}

// RefusalCounts returns the newest counts since a moment, at most countMax,
// oldest first: a tenant's, or with uuid.Nil those of requests that no token
// assigned to a tenant.
func RefusalCounts(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, since time.Time, countMax int) ([]RefusalCount, error) {
	rows, err := queries.New().SysDeniedRequestList(ctx, queries.CustomPlan(db), queries.SysDeniedRequestListParams{
		TenantID: queries.Optional(tenantID), Since: since, CountMax: int32(countMax),
	})
	if err != nil {
		return nil, fmt.Errorf("list refusals: %w", postgres.Translate(err))
	}
	counts := make([]RefusalCount, len(rows))
	for i, row := range rows {
		counts[i] = RefusalCount{Minute: row.Minute, ClientID: row.ClientID, Status: int(row.Status), Reason: row.Reason, Count: row.Count}
	}
	return counts, nil
}
