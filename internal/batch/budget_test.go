package batch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/server"
)

// counted returns stages with a counter of their statements.
func counted(t *testing.T, s *apitest.Service, c *apitest.Caller, tenant *apitest.Tenant, id string) (*stages, *pgtest.Counter) {
	t.Helper()
	own := *s
	var counter *pgtest.Counter
	own.Pool, counter = pgtest.CountedPool(t, s.Pool)
	return stagesOf(t, &own, c, tenant.ID, id), counter
}

// The number of statements per item determines the speed of a batch, and does not depend on the
// machine. The two rows of an item without effects and their six index rows are written once.
func TestBudgetWithoutEffects(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	const items = 10_000
	var file strings.Builder
	file.WriteString("borrowerId,income,debt\n")
	for i := range items {
		fmt.Fprintf(&file, "B-%d,1000.00,%d.10\n", i, i%9)
	}
	id := start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, "a.csv", file.String())}})
	b, counter := counted(t, s, c, tenant, id)
	cost := counter.Of(func() {
		require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
		for runs := b.newRuns(t); len(runs) > 0; runs = b.newRuns(t) {
			for _, run := range runs {
				_, err := b.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			}
		}
		require.NoError(t, b.output.PostProcess(t.Context(), b.key()))
	})
	require.Equal(t, items, b.record(t).State.Summary.Completed)
	t.Logf("%d items: %+v", items, cost)
	require.LessOrEqual(t, cost.Transactions, int64(items/80))
	require.LessOrEqual(t, cost.Trips, int64(items/50))
	rows := func(what string) int {
		return b.count(t, "SELECT sum("+what+") FROM pg_stat_user_tables WHERE relname LIKE 'executions\\_2%' OR relname LIKE 'execution\\_payloads\\_2%'")
	}
	b.Pool.Reset() // the server counts the work of open connections late
	require.Eventually(t, func() bool { return rows("n_tup_ins") == 2*items }, waitMax, tick)
	require.Zero(t, rows("n_tup_upd"))

	_, err := s.Pool.Exec(t.Context(), "ANALYZE executions, execution_payloads") // exact for tables of this size
	require.NoError(t, err)
	// ANALYZE sets reltuples of a GIN index to the rows of the table, so only B-trees count.
	indexes := func(what string) int {
		return b.count(t, "SELECT sum("+what+") FROM pg_class JOIN pg_am ON pg_am.oid = relam WHERE amname = 'btree' AND relkind = 'i' AND reltuples > 0 AND (relname LIKE 'executions\\_2%' OR relname LIKE 'execution\\_payloads\\_2%')")
	}
	require.Equal(t, 6*items, indexes("reltuples"), "rows of indexes")
	require.LessOrEqual(t, indexes("pg_relation_size(pg_class.oid)"), 400*items, "bytes of indexes: pages that are filled once are full")
}

// An item with one call shares its transactions with other items. Its two rows are written once,
// when it ends.
func TestBudgetWithEffects(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object"}, "tasks": [`+request("score", "GET", o.URL)+`], "edges": []}`)
	const items = 500 // fewer than run at a time
	b, counter := counted(t, s, c, tenant, start(t, c, "bureau", ids(many(items)...)))
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	// Statements that record items wait until all have ended, and no time passes meanwhile.
	// So other work on the machine does not change how many items share a statement.
	lock, err := s.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(t.Context()) }()
	now := time.Now()
	b.runner.Clock = func() time.Time { return now }
	o.gate = make(chan struct{})
	cost := counter.Of(func() {
		var group sync.WaitGroup
		for _, run := range b.newRuns(t) {
			group.Go(func() {
				_, err := b.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			})
		}
		require.Eventually(t, func() bool { return o.count() == items }, waitMax, tick)
		_, err = lock.Exec(t.Context(), "SELECT FROM batch_chunks FOR UPDATE")
		require.NoError(t, err)
		close(o.gate)
		require.Eventually(t, func() bool { return b.ended.Load() == items }, waitMax, tick)
		require.NoError(t, lock.Commit(t.Context()))
		group.Wait()
	})
	require.Equal(t, items, b.record(t).State.Summary.Completed)
	t.Logf("%d items: %+v", items, cost)
	require.LessOrEqual(t, cost.Transactions, int64(items/20))
	require.LessOrEqual(t, cost.Trips, int64(items/10))
	rows := func(what string) int {
		return b.count(t, "SELECT sum("+what+") FROM pg_stat_user_tables WHERE relname LIKE 'executions\\_2%' OR relname LIKE 'execution\\_payloads\\_2%'")
	}
	b.Pool.Reset() // the server counts the work of open connections late
	require.Eventually(t, func() bool { return rows("n_tup_ins") == 2*items }, waitMax, tick)
	require.Zero(t, rows("n_tup_upd"))
}
