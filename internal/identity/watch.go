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

// Revocations, limits and signing keys are cached. The first request after
// watchRefreshAfter starts a reload in the background; data older than watchStaleAfter is
// not used. So every process applies a revocation within 5 s, and an idle process makes
// no queries.
const (
	watchRefreshAfter = 2 * time.Second
	watchStaleAfter   = 4 * time.Second
	watchTimeMax      = 3 * time.Second
	// watchOverlap covers transactions that commit long after they revoke.
	watchOverlap = 5 * time.Minute
	// sweepEvery is how often unused counters are deleted. Each reload deletes at most
	// sweepPart counters and sweepPart hits, which takes a fraction of watchTimeMax. While
	// more are left, every reload deletes some.
	sweepEvery = time.Minute
	sweepPart  = 10_000
	// allSeconds reaches back to before the first limit.
	allSeconds = 1e9
	// revocationTTL is the time after which all revoked access tokens have expired.
	revocationTTL = accessTokenTTL + time.Hour
)

// standing is an immutable snapshot of revocations and limits.
type standing struct {
	readAt  time.Time
	sweptAt time.Time
	revoked map[uuid.UUID]time.Time // clients, tenants and families of tokens
	limits  map[uuid.UUID][]Limit   // of tenants with limits of their own
}

// watch caches the current standing.
type watch struct {
	pool    *pgxpool.Pool
	clock   func() time.Time
	keys    *keyStore
	current atomic.Pointer[standing]
	reading singleflight.Group
}

// get returns a standing that is not stale.
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
			// Another request started this reload, perhaps long ago. Start one of our own.
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refresh reloads once for all concurrent requests. The result is the time of the first
// request.
func (w *watch) refresh(ctx context.Context, now time.Time) <-chan singleflight.Result {
	return w.reading.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTimeMax)
		defer cancel()
		return now, w.read(ctx, now)
	})
}

// read loads a standing for a time that is not later than the call.
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

// since returns how far back a reload at the given time must look.
func (s *standing) since(at time.Time) time.Duration { return max(at.Sub(s.readAt), 0) + watchOverlap }

// readRevoked copies the known revocations and adds new ones.
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
		return fmt.Errorf("list revocations: %w", postgres.Translate(err))
	}
	for _, row := range rows {
		next.revoked[row.ID] = row.RevokedAt
	}
	return nil
}

// readLimits copies the known limits and applies new ones.
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

// sweep deletes unused counters from time to time.
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

// isRevoked reports whether any of the ids is revoked.
func (s *standing) isRevoked(ids ...uuid.UUID) bool {
	for _, id := range ids {
		if _, ok := s.revoked[id]; ok {
			return true
		}
	}
	return false
}
