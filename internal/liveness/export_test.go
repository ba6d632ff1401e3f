package liveness

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// AwayAfter is awayAfter.
const AwayAfter = awayAfter

// New returns a process that works and does nothing until the test calls it.
func New(pool *pgxpool.Pool, recoverWork Recover) *Process {
	return &Process{ID: uuid.New(), role: "all", works: true, pool: pool, recoverWork: recoverWork, log: slog.New(slog.DiscardHandler)}
}

// Tick calls tick.
func (p *Process) Tick(ctx context.Context) { p.tick(ctx) }

// EndSession calls endSession.
func (p *Process) EndSession(ctx context.Context) { p.endSession(ctx) }

// SetHeartbeatAge makes the last heartbeat so old. The process has long been steady.
func (p *Process) SetHeartbeatAge(age time.Duration) {
	p.heartbeatAt, p.steadySince = time.Now().Add(-age), time.Now().Add(-time.Hour)
}

// LoseSession sets the state that a failed heartbeat leaves.
func (p *Process) LoseSession() { p.hasLostSession = true }

// Detect calls detect.
func (p *Process) Detect(ctx context.Context, isSteady bool) error { return p.detect(ctx, isSteady) }

// MakeSweepDue makes the next sweep due.
func (p *Process) MakeSweepDue() { p.sweepAt = time.Time{} }
