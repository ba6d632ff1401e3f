package execution

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// A shared statement matches each execution by tenant and lease.
func TestSharedStatementsMatchTenantAndLease(t *testing.T) {
	t.Parallel()
	db := pgtest.Tx(t)
	own, foreign := pgtest.Tenant(t, db).ID, pgtest.Tenant(t, db).ID
	workflow := pgtest.PublishedWorkflow(t, db, own).ID
	leased, free, token := pgtest.NewID(t), pgtest.NewID(t), uuid.New()
	row := func(id, lease uuid.UUID) *newExecution {
		return &newExecution{ID: id, TenantID: own, WorkflowID: workflow, PrincipalID: "tester", Status: engine.StatusPending, Input: []byte(`{}`), LeaseToken: lease}
	}
	inserts, err := insertExecutions(t.Context(), db, []*newExecution{row(leased, token), row(free, uuid.Nil)})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, inserts)

	rows, err := readExecutions(t.Context(), db, []reference{{foreign, leased}, {own, leased}, {own, free}, {own, foreign}})
	require.NoError(t, err)
	require.Nil(t, rows[0], "of another tenant")
	require.Equal(t, leased, rows[1].ID)
	require.Equal(t, free, rows[2].ID)
	require.Nil(t, rows[3], "unknown")

	end := func(tenant, id, lease uuid.UUID) *Finished {
		return &Finished{
			TenantID: tenant, ID: id, LeaseToken: lease, Attempt: 1, Tags: []string{`a "b"`}, At: time.Now(),
			Outcome: &engine.Outcome{Status: engine.StatusCompleted}, State: []byte(`{}`), ResultText: []byte(`{"n":1.10}`),
		}
	}
	ends := []*Finished{end(own, leased, uuid.New()), end(own, leased, token), end(foreign, free, token), end(own, free, token), end(own, free, uuid.Nil)}
	won, err := finishExecutions(t.Context(), db, ends)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 0, 0, 1}, won, "only the lease in the row ends an execution")
	won, err = finishExecutions(t.Context(), db, ends)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, 0, 0, 0}, won, "once")

	lone := pgtest.NewID(t)
	_, err = insertExecutions(t.Context(), db, []*newExecution{row(lone, token)})
	require.NoError(t, err)
	later := end(own, lone, token)
	later.Attempt = 2
	for i, f := range []*Finished{end(own, lone, uuid.New()), end(foreign, lone, token), end(own, lone, uuid.Nil), later, end(own, lone, token), end(own, lone, token)} {
		won, err = finishExecutions(t.Context(), db, []*Finished{f})
		require.NoError(t, err)
		require.Equal(t, i == 4, won[0] == 1, "alone too: %d", i)
	}

	var text string
	require.NoError(t, db.QueryRow(t.Context(), `SELECT concat_ws(' ', e.status, e.is_success, e.tags, p.result)
		FROM executions e JOIN execution_payloads p ON p.execution_id = e.id WHERE e.id = $1`, leased).Scan(&text))
	require.Equal(t, `completed t {"a \"b\""} {"n":1.10}`, text)
}

// A lease is released once, with its own token only, and its execution gets a job.
func TestSharedReleasesMatchTenantAndLease(t *testing.T) {
	t.Parallel()
	db := pgtest.Tx(t)
	own, foreign := pgtest.Tenant(t, db).ID, pgtest.Tenant(t, db).ID
	workflow := pgtest.PublishedWorkflow(t, db, own).ID
	first, second, kept, free, token := pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t), uuid.New()
	row := func(id, lease uuid.UUID) *newExecution {
		return &newExecution{ID: id, TenantID: own, WorkflowID: workflow, PrincipalID: "tester", Status: engine.StatusRunning, Input: []byte(`{}`), LeaseToken: lease}
	}
	_, err := insertExecutions(t.Context(), db, []*newExecution{row(first, token), row(second, token), row(kept, token), row(free, uuid.Nil)})
	require.NoError(t, err)

	leases := []lease{
		{tenantID: own, executionID: first, token: uuid.New()},
		{tenantID: own, executionID: first, token: token},
		{tenantID: own, executionID: second, token: token},
		{tenantID: foreign, executionID: kept, token: token},
		{tenantID: own, executionID: kept, token: uuid.New()},
		{tenantID: own, executionID: kept, token: uuid.Nil},
		{tenantID: own, executionID: free, token: uuid.Nil},
		{tenantID: own, executionID: pgtest.NewID(t), token: token},
	}
	released, err := requeueExecutions(t.Context(), db, leases)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 1, 0, 0, 0, 0, 0}, released)
	released, err = requeueExecutions(t.Context(), db, leases)
	require.NoError(t, err)
	require.Equal(t, make([]int64, len(leases)), released, "once")

	text := func(sql string) (text string) {
		require.NoError(t, db.QueryRow(t.Context(), sql).Scan(&text))
		return text
	}
	require.Equal(t, kept.String(), text(`SELECT string_agg(id::text, ' ') FROM executions WHERE lease_token IS NOT NULL`))
	job := func(id uuid.UUID) string {
		return own.String() + " " + id.String() + " task_execution execution available 1000; "
	}
	require.Equal(t, job(first)+job(second), text(`SELECT string_agg(format('%s %s %s %s %s %s; ', args ->> 'tenant_id', args ->> 'execution_id', kind, queue, state, max_attempts), '' ORDER BY args ->> 'execution_id')
		FROM river.river_job`))
}

// The statement for one execution records the same as the statement for several.
func TestSingleInsertEqualsSharedInsert(t *testing.T) {
	t.Parallel()
	db := pgtest.Tx(t)
	tenant := pgtest.Tenant(t, db).ID
	workflow, draft := pgtest.PublishedWorkflow(t, db, tenant).ID, pgtest.Workflow(t, db, tenant).ID
	at := time.Now().UTC().Truncate(time.Microsecond)
	least := newExecution{TenantID: tenant, WorkflowID: workflow, PrincipalID: "tester", Status: engine.StatusPending, Input: []byte(`{}`)}
	most := newExecution{
		TenantID: tenant, WorkflowID: workflow, PrincipalID: "tester", BillableID: "b", BorrowerID: "p", Tags: []string{`a "b"`, "c"}, IsTest: true,
		RescoreOf: pgtest.NewID(t), Status: engine.StatusCompleted, Input: []byte(`{"n": 1.10}`), State: []byte(`{"s":1}`), Result: []byte(`{"r":[]}`),
		StartedAt: at, DeadlineAt: at.Add(time.Second), CompletedAt: at.Add(time.Minute), LeaseToken: uuid.New(), LeaseProcessID: uuid.New(),
		SourceFailed: true, StatusCode: 502, TasksCompleted: 3, TasksFailed: 2,
	}
	inactive := least
	inactive.WorkflowID = draft
	for _, e := range []newExecution{least, most, inactive} {
		one, beside, other := e, e, least
		one.ID, beside.ID, other.ID = pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t)
		alone, err := insertExecutions(t.Context(), db, []*newExecution{&one})
		require.NoError(t, err)
		together, err := insertExecutions(t.Context(), db, []*newExecution{&beside, &other})
		require.NoError(t, err)
		require.Equal(t, together[:1], alone)
		require.Equal(t, e.WorkflowID == workflow, alone[0])
		require.Equal(t, recorded(t, db, beside.ID), recorded(t, db, one.ID))
	}
}

// recorded returns the rows of an execution without the columns that follow from its id.
func recorded(t *testing.T, db queries.DBTX, id uuid.UUID) (texts []string) {
	t.Helper()
	for _, query := range []string{
		"SELECT to_jsonb(e) - 'id' - 'created_at' FROM executions e WHERE id = $1 AND created_at BETWEEN now() - interval '1 hour' AND clock_timestamp()",
		"SELECT concat_ws(' ', tenant_id, input, coalesce(state::text, 'no state'), coalesce(result::text, 'no result')) FROM execution_payloads WHERE execution_id = $1",
	} {
		rows, err := db.Query(t.Context(), query, id)
		require.NoError(t, err)
		more, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		texts = append(texts, more...)
	}
	return texts
}

// Planning a statement over partitions takes longer than executing it. After five custom
// plans PostgreSQL keeps a generic one, unless that looks more expensive.
func TestGenericPlansAreKept(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.URL(t), postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tenant := pgtest.Tenant(t, pool).ID
	workflow := pgtest.PublishedWorkflow(t, pool, tenant).ID
	ctx := postgres.WithTenant(t.Context(), tenant)
	insert := func(n int) (rows []*newExecution) {
		for range n {
			rows = append(rows, &newExecution{
				ID: pgtest.NewID(t), TenantID: tenant, WorkflowID: workflow, PrincipalID: "tester", Status: engine.StatusPending, Input: []byte(`{}`),
			})
		}
		_, err := insertExecutions(ctx, pool, rows)
		require.NoError(t, err)
		return rows
	}
	insert(500) // the partition has no statistics, like a new one
	end := func(id uuid.UUID) *Finished {
		return &Finished{TenantID: tenant, ID: id, Attempt: 1, Outcome: &engine.Outcome{Status: engine.StatusCompleted}, ResultText: []byte(`{}`)}
	}
	for range 8 {
		id, two := insert(1)[0].ID, insert(2)
		_, err = readExecutions(ctx, pool, []reference{{tenant, id}})
		require.NoError(t, err)
		for _, ends := range [][]*Finished{{end(id)}, {end(two[0].ID), end(two[1].ID)}} {
			_, err = finishExecutions(ctx, pool, ends)
			require.NoError(t, err)
		}
	}
	var statements, anew int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE custom_plans > 5)
		FROM pg_prepared_statements WHERE statement ~ 'name: (Execution(Insert|Finish)|SysExecution(Insert|ListRunnable|Finish))'`).Scan(&statements, &anew))
	require.Equal(t, 5, statements)
	require.Zero(t, anew)
}
