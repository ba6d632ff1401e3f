package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// New is a process that looks when it is told, and does nothing else.
func New(pool *pgxpool.Pool, free Free) *Process {
	return &Process{ID: uuid.New(), pool: pool, free: free, databaseUp: DeadAfter, log: slog.New(slog.DiscardHandler)}
}

// TrustDatabaseUp sets how long the database must be up before the end of a session
// tells death.
func (p *Process) TrustDatabaseUp(least time.Duration) { p.databaseUp = least }

// TakeBack is what follows each heartbeat of a process that works.
func (p *Process) TakeBack(ctx context.Context, isSteady bool) error {
	return p.takeBack(ctx, isSteady)
}

// LookNow makes the look due that nothing gives cause for.
func (p *Process) LookNow() { p.lookAt = time.Time{} }
