package queries_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// A statement runs on the partitions of its execution's month alone and is planned
// once, and finds executions whose month has no partition all the same.
func TestOnPartition(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.URL(t), postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tenant := pgtest.Tenant(t, pool).ID
	ctx := postgres.WithTenant(t.Context(), tenant)
	workflow := pgtest.PublishedWorkflow(t, pool, tenant).ID
	insert := func(id uuid.UUID) {
		rows, err := queries.New().ExecutionInsert(ctx, pool, queries.ExecutionInsertParams{
			ID: id, TenantID: tenant, WorkflowID: workflow, PrincipalID: "tester", Tags: []string{}, Status: "pending",
			CreatedAt: queries.CreatedAt(id), Input: []byte(`{}`),
		})
		require.NoError(t, err)
		require.Equal(t, int64(1), rows)
	}
	old := queries.FirstIDAt(time.Now().AddDate(-1, 0, 0)) // before the first partition's month
	old[6], old[8] = 0x70, 0x80                            // a UUIDv7
	present, unknown := pgtest.NewID(t), pgtest.NewID(t)
	insert(present)
	insert(old)
	for range 8 {
		for id, isThere := range map[uuid.UUID]bool{present: true, old: true, unknown: false, uuid.New(): false} {
			rows, err := queries.New().ExecutionCheckpoint(ctx, queries.OnPartition(pool, id), queries.ExecutionCheckpointParams{TenantID: tenant, ID: id, State: []byte(`{}`)})
			require.NoError(t, err)
			require.Zero(t, rows, "without its lease")
			_, err = queries.New().ExecutionGetStatus(ctx, queries.OnPartition(pool, id), queries.ExecutionGetStatusParams{TenantID: tenant, ID: id})
			if !isThere {
				require.ErrorIs(t, err, pgx.ErrNoRows)
				continue
			}
			require.NoError(t, err)
		}
	}
	month := time.Now().UTC().Format("_200601")
	var statements, anew int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE custom_plans > 5)
		FROM pg_prepared_statements WHERE statement ~ ('name: Execution(GetStatus|Checkpoint)[^;]* executions' || $1)`, month).Scan(&statements, &anew))
	require.Equal(t, 2, statements)
	require.Zero(t, anew)
}

// While a partition has no statistics an index that leads to all executions of a
// tenant looks as good as that of the ids, and the plan is kept while it grows.
func TestOnPartitionFindsByID(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.URL(t), postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	q, tenant, id := queries.New(), uuid.New(), pgtest.NewID(t)
	ctx, db := postgres.WithTenant(t.Context(), tenant), queries.OnPartition(pool, id)
	statements := []func() error{
		asking(ctx, db, q.ExecutionGetStatus, queries.ExecutionGetStatusParams{ID: id}),
		asking(ctx, db, q.ExecutionGetOutput, queries.ExecutionGetOutputParams{ID: id}),
		asking(ctx, db, q.ExecutionGetInput, queries.ExecutionGetInputParams{ID: id}),
		asking(ctx, db, q.ExecutionGetState, queries.ExecutionGetStateParams{ID: id}),
		asking(ctx, db, q.ExecutionGet, queries.ExecutionGetParams{ID: id}),
		asking(ctx, db, q.ExecutionLease, queries.ExecutionLeaseParams{ID: id}),
		asking(ctx, db, q.ExecutionReleaseForRetry, queries.ExecutionReleaseForRetryParams{ID: id}),
		asking(ctx, db, q.ExecutionCheckpoint, queries.ExecutionCheckpointParams{ID: id, State: []byte(`{}`)}),
		asking(ctx, db, q.ExecutionFinish, queries.ExecutionFinishParams{ID: id, Tags: []string{}, Result: []byte(`{}`)}),
	}
	for range 8 {
		for _, statement := range statements {
			if err := statement(); !errors.Is(err, pgx.ErrNoRows) {
				require.NoError(t, err)
			}
		}
	}
	rows, err := pool.Query(ctx, `SELECT format('EXPLAIN (COSTS OFF) EXECUTE %I(%s)', name, array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', '))
		FROM pg_prepared_statements WHERE statement ~ ' executions_20\d{4} '`)
	require.NoError(t, err)
	explains, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, explains, len(statements))
	for _, explain := range explains {
		rows, err := pool.Query(ctx, explain, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		require.Regexp(t, `using executions_\d+_(pkey|id_idx) on executions_\d+\b`, plan)
		require.Regexp(t, `Index Cond: \((e\.)?id = \$\d+\)`, plan, "of any id")
	}
}

// Every statement with a mark marks all of its partitioned tables, and never compares
// the tenant with "=".
func TestMarkedStatements(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sql")
	require.NoError(t, err)
	table, tenant := regexp.MustCompile(`(?:UPDATE|FROM|JOIN|INTO) (?:executions|execution_payloads)\b( /\*partition\*/)?`), regexp.MustCompile(`e\.tenant_id = @|WHERE tenant_id = @`)
	var marked []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, statement := range strings.Split(string(text), "-- name: ")[1:] {
			name, _, _ := strings.Cut(statement, " ")
			if !strings.Contains(statement, "/*partition*/") {
				continue
			}
			marked = append(marked, name)
			for _, found := range table.FindAllStringSubmatch(statement, -1) {
				require.NotEmpty(t, found[1], "%s: %s", name, found[0])
			}
			require.NotRegexp(t, tenant, statement, name)
		}
	}
	require.Len(t, marked, 9, "add a new statement to TestOnPartitionFindsByID: %v", marked)
}

func TestStatementWithoutMarkFails(t *testing.T) {
	t.Parallel()
	db := queries.OnPartition(pgtest.Tx(t), pgtest.NewID(t))
	_, err := queries.New().ExecutionExists(t.Context(), db, queries.ExecutionExistsParams{})
	require.ErrorContains(t, err, "has no table with the mark /*partition*/")
	_, err = queries.New().ExecutionRelease(t.Context(), db, queries.ExecutionReleaseParams{})
	require.ErrorContains(t, err, "ExecutionRelease")
}

// asking is a statement about an execution, whatever it answers.
func asking[Params, Answer any](ctx context.Context, db queries.DBTX, statement func(context.Context, queries.DBTX, Params) (Answer, error), params Params) func() error {
	return func() error {
		_, err := statement(ctx, db, params)
		return err
	}
}
