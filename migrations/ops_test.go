package migrations_test

import (
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// The queries that docs/operating.md shows run as they stand there.
func TestOperatorsQueries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	pool := pgtest.Pool(t)
	seedOps(t, pool)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 10)
	for _, block := range blocks {
		rows, err := pool.Query(t.Context(), block[1])
		require.NoError(t, err, block[1])
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		require.NoError(t, err, block[1])
		require.NotEmpty(t, found, block[1])
	}
}

func TestOpsViews(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	seedOps(t, pool)
	for sql, want := range map[string]string{
		`SELECT string_agg(concat_ws(' ', role, is_alive, executions_held), ', ' ORDER BY role) FROM ops.processes`:                                                       "all t 1, worker f 0",
		`SELECT string_agg(concat_ws(' ', tenant, workflow, status, COALESCE(process_is_alive::text, '-')), ', ' ORDER BY status, execution_id) FROM ops.executions_open`: "acme risk v1 pending -, acme risk v1 running true, acme risk v1 running -",
		`SELECT string_agg(concat_ws(' ', waits_in, task_type, until AT TIME ZONE 'UTC'), ', ' ORDER BY waits_in) FROM ops.executions_waiting`:                            "pause delay 2030-01-02 03:04:05, the queue",
		`SELECT string_agg(concat_ws(' ', tenant, workflow, status, status_code, error, executions), ', ') FROM ops.failures`:                                             "acme risk v1 failed 502 task ask failed 2",
		`SELECT concat_ws(' ', tenant, workflow, executions, open, completed, unsuccessful, median_ms) FROM ops.workflows`:                                                "acme risk v1 6 3 1 2 2000",
		`SELECT concat_ws(' ', tenant, is_revoked, executions_open, executions_last_hour, batches_open) FROM ops.tenants`:                                                 "acme f 3 6 1",
		`SELECT concat_ws(' ', tenant, label, status, total, completed, failed, pending) FROM ops.batches_open`:                                                           "acme November processing 10 3 1 6",
		`SELECT concat_ws(' ', queue, kind, state, jobs, late_by > interval '1 minute') FROM ops.queues`:                                                                  "execution task_execution available 1 t",
		`SELECT concat_ws(' ', kind, state, errors, last_error, works_on) FROM ops.jobs_failing`:                                                                          "task_execution available 1 boom x",
		`SELECT count(*)::text FROM ops.partitions() WHERE until > now() + interval '2 months'`:                                                                           "4",
	} {
		var got string
		require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&got), sql)
		require.Equal(t, want, got, sql)
	}
}

// A plan that looks at all names before it looks which are partitions.
func TestOpsPartitionsAmongOtherNames(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	// As pg_toast has names, in a cluster of which the numbers have six digits.
	_, err := tx.Exec(t.Context(), "SET LOCAL enable_nestloop = off; CREATE TABLE other_202699 (); CREATE TABLE executions_old_202699 ()")
	require.NoError(t, err)
	var partitions int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM ops.partitions() WHERE until > now() + interval '2 months'").Scan(&partitions))
	require.Equal(t, 4, partitions)
}

// seedOps makes one of everything that the views show.
func seedOps(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tenant := pgtest.Tenant(t, pool, func(p *queries.SysTenantInsertParams) { p.Slug = "acme" })
	w := pgtest.PublishedWorkflow(t, pool, tenant.ID, func(p *queries.WorkflowInsertParams) {
		p.Alias = "risk"
		p.Tasks = []byte(`[{"id":"ask","type":"http-request"},{"id":"pause","type":"delay"}]`)
	})
	process := uuid.New()
	exec := func(sql string, args ...any) {
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec(`INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now()), (gen_random_uuid(), 'worker', now() - interval '1 minute')`, process)
	for _, e := range []struct {
		status, state, result string
		code                  int
		lease                 *uuid.UUID
	}{
		{"pending", `null`, `null`, 0, nil},
		{"running", `{"tasks":[{"status":"running"},{"status":"pending"}]}`, `null`, 0, &process},
		{"running", `{"tasks":[{"status":"completed"},{"status":"waiting","wakeAt":"2030-01-02T03:04:05Z"}]}`, `null`, 0, nil},
		{"completed", `null`, `{"errorMessage":null}`, 200, nil},
		{"failed", `null`, `{"errorMessage":"task ask failed"}`, 502, nil},
		{"failed", `null`, `{"errorMessage":"task ask failed"}`, 502, nil},
	} {
		id := pgtest.NewID(t)
		exec(`INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, status_code, created_at, started_at, completed_at, lease_process_id)
			VALUES ($1, $2, $3, 'risk', 1, 'tester', $4, NULLIF($5, 0), now(), now() - interval '2 seconds', CASE WHEN $4 NOT IN ('pending', 'running') THEN now() END, $6)`,
			id, tenant.ID, w.ID, e.status, e.code, e.lease)
		exec(`INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result) VALUES ($1, $2, '{}', $3, $4)`, id, tenant.ID, e.state, e.result)
	}
	exec(`INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, status, items_total, items_completed, items_failed)
		VALUES ($1, $2, $3, 'risk', 1, 'tester', 'November', 'processing', 10, 3, 1)`, pgtest.NewID(t), tenant.ID, w.ID)
	exec(`INSERT INTO river.river_job (args, kind, queue, state, max_attempts, scheduled_at, errors)
		VALUES ('{"execution_id":"x"}', 'task_execution', 'execution', 'available', 10, now() - interval '2 minutes', ARRAY['{"error":"boom"}'::jsonb])`)
}

// Retention drops whole months, but none of which an execution goes on or a batch is
// open, and nothing where it is not asked to.
func TestRetention(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	thisMonth := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).Truncate(24 * time.Hour)
	tenantID, batchID := pgtest.Tenant(t, pool).ID, pgtest.NewID(t)
	pgtest.PublishedWorkflow(t, pool, tenantID)
	insert := func(status string, at time.Time) {
		id := queries.FirstIDAt(at)
		_, err := pool.Exec(t.Context(), `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at)
			VALUES ($1, $2, $2, 'risk', 1, 'tester', $3, $4)`, id, tenantID, status, at)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), `INSERT INTO execution_payloads (execution_id, tenant_id, input) VALUES ($1, $2, '{}')`, id, tenantID)
		require.NoError(t, err)
	}
	// As if the service had been running for months.
	for _, parent := range []string{"executions", "execution_payloads"} {
		_, err := pool.Exec(t.Context(), `DROP TABLE `+parent+thisMonth.Format("_200601"))
		require.NoError(t, err)
		for back := range 4 {
			from := thisMonth.AddDate(0, -back, 0)
			_, err := pool.Exec(t.Context(), `CREATE TABLE `+parent+from.Format("_200601")+` PARTITION OF `+parent+
				` FOR VALUES FROM ('`+queries.FirstIDAt(from).String()+`') TO ('`+queries.FirstIDAt(from.AddDate(0, 1, 0)).String()+`')`)
			require.NoError(t, err)
		}
	}
	for back := range 4 {
		insert("completed", thisMonth.AddDate(0, -back, 3))
	}
	insert("running", thisMonth.AddDate(0, -2, 4))
	count := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM executions e JOIN execution_payloads p ON p.execution_id = e.id`).Scan(&n))
		return n
	}
	drop := func(months int32) []string {
		dropped, err := queries.New().SysExecutionPartitionsDrop(t.Context(), pool, months)
		require.NoError(t, err)
		return dropped
	}
	require.Empty(t, drop(3))
	require.Equal(t, 5, count())
	require.Equal(t, []string{thisMonth.AddDate(0, -3, 0).Format("200601")}, drop(1), "the month before the last has an execution that runs")
	require.Equal(t, 4, count())
	_, err := pool.Exec(t.Context(), `UPDATE executions SET status = 'timeout', batch_id = $1, item_index = 0 WHERE status = 'running'`, batchID)
	require.NoError(t, err)
	batch := func(status string) {
		_, err := pool.Exec(t.Context(), `INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, status)
			SELECT $1, $2, w.id, 'risk', 1, 'tester', 'old', $3 FROM workflows w ON CONFLICT (id) DO UPDATE SET status = $3`, batchID, tenantID, status)
		require.NoError(t, err)
	}
	for _, status := range []string{"pending", "pre_processing", "pre_processing_complete", "processing", "post_processing", "paused"} {
		batch(status)
		require.Empty(t, drop(1), "it belongs to a batch that is %s", status)
	}
	batch("complete")
	// One that is retried while its month is about to be dropped counts too.
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `UPDATE execution_batches SET status = 'processing' WHERE EXISTS (SELECT FROM executions WHERE batch_id = execution_batches.id)`)
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		dropped, err := queries.New().SysExecutionPartitionsDrop(t.Context(), pool, 1)
		assert.NoError(t, err)
		assert.Empty(t, dropped)
	})
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::integer = ANY (pg_blocking_pids(pid)))`, tx.Conn().PgConn().PID()).Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	group.Wait()
	require.Equal(t, 4, count())

	batch("cancelled")
	require.Equal(t, []string{thisMonth.AddDate(0, -2, 0).Format("200601")}, drop(1))
	require.Equal(t, 2, count())
}
