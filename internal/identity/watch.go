package identity

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"tranche/internal/postgres"
	"tranche/queries"
)

// What is known of revocations, limits and signing keys is read again by the
// first request after watchRefreshAfter, beside it; what is older than
// watchStaleAfter is not used. So a revocation holds within 5 s everywhere, and
// an idle process asks nothing.
const (
	watchRefreshAfter = 2 * time.Second
	watchStaleAfter   = 4 * time.Second
	watchTimeMax      = 3 * time.Second
	// watchOverlap covers transactions that revoke and commit much later.
	watchOverlap = 5 * time.Minute
	// sweepEvery is how often counters that are no longer in use are forgotten.
	sweepEvery = time.Minute
	// revocationTTL is when every access token of what was revoked has expired.
	revocationTTL = accessTokenTTL + time.Hour
)

// standing is what the database said at one moment. It is never changed, only
// replaced.
type standing struct {
	readAt  time.Time
	sweptAt time.Time
	revoked map[uuid.UUID]time.Time // clients, tenants and families of tokens
	limits  map[uuid.UUID][]Limit   // of tenants that have some of their own
}

// watch keeps the current standing.
type watch struct {
	pool    *pgxpool.Pool
	clock   func() time.Time
	keys    *keyStore
	current atomic.Pointer[standing]
	reading singleflight.Group
}

// get returns a standing that is young enough to be relied on.
func (w *watch) get(ctx context.Context) (*standing, error) {
	current, now := w.current.Load(), w.clock()
	switch age := now.Sub(current.readAt); {
	case age < watchRefreshAfter:
		return current, nil
	case age < watchStaleAfter:
		w.refresh(ctx, now)
		return current, nil
	}
	select {
	case result := <-w.refresh(ctx, now):
		if result.Err != nil {
			return nil, result.Err
		}
		return w.current.Load(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refresh reads anew, once for all who ask meanwhile.
func (w *watch) refresh(ctx context.Context, now time.Time) <-chan singleflight.Result {
	return w.reading.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTimeMax)
		defer cancel()
		return nil, w.read(ctx, now)
	})
}

// read takes up what holds at a moment that is not later than the call.
func (w *watch) read(ctx context.Context, now time.Time) error {
	ctx = postgres.AsSystem(ctx)
	next := &standing{readAt: now, sweptAt: now, limits: map[uuid.UUID][]Limit{}}
	if err := w.readRevoked(ctx, next); err != nil {
		return err
	}
	if err := w.readLimits(ctx, next); err != nil {
		return err
	}
	if _, err := w.keys.reload(ctx); err != nil {
		return err
	}
	if err := w.sweep(ctx, next); err != nil {
		return err
	}
	w.current.Store(next)
	return nil
}

// readRevoked takes over what is known and adds what was revoked since.
func (w *watch) readRevoked(ctx context.Context, next *standing) error {
	next.revoked = map[uuid.UUID]time.Time{}
	span := revocationTTL
	if current := w.current.Load(); current != nil {
		span = min(revocationTTL, max(next.readAt.Sub(current.readAt), 0)+watchOverlap)
		for id, at := range current.revoked {
			if next.readAt.Sub(at) < revocationTTL {
				next.revoked[id] = at
			}
		}
	}
	rows, err := queries.New().SysRevokedWithin(ctx, w.pool, span.Seconds())
	if err != nil {
		return fmt.Errorf("look up who is revoked: %w", postgres.Translate(err))
	}
	for _, row := range rows {
		next.revoked[row.ID] = row.RevokedAt
	}
	return nil
}

func (w *watch) readLimits(ctx context.Context, next *standing) error {
	rows, err := queries.New().SysTenantLimitList(ctx, w.pool)
	if err != nil {
		return fmt.Errorf("look up limits: %w", postgres.Translate(err))
	}
	for _, row := range rows {
		if next.limits[row.TenantID] == nil {
			next.limits[row.TenantID] = DefaultLimits()
		}
		setLimit(next.limits[row.TenantID], row.Category, row.PerMinute)
	}
	return nil
}

// sweep forgets, now and then, counters that are no longer in use.
func (w *watch) sweep(ctx context.Context, next *standing) error {
	current := w.current.Load()
	if current == nil {
		return nil
	}
	if next.readAt.Sub(current.sweptAt) < sweepEvery {
		next.sweptAt = current.sweptAt
		return nil
	}
	if err := queries.New().SysRateLimitSweep(ctx, w.pool); err != nil {
		return fmt.Errorf("sweep the rate limits: %w", postgres.Translate(err))
	}
	return nil
}

// isRevoked reports whether any of the ids is.
func (s *standing) isRevoked(ids ...uuid.UUID) bool {
	for _, id := range ids {
		if _, ok := s.revoked[id]; ok {
			return true
		}
	}
	return false
}
