package execution_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/internal/task"
)

// TestBudgets limits the transactions, round trips and rows of an execution. They decide
// its speed and do not depend on the machine.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pure, calling := b.pure(t), b.calling(t, "")
	b.release()
	owner := *b
	var counter *pgtest.Counter
	b.pool, counter = pgtest.CountedPool(t, b.pool)
	s, _ := b.process(t)
	// A connection that served another tenant costs one more round trip.
	ctx := postgres.WithTenant(t.Context(), b.tenant)
	require.NoError(t, b.pool.Ping(ctx))
	run := func(r execution.Request) func() {
		return func() {
			e, err := s.Run(ctx, r, time.Minute)
			require.NoError(t, err)
			require.Equal(t, engine.StatusCompleted, e.Status)
		}
	}
	var accepted execution.Execution
	start := func(r execution.Request) func() {
		return func() {
			var err error
			accepted, err = s.Start(ctx, r)
			require.NoError(t, err)
		}
	}
	work := func() {
		holding, err := s.Continue(ctx, b.tenant, accepted.ID)
		require.NoError(t, err)
		require.Equal(t, execution.Held, holding)
	}
	rows := owner.countRows(t)
	for _, tc := range []struct {
		name   string
		work   func()
		budget pgtest.Cost
		rows   int // written to executions, payloads and jobs
	}{
		{"synchronous, no effects", run(pure), pgtest.Cost{Transactions: 1, Trips: 1}, 2},
		{"synchronous, one effect", run(calling), pgtest.Cost{Transactions: 2, Trips: 2}, 4},
		{"asynchronous, one effect", start(calling), pgtest.Cost{Transactions: 1, Trips: 1}, 3},
		{"asynchronous, its job with one effect", work, pgtest.Cost{Transactions: 4, Trips: 4}, 5},
		{"asynchronous, no effects", start(pure), pgtest.Cost{Transactions: 1, Trips: 1}, 3},
		{"asynchronous, its job without effects", work, pgtest.Cost{Transactions: 2, Trips: 2}, 2},
	} {
		before := rows()
		require.Equal(t, tc.budget, counter.Of(tc.work), tc.name)
		require.Equal(t, tc.rows, rows()-before, tc.name)
	}
	require.Equal(t, "completed", b.status(t, accepted.ID))
	require.Equal(t, "1 1.10", b.text(t, `SELECT count(*) || ' ' || min(input ->> 'n') FROM execution_payloads WHERE execution_id = $1`, accepted.ID))
	require.Equal(t, 2, pgtest.CountJobs(t, b.pool, "task_execution"), "only asynchronous executions have jobs")
}

// countRows makes the database count written rows. It returns a function that reads the
// count.
func (b *bundle) countRows(t *testing.T) func() int {
	t.Helper()
	pgtest.Exec(t, b.pool, `
		CREATE SEQUENCE rows_written MINVALUE 0 START 0;
		CREATE FUNCTION row_written() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			'BEGIN PERFORM nextval(''public.rows_written''); RETURN NULL; END';
		CREATE TRIGGER row_written AFTER INSERT OR UPDATE OR DELETE ON executions FOR EACH ROW EXECUTE FUNCTION row_written();
		CREATE TRIGGER row_written AFTER INSERT OR UPDATE OR DELETE ON execution_payloads FOR EACH ROW EXECUTE FUNCTION row_written();
		CREATE TRIGGER row_written AFTER INSERT OR UPDATE OR DELETE ON river.river_job FOR EACH ROW EXECUTE FUNCTION row_written();
		SELECT nextval('rows_written')`)
	return func() int { return pgtest.Value[int](t, b.pool, "SELECT last_value FROM rows_written") }
}

// A published workflow and its plan are read once.
func TestResolveBudget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pure(t)
	pool, counter := pgtest.CountedPool(t, b.pool)
	plans := catalog.New(pool, task.Types(task.Ports{}))
	resolve := func() {
		_, _, err := plans.Resolve(t.Context(), b.tenant, "pure", "v1")
		require.NoError(t, err)
	}
	require.NotZero(t, counter.Of(resolve), "the first time")
	require.Zero(t, counter.Of(resolve), "from then on")
}
