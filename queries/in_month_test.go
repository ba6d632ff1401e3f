package queries_test

import (
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
func TestInMonth(t *testing.T) {
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
	present, unknown := pgtest.NewID(t), pgtest.NewID(t)
	insert(present)
	insert(old)
	for range 8 {
		for id, isThere := range map[uuid.UUID]bool{present: true, old: true, unknown: false, uuid.Max: false} {
			rows, err := queries.New().ExecutionCheckpoint(ctx, queries.InMonth(pool, id), queries.ExecutionCheckpointParams{TenantID: tenant, ID: id, State: []byte(`{}`)})
			require.NoError(t, err)
			require.Zero(t, rows, "without its lease")
			_, err = queries.New().ExecutionGetStatus(ctx, queries.InMonth(pool, id), queries.ExecutionGetStatusParams{TenantID: tenant, ID: id})
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
