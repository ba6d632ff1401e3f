package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// AwayAfter is awayAfter.
const AwayAfter = awayAfter

// New is a process that works when it is told, and does nothing by itself.
func New(pool *pgxpool.Pool, free Free) *Process {
	return &Process{ID: uuid.New(), role: "all", works: true, pool: pool, free: free, log: slog.New(slog.DiscardHandler)}
}

// Turn is one heartbeat and what follows it.
func (p *Process) Turn(ctx context.Context) { p.turn(ctx) }

// EndSession ends what the first heartbeat began.
func (p *Process) EndSession(ctx context.Context) { p.endSession(ctx) }

// Beaten has the last heartbeat written some time ago, by a process that has long
// been steady.
func (p *Process) Beaten(ago time.Duration) {
	p.beaten, p.steadySince = time.Now().Add(-ago), time.Now().Add(-time.Hour)
}

// LoseSession is what a beat that fails leaves behind.
func (p *Process) LoseSession() { p.hasLostSession = true }

// TakeBack is what follows each heartbeat of a process that works.
func (p *Process) TakeBack(ctx context.Context, isSteady bool) error {
	return p.takeBack(ctx, isSteady)
}

// LookNow makes the look due that nothing gives cause for.
func (p *Process) LookNow() { p.lookAt = time.Time{} }
