package pgtest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Cost is the number of database operations of some work. It does not depend on the machine.
type Cost struct {
	Transactions int64
	Trips        int64 // round trips, without those that prepare a statement
}

// Counter counts the operations of a pool.
type Counter struct {
	transactions, trips atomic.Int64
}

// CountedPool returns another pool on the same database, and the counter of its
// operations.
func CountedPool(tb testing.TB, pool *pgxpool.Pool) (*pgxpool.Pool, *Counter) {
	tb.Helper()
	counter := &Counter{}
	config := pool.Config()
	config.ConnConfig.Tracer = counter
	counted, err := pgxpool.NewWithConfig(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(counted.Close)
	return counted, counter
}

// Of returns the cost of work.
func (c *Counter) Of(work func()) Cost {
	transactions, trips := c.transactions.Load(), c.trips.Load()
	work()
	return Cost{c.transactions.Load() - transactions, c.trips.Load() - trips}
}

func (c *Counter) count(conn *pgx.Conn) {
	const idle = 'I' // a statement outside a transaction is a transaction of its own
	if conn.PgConn().TxStatus() == idle {
		c.transactions.Add(1)
	}
	c.trips.Add(1)
}

// TraceQueryStart implements pgx.QueryTracer.
func (c *Counter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.count(conn)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*Counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (c *Counter) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.count(conn)
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*Counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*Counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
