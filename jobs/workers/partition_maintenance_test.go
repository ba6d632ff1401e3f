package workers

import (
	"fmt"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/jobs"
	"tranche/queries"
)

// However much has gathered, maintenance removes what is of no use any more, that
// alone, and not more than a part of it at a time.
func TestMaintenanceSweepsByParts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenant := pgtest.Tenant(t, pool).ID
	exec := func(sql string, args ...any) {
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	const old, young, uploadsOld, uploadsYoung = 25_000, 100, 250, 50
	for days, n := range map[int]int{91: old, 89: young} {
		exec(`INSERT INTO audit_refusals (minute, tenant_id, client_id, status, reason, count)
			SELECT date_trunc('minute', now()) - make_interval(days => $1), CASE WHEN i % 2 = 0 THEN $2::uuid END, gen_random_uuid(), 401, 'test', 1 FROM generate_series(1, $3) i`, days, tenant, n)
	}
	for hours, n := range map[int]int{25: old, 23: young} {
		exec(`INSERT INTO execution_signals (tenant_id, execution_id, attempt, task_path, payload, created_at)
			SELECT $2, gen_random_uuid(), 1, 'x', '{}', now() - make_interval(hours => $1) FROM generate_series(1, $3) i`, hours, tenant, n)
		exec(`INSERT INTO attachments (id, tenant_id, stored_name, file_name, content_type, created_at)
			SELECT gen_random_uuid(), $2, $1::integer || '-' || i, 'x.csv', 'text/csv', now() - make_interval(hours => $1) FROM generate_series(1, $3) i`, hours, tenant, n)
	}
	for hours, n := range map[int]int{25: uploadsOld, 23: uploadsYoung} {
		exec(`INSERT INTO attachment_uploads (id, tenant_id, attachment_id, chunk_bytes, created_at)
			SELECT gen_random_uuid(), tenant_id, id, 1, created_at FROM attachments WHERE starts_with(stored_name, $1::integer || '-') LIMIT $2`, hours, n)
	}
	exec(`CREATE FUNCTION is_part() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT count(*) FROM gone) > TG_ARGV[0]::integer THEN
				RAISE EXCEPTION 'more than a part of % goes at once', TG_TABLE_NAME;
			END IF;
			RETURN NULL;
		END $$`)
	parts := map[string]int{"audit_refusals": 10_000, "execution_signals": 10_000, "attachments": 10_000, "attachment_uploads": 100}
	for table, rowsMax := range parts {
		exec(fmt.Sprintf(`CREATE TRIGGER is_part AFTER DELETE ON %s REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION is_part(%d)`, table, rowsMax))
	}

	w := &partitionMaintenance{pool: pool}
	require.NoError(t, w.Work(t.Context(), &river.Job[jobs.PartitionMaintenance]{JobRow: &rivertype.JobRow{CreatedAt: time.Now()}}))
	for table, n := range map[string]int{"audit_refusals": young, "execution_signals": young, "attachments": young, "attachment_uploads": uploadsYoung} {
		var left int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&left))
		require.Equal(t, n, left, table)
	}
}

// Executions of months that are over go where retention says so, and nowhere else;
// signals that nobody waits for go a day after they came.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenantID := pgtest.Tenant(t, pool).ID
	now := time.Now().UTC()
	from := time.Date(now.Year(), now.Month()-2, 1, 0, 0, 0, 0, time.UTC)
	for _, parent := range []string{"executions", "execution_payloads"} {
		// The first partition is of all that came before it.
		_, err := pool.Exec(t.Context(), `DROP TABLE `+parent+now.Format("_200601"))
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), `CREATE TABLE `+parent+from.Format("_200601")+` PARTITION OF `+parent+
			` FOR VALUES FROM ('`+queries.FirstIDAt(from).String()+`') TO ('`+queries.FirstIDAt(from.AddDate(0, 1, 0)).String()+`')`)
		require.NoError(t, err)
	}
	for path, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": 23 * time.Hour} {
		_, err := pool.Exec(t.Context(), `INSERT INTO execution_signals (tenant_id, execution_id, attempt, task_path, payload, created_at)
			VALUES ($1, $2, 1, $3, '{}', $4)`, tenantID, pgtest.NewID(t), path, now.Add(-age))
		require.NoError(t, err)
	}
	isKept := func(retentionMonths int) (is bool) {
		w := &partitionMaintenance{pool: pool, retentionMonths: retentionMonths}
		require.NoError(t, w.Work(t.Context(), &river.Job[jobs.PartitionMaintenance]{JobRow: &rivertype.JobRow{CreatedAt: now}}))
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, "executions"+from.Format("_200601")).Scan(&is))
		return is
	}
	require.True(t, isKept(0), "for ever")
	require.True(t, isKept(2))
	require.False(t, isKept(1))
	var left string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT string_agg(task_path, ' ') FROM execution_signals`).Scan(&left))
	require.Equal(t, "new", left)
}
