package identity

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	// sweepEvery is how often counters that are no longer in use are forgotten, so
	// many of them and of their hits with one read that it takes a fraction of
	// watchTimeMax; while more are left, each read forgets some.
	sweepEvery = time.Minute
	sweepPart  = 10_000
	// allSeconds is a time before there were any limits.
	allSeconds = 1e9
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
	for {
		select {
		case result := <-w.refresh(ctx, now):
			switch askedAt, _ := result.Val.(time.Time); {
			case result.Err == nil:
				return w.current.Load(), nil
			case !askedAt.Before(now):
				return nil, result.Err
			}
			// It was begun for another request, and this one may have met it near the
			// end of its time.
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refresh reads anew, once for all who ask meanwhile, and tells when the first of
// them asked.
func (w *watch) refresh(ctx context.Context, now time.Time) <-chan singleflight.Result {
	return w.reading.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTimeMax)
		defer cancel()
		return now, w.read(ctx, now)
	})
}

// read takes up what holds at a moment that is not later than the call.
func (w *watch) read(ctx context.Context, now time.Time) error {
	ctx = postgres.AsSystem(ctx)
	next := &standing{readAt: now, sweptAt: now}
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

// since is how far the reading after s, at a moment, has to look back.
func (s *standing) since(at time.Time) time.Duration { return max(at.Sub(s.readAt), 0) + watchOverlap }

// readRevoked takes over what is known and adds what was revoked since.
func (w *watch) readRevoked(ctx context.Context, next *standing) error {
	next.revoked = map[uuid.UUID]time.Time{}
	span := revocationTTL
	if current := w.current.Load(); current != nil {
		span = min(revocationTTL, current.since(next.readAt))
		for id, at := range current.revoked {
			if next.readAt.Sub(at) < revocationTTL {
				next.revoked[id] = at
			}
		}
	}
	rows, err := queries.New().SysRevocationListRecent(ctx, w.pool, span.Seconds())
	if err != nil {
		return fmt.Errorf("look up who is revoked: %w", postgres.Translate(err))
	}
	for _, row := range rows {
		next.revoked[row.ID] = row.RevokedAt
	}
	return nil
}

// readLimits takes over what is known and changes what was set since.
func (w *watch) readLimits(ctx context.Context, next *standing) error {
	seconds := allSeconds
	if current := w.current.Load(); current != nil {
		next.limits, seconds = current.limits, current.since(next.readAt).Seconds()
	}
	rows, err := queries.New().SysTenantLimitListSet(ctx, w.pool, seconds)
	if err != nil {
		return fmt.Errorf("look up limits: %w", postgres.Translate(err))
	}
	if len(rows) == 0 {
		return nil
	}
	known := next.limits
	next.limits = make(map[uuid.UUID][]Limit, len(known)+len(rows))
	maps.Copy(next.limits, known)
	for _, row := range rows {
		limits := slices.Clone(next.limits[row.TenantID])
		if limits == nil {
			limits = DefaultLimits()
		}
		setLimit(limits, row.Category, row.PerMinute)
		next.limits[row.TenantID] = limits
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
	hasMore, err := queries.New().SysRateLimitDeleteOld(ctx, w.pool, sweepPart)
	if err != nil {
		return fmt.Errorf("sweep the rate limits: %w", postgres.Translate(err))
	}
	if hasMore {
		next.sweptAt = current.sweptAt
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
