package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limits is a tracer that sets time limits for which pgx has no settings: to acquire a
// connection, and to wait for a server that has stopped responding and cannot enforce
// statement_timeout. A tracer may replace the context of the operation that it traces.
type limits struct {
	statementTimeMax time.Duration // 0 means no limit
}

type limitKey struct{}

func limit(ctx context.Context, most time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, most)
	return context.WithValue(ctx, limitKey{}, cancel)
}

func lift(ctx context.Context) {
	if cancel, ok := ctx.Value(limitKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

func (l limits) limitStatement(ctx context.Context) context.Context {
	if l.statementTimeMax == 0 {
		return context.WithValue(ctx, limitKey{}, nil)
	}
	return limit(ctx, l.statementTimeMax+answerGrace)
}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (limits) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return limit(ctx, acquireTimeMax)
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (limits) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	lift(ctx)
}

// TraceQueryStart implements pgx.QueryTracer.
func (l limits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return l.limitStatement(ctx)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (limits) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { lift(ctx) }

// TraceBatchStart implements pgx.BatchTracer. A batch has the time limit of one statement.
func (l limits) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return l.limitStatement(ctx)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (limits) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (limits) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { lift(ctx) }
