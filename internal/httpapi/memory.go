package httpapi

import (
	"context"
	"math"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/fault"
	"tranche/internal/limit"
)

const (
	// tenantBytesMax is how many bytes of large JSON one tenant may have in this
	// process. Decoded JSON takes up to sixteen times as much memory.
	tenantBytesMax = 48 << 20
	// unlimitedBytesMax is the size of JSON up to which no limit applies.
	unlimitedBytesMax = 64 << 10
	// readsShare is the share of the connections that the reads of one tenant may use.
	readsShare = 0.75
)

// acquire waits until weight is free in the semaphore of the caller's tenant. After
// bodyTimeMax it returns fault.Unavailable, whose message names the requests.
func (s *Server) acquire(ctx context.Context, semaphores *limit.PerTenant, weight int64, requests string) (release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, s.bodyTimeMax)
	defer cancel()
	release, err = semaphores.Acquire(bounded, Principal(ctx).TenantID, weight)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, "too many concurrent %s; retry later", requests)
	}
	return release, err
}

// readsMax returns how many reads of a tenant may be in progress.
func readsMax(pool *pgxpool.Pool) int64 {
	if pool == nil {
		return math.MaxInt64
	}
	return max(1, int64(readsShare*float64(pool.Config().MaxConns)))
}

// acquireRead limits the concurrent reads of a tenant, so that slow reads of one
// tenant leave connections to the others. It waits if the operation is a read.
func (s *Server) acquireRead(ctx context.Context, op *Operation) (release func(), err error) {
	if op.Method != http.MethodGet || op.Scope == "" {
		return func() {}, nil
	}
	release, err = s.acquire(ctx, s.reads, 1, "reads")
	if err != nil {
		return nil, err
	}
	release = sync.OnceFunc(release)
	requestOf(ctx).releaseRead = release
	return release, nil
}

// acquireBody limits the memory of the bodies of a tenant. While it waits, the
// client has not sent the body.
func (s *Server) acquireBody(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (release func(), err error) {
	size := r.ContentLength
	if size < 0 || size > limit {
		size = limit // the length is unknown, or the body will be rejected
	}
	if size <= unlimitedBytesMax {
		return func() {}, nil
	}
	release, err = s.acquire(ctx, s.bodies, size, "requests with large bodies")
	if err != nil && ctx.Err() == nil {
		drainUnlessExpecting(w, r)
	}
	return release, err
}

// AcquireAnswer limits the memory of the answers of a tenant. A handler calls it at
// most once, after it has read size bytes of stored JSON and before it decodes them.
// The memory is released when the request has been answered. The read no longer
// counts as in progress, so that other reads can begin.
func (s *Server) AcquireAnswer(ctx context.Context, size int) error {
	if size <= unlimitedBytesMax {
		return nil
	}
	request := requestOf(ctx)
	request.releaseRead()
	release, err := s.acquire(ctx, s.answers, int64(size), "requests for large answers")
	if err == nil {
		request.releaseAnswer = release
	}
	return err
}
