package api

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
	// largeBytesMax is how many bytes of large JSON a tenant has in this process at a
	// time. Decoded JSON takes up to sixteen times as much memory.
	largeBytesMax = 48 << 20
	// smallBytesMax is the largest JSON text that needs no semaphore.
	smallBytesMax = 64 << 10
	// readsPart is the part of the database connections that reads of one tenant use at a
	// time.
	readsPart = 0.75
)

// acquire waits until weight is free in the semaphore of the caller's tenant, at most for
// bodyTimeMax. After that time the error is fault.Unavailable and names the requests.
func (s *Server) acquire(ctx context.Context, semaphores *limit.PerTenant, weight int64, requests string) (release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, s.bodyTimeMax)
	defer cancel()
	release, err = semaphores.Acquire(bounded, principal(ctx).TenantID, weight)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, "too many concurrent %s", requests)
	}
	return release, err
}

// readsMax returns how many reads of a tenant run at a time.
func readsMax(pool *pgxpool.Pool) int64 {
	if pool == nil {
		return math.MaxInt64
	}
	return max(1, int64(readsPart*float64(pool.Config().MaxConns)))
}

// acquireRead limits the concurrent reads of a tenant, so that they leave database
// connections to other tenants. It returns at once for operations that do not read.
func (s *Server) acquireRead(ctx context.Context, op *operation) (release func(), err error) {
	if op.method != http.MethodGet || op.scope == "" {
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

// acquireForAnswer waits until the stored JSON of an answer may be decoded. The JSON has
// been read from the database, so the read is released first. A request calls it at most
// once, and releases the memory after its answer is sent.
func (s *Server) acquireForAnswer(ctx context.Context, bytes int) (err error) {
	if bytes > smallBytesMax {
		if release := requestOf(ctx).releaseRead; release != nil {
			release()
		}
		requestOf(ctx).releaseAnswer, err = s.acquire(ctx, s.answers, int64(bytes), "requests for large answers")
	}
	return err
}
