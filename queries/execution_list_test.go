package queries_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// However far is counted, a list has the same page: whether it is found among all
// that match or by reading in the list's order.
func TestExecutionListPageIgnoresCountMax(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenantID := generateExecutions(t, pool, 3000)
	exec(t, pool, `UPDATE executions SET tags = tags || ARRAY(SELECT 'tag-' || n FROM generate_series(1, 9) n) WHERE item_index % 7 = 0`)
	q := queries.New()
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	capped := 0
	for range 300 {
		draw := drawList(r)
		p := draw.params
		p.TenantID = tenantID
		if draw.workflows != nil {
			var err error
			draw.workflows.TenantID = tenantID
			p.WorkflowIDs, err = q.WorkflowListIDs(t.Context(), pool, *draw.workflows)
			require.NoError(t, err)
		}
		all, total, err := q.ExecutionList(t.Context(), pool, p)
		require.NoError(t, err)
		if len(all) > 0 && r.IntN(2) == 0 { // go on after one of them
			p.After = &all[r.IntN(len(all))].ID
			all, _, err = q.ExecutionList(t.Context(), pool, p)
			require.NoError(t, err)
		}
		p.CountMax = 1 + r.IntN(20)
		page, counted, err := q.ExecutionList(t.Context(), pool, p)
		require.NoError(t, err)
		require.Equal(t, min(total, p.CountMax), counted, "%+v", p)
		require.Equal(t, all, page, "%+v", p)
		if total >= p.CountMax {
			capped++
		}
	}
	require.Greater(t, capped, 50)
}

// A page among many executions that were written a moment ago, of which the
// planner has no statistics, is read without reading all of them.
func TestExecutionListPageWithoutStatistics(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenantID := pgtest.Tenant(t, pool).ID
	insertWorkflows(t, pool, tenantID)
	insertExecutions(t, pool, tenantID, 5000)
	var workflowIDs []uuid.UUID
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT array_agg(id) FROM workflows WHERE tenant_id = $1 AND alias = 'alias-1'`, tenantID).Scan(&workflowIDs))
	for name, p := range map[string]queries.ExecutionListParams{
		"all":                {},
		"status":             {Status: "completed"},
		"status, no tests":   {Status: "completed", ExcludeTests: true},
		"workflow":           {WorkflowIDs: workflowIDs},
		"workflow, oldest":   {WorkflowIDs: workflowIDs, Ascending: true},
		"workflow, status":   {WorkflowIDs: workflowIDs, Status: "completed"},
		"status, from":       {Status: "completed", CreatedFrom: monthStart()},
		"workflow, no tests": {WorkflowIDs: workflowIDs, ExcludeTests: true},
	} {
		p.TenantID, p.Limit, p.CountMax = tenantID, 11, 100
		statements, err := p.Statements(t.Context(), pool)
		require.NoError(t, err)
		page, read := blocksRead(t, pool, &statements[len(statements)-1])
		require.Equal(t, p.Limit, page, name)
		require.Less(t, read, 50, name)
	}
	nothing := queries.ExecutionListParams{
		TenantID: tenantID, WorkflowIDs: []uuid.UUID{uuid.New()}, Status: "completed", CreatedFrom: monthStart(), Window: queries.Window{Limit: 11, CountMax: 100},
	}
	statements, err := nothing.Statements(t.Context(), pool)
	require.NoError(t, err)
	counted, read := blocksRead(t, pool, &statements[0])
	require.Equal(t, 1, counted)
	require.Less(t, read, 50)
}

// blocksRead returns how many rows a statement returns, and how many blocks of
// tables and indexes it reads for that.
func blocksRead(t *testing.T, pool *pgxpool.Pool, statement *queries.Statement) (rows, blocks int) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		settings, args := statement.Settings()
		pgtest.Exec(t, tx, settings, args...)
		var plans []struct {
			Plan struct {
				Rows float64 `json:"Actual Rows"`
				Hit  int     `json:"Shared Hit Blocks"`
				Read int     `json:"Shared Read Blocks"`
			}
		}
		values := append([]any{pgx.QueryExecModeCacheDescribe}, statement.Args...)
		require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement.SQL, values...).Scan(&plans))
		rows, blocks = int(plans[0].Plan.Rows), plans[0].Plan.Hit+plans[0].Plan.Read
		return nil
	}))
	return rows, blocks
}

// The bounds of ids that belong to a period hold every id of a moment in it.
func TestFirstIDAt(t *testing.T) {
	t.Parallel()
	moment := time.Date(2026, 11, 21, 2, 9, 25, 123_000_000, time.UTC)
	id := queries.FirstIDAt(moment)
	require.Equal(t, uuid.UUID{0x01, 0xa1, 0xfb, 0xdd, 0x94, 0x83}, id)
	require.Equal(t, moment, queries.CreatedAt(queries.FirstIDAt(moment)))
	require.Equal(t, moment.Add(time.Millisecond), queries.CreatedAt(queries.FirstIDAt(moment.Add(1))), "the part of a millisecond is passed")
	require.Equal(t, uuid.Nil, queries.FirstIDAt(time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC)))
}
