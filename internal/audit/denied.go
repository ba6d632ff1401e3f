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
	flushInterval = time.Minute
	flushTimeMax  = 10 * time.Second
	// kindsMax bounds the counts that a process keeps between two writes. Further kinds
	// are counted without tenant and client.
	kindsMax = 1000
	// deniedRetention is the time for which counts are kept. A caller that sends bad
	// requests adds rows every minute, with or without a token.
	deniedRetention = 90 * 24 * time.Hour
	// deletePageSize is the number of counts that one statement deletes.
	deletePageSize = 10_000
)

// DeniedRequest is a kind of request that was denied.
type DeniedRequest struct {
	TenantID uuid.UUID // uuid.Nil if no token names it
	ClientID uuid.UUID // uuid.Nil if no token names it
	Status   int       // 401 or 403
	Reason   string    // one of a few texts, never a text of the caller
}

// Denied counts denied requests. If there were any, it writes the counts once a minute. It
// is safe for concurrent use.
type Denied struct {
	db    queries.DBTX
	clock func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	counts map[deniedKey]int64
	timer  *time.Timer // nil if there is nothing to write
}

type deniedKey struct {
	minute time.Time
	DeniedRequest
}

// NewDenied returns a counter. The caller calls Flush at the end.
func NewDenied(db queries.DBTX, clock func() time.Time, log *slog.Logger) *Denied {
	return &Denied{db: db, clock: clock, log: log, counts: map[deniedKey]int64{}}
}

// Count counts one denied request.
func (d *Denied) Count(request DeniedRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := deniedKey{d.clock().UTC().Truncate(time.Minute), request}
	if _, known := d.counts[key]; !known && len(d.counts) >= kindsMax {
		key.TenantID, key.ClientID = uuid.Nil, uuid.Nil
	}
	d.counts[key]++
	if d.timer == nil {
		d.timer = time.AfterFunc(flushInterval, func() {
			if err := d.Flush(context.Background()); err != nil {
				d.log.Warn("the counts of denied requests could not be written", "error", err)
			}
		})
	}
}

// Flush writes the counts. If it fails, they are lost: they only inform operators.
func (d *Denied) Flush(ctx context.Context) error {
	d.mu.Lock()
	counts := d.counts
	d.counts = map[deniedKey]int64{}
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeMax)
	defer cancel()
	for key, count := range counts {
		err := queries.New().SysDeniedRequestAdd(ctx, d.db, queries.SysDeniedRequestAddParams{
			Minute: key.minute, TenantID: queries.Optional(key.TenantID), ClientID: queries.Optional(key.ClientID),
			Status: int16(key.Status), Reason: key.Reason, Count: count,
		})
		if err != nil {
			return fmt.Errorf("write the counts of denied requests: %w", postgres.Translate(err))
		}
	}
	return nil
}

// DeleteOldDenied deletes the counts of all tenants that are older than 90 days. The
// context must be that of the system.
func DeleteOldDenied(ctx context.Context, db queries.DBTX) error {
	err := postgres.InPages(deletePageSize, func(countsMax int32) (int64, error) {
		return queries.New().SysDeniedRequestDeleteOld(ctx, db, queries.SysDeniedRequestDeleteOldParams{
			OlderThanSeconds: deniedRetention.Seconds(), CountsMax: countsMax,
		})
	})
	if err != nil {
		return fmt.Errorf("delete old counts of denied requests: %w", err)
	}
	return nil
}

// DeniedCount is the number of denied requests of a kind in one minute.
type DeniedCount struct {
	Minute   time.Time
	ClientID *uuid.UUID
	Status   int
	Reason   string
	Count    int64
}

// DeniedCounts returns the newest counts of a tenant since a time, at most countMax, oldest
// first. With uuid.Nil it returns the counts of requests without a tenant.
func DeniedCounts(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, since time.Time, countMax int) ([]DeniedCount, error) {
	rows, err := queries.New().SysDeniedRequestList(ctx, queries.CustomPlan(db), queries.SysDeniedRequestListParams{
		TenantID: queries.Optional(tenantID), Since: since, CountMax: int32(countMax),
	})
	if err != nil {
		return nil, fmt.Errorf("list denied requests: %w", postgres.Translate(err))
	}
	counts := make([]DeniedCount, len(rows))
	for i, row := range rows {
		counts[i] = DeniedCount{Minute: row.Minute, ClientID: row.ClientID, Status: int(row.Status), Reason: row.Reason, Count: row.Count}
	}
	return counts, nil
}
