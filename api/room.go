package api

import (
	"context"
	"math"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/fault"
	"tranche/internal/room"
)

const (
	// roomBytes is how many bytes of large JSON a tenant has in this process at a
	// time. Decoded they take up to sixteen times as much.
	roomBytes = 48 << 20
	// roomLightBytes is the most of a text that needs no room.
	roomLightBytes = 64 << 10
	// readsPart is the part of the connections that reads of one tenant have at a time.
	readsPart = 0.75
)

// enterRoom waits for as long as a body may take to arrive until there is room for so
// much beside what others of the caller's tenant use; leave is to be called when it
// is used no more. If the wait was in vain the error is fault.Unavailable, which says
// of what there is too much.
func (s *Server) enterRoom(ctx context.Context, r *room.Rooms, size int64, what string) (leave func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, s.bodyTimeMax)
	defer cancel()
	leave, err = r.Enter(bounded, principal(ctx).TenantID, size)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, "too many %s at a time", what)
	}
	return leave, err
}

// readsMax is how many reads of a tenant are answered at a time.
func readsMax(pool *pgxpool.Pool) int64 {
	if pool == nil {
		return math.MaxInt64 // there is nothing to keep for others
	}
	return max(1, int64(readsPart*float64(pool.Config().MaxConns)))
}

// beginRead waits until an operation that reads may do so: many reads of one tenant,
// large ones above all, would take every connection from the others.
func (s *Server) beginRead(ctx context.Context, op *operation) (end func(), err error) {
	if op.method != http.MethodGet || op.scope == "" {
		return func() {}, nil
	}
	end, err = s.enterRoom(ctx, s.reads, 1, "reads")
	if err != nil {
		return nil, err
	}
	end = sync.OnceFunc(end)
	requestOf(ctx).endRead = end
	return end, nil
}

// answerFrom waits until there is room to answer from so many bytes of stored JSON,
// which have been read: others may read meanwhile. The room is left when the request
// has been answered, and entered once at most.
func (s *Server) answerFrom(ctx context.Context, bytes int) (err error) {
	if bytes > roomLightBytes {
		if end := requestOf(ctx).endRead; end != nil {
			end()
		}
		requestOf(ctx).leave, err = s.enterRoom(ctx, s.answers, int64(bytes), "requests for large answers")
	}
	return err
}
